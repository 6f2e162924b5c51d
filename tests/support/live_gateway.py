"""The gateway in the test's own event loop, behind a real socket: what it holds can be asked between two awaits."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import uvicorn
from prometheus_client.parser import text_string_to_metric_families

from gateway.app import Application
from gateway.ledger.timing import Timing
from gateway.server.http_protocol import GatewayProtocol
from gateway.settings import Settings
from tests.support.clock import FakeClock
from tests.support.processes import series_name

MODEL = "tiny"
CHAT = "/v1/chat/completions"


@dataclass
class LiveGateway:
    """A running gateway. `connections` are its ends of those that are open, `log_text` what its request log wrote."""

    application: Application
    host: str
    port: int
    http: httpx.AsyncClient
    connections: set[Any]
    log_text: bytearray = field(default_factory=bytearray)

    def metrics(self, prefix: str = "gateway_") -> dict[str, float]:
        """Samples of /metrics that are not zero, by `series_name` less the common prefix."""
        running = self.application._running
        assert running is not None
        lines = [line for line in running.metrics.render()[0].decode().splitlines() if line.startswith(prefix)]
        families = text_string_to_metric_families("\n".join([*lines, ""]))
        samples = [sample for family in families for sample in family.samples if sample.value]
        return {series_name(each.name, each.labels).removeprefix(prefix): each.value for each in samples}

    def held(self) -> dict[str, float]:
        """Whatever the gateway still holds or lets wait, by resource."""
        waiting = self.metrics("gateway_queue_depth") | self.metrics("gateway_upstream_requests_in_flight")
        return self.metrics("gateway_held") | waiting

    def ended(self) -> dict[str, float]:
        """How many requests ended in which way."""
        outcomes: dict[str, float] = {}
        for name, value in self.metrics("gateway_requests_total").items():
            outcome = name.rpartition('outcome="')[2].partition('"')[0]
            outcomes[outcome] = outcomes.get(outcome, 0) + value
        return outcomes

    def rejected(self) -> dict[str, float]:
        """How many refusals had which reason."""
        reasons: dict[str, float] = {}
        for name, value in self.metrics("gateway_rejections_total").items():
            reason = name.rpartition('reason="')[2].partition('"')[0]
            reasons[reason] = reasons.get(reason, 0) + value
        return reasons

    async def log(self, lines: int) -> list[dict[str, Any]]:
        """The request log, once it has so many lines."""
        await until(lambda: self.log_text.count(b"\n") >= lines)
        return [json.loads(line) for line in self.log_text.splitlines()]

    async def assert_ended(self, outcome: str, *, status: int, reason: str | None = None) -> dict[str, Any]:
        """Nothing held, one request counted with `outcome`, one line logged that says the same: that line."""
        await self.until_released()
        assert self.ended() == {outcome: 1}
        assert self.rejected() == ({reason: 1} if reason else {})
        (line,) = await self.log(1)
        assert (line["outcome"], line.get("status"), line.get("reason")) == (outcome, status, reason)
        return line

    async def chat(self, *content: Any, headers: dict[str, str] | None = None, **fields: Any) -> httpx.Response:
        return await self.http.post(CHAT, json=chat(*content, **fields), headers=headers)

    async def until_up(self) -> None:
        """The gateway has seen every upstream, its models and its limits."""
        await until(lambda: not self.application.troubles(), lambda: str(self.application.troubles()))

    async def until_released(self) -> None:
        await until(lambda: not self.held(), lambda: str(self.held()))


def chat(*content: Any, **fields: Any) -> dict[str, Any]:
    """A body with one user message."""
    parts = [{"type": "text", "text": part} if isinstance(part, str) else part for part in content or ("Hello.",)]
    return {"model": MODEL, "messages": [{"role": "user", "content": parts}]} | fields


def image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


async def until(
    is_so: Callable[[], bool], what: Callable[[], str] = lambda: "", *, within_seconds: float = 30.0
) -> None:
    """Let the loop run until it is so. The bound only ends what hangs: a machine may be busy for seconds."""
    give_up_at = time.monotonic() + within_seconds
    while not is_so():
        assert time.monotonic() < give_up_at, f"it never came: {what()}"
        await asyncio.sleep(0.01)


def settings_of(servers: str | Mapping[str, str], /, **sections: Any) -> Settings:
    """Settings with the test's sections; the model is named, so that nothing has to be discovered first, and servers
    are asked nothing but what tests ask.

    `servers` is the address of one, or those of several by name.
    """
    common = {"poll_seconds": 0.05} | sections.pop("upstream", {})
    models = sections.pop("models", [{"name": MODEL, "family": "qwen2_5_vl"}])
    if isinstance(servers, str):
        where: dict[str, Any] = {"upstream": {"url": servers} | common}
    else:
        where = {"upstreams": [{"name": name, "url": url} for name, url in servers.items()], "upstream": common}
    return Settings.model_validate(where | {"models": models, "calibration": "off"} | sections)


@asynccontextmanager
async def live_gateway(
    servers: str | Mapping[str, str], /, *, clock: FakeClock | None = None, **sections: Any
) -> AsyncIterator[LiveGateway]:
    """`sections` are those of the settings file; the block runs when the gateway listens. By `clock` requests wait."""
    text = bytearray()
    timing = None if clock is None else Timing(clock, clock.call_later)
    application = Application(settings_of(servers, **sections), text.extend, timing)
    scheme = "http" if application.tls is None else "https"
    # Without `verify` the client would read all certificates of the machine, which takes longer than a test.
    async with (
        _served(application) as (host, port, connections),
        httpx.AsyncClient(base_url=f"{scheme}://{host}:{port}", timeout=30, verify=False, trust_env=False) as client,
    ):
        yield LiveGateway(application, host, port, client, connections, text)


class _Server(uvicorn.Server):
    """Leaves at once when told, instead of at its next tick."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.may_leave = asyncio.Event()

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self.may_leave.wait()


@asynccontextmanager
async def _served(application: Application) -> AsyncIterator[tuple[str, int, set[Any]]]:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    host, port = listener.getsockname()
    server = _Server(
        uvicorn.Config(
            application, http=GatewayProtocol, ws="none", lifespan="on", log_config=None, access_log=False,
            server_header=False, timeout_graceful_shutdown=1,
            ssl_context_factory=None if application.tls is None else lambda _config, _default: application.tls,
        )
    )  # fmt: skip
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        await until(lambda: server.started or task.done())
        yield host, port, server.server_state.connections
    finally:
        server.may_leave.set()
        await task
