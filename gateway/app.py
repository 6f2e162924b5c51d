"""Composition root: settings become objects, objects become one ASGI application that starts, drains and stops.

No decision is taken here and nothing is computed on the way of a request.
"""

import asyncio
import platform
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from gateway import __version__
from gateway.domain.errors import GatewayError
from gateway.domain.learning import PreprocessRate
from gateway.domain.queue import QueuePolicy
from gateway.imaging.render import ENCODER_ID
from gateway.imaging.workers import ImageWorkers
from gateway.ledger.byte_budget import ByteBudget, Seats
from gateway.ledger.gate import Gate
from gateway.ledger.host_memory import memory_limit_bytes, usable_cores
from gateway.ledger.local import LocalLedger
from gateway.models.served import ModelTable, ServedModel
from gateway.pipeline.exchange import Parts
from gateway.pipeline.follow import EngineFollower
from gateway.pipeline.gauges import gauge_readers
from gateway.pipeline.unseen import grow_unseen
from gateway.policies import ByteBudgets, body_limits_of, engine_of, models_of, policies_of, tenancy_of
from gateway.server.answers import Send
from gateway.server.connection_refusals import ConnectionRefusals
from gateway.server.control import create_control_app
from gateway.server.proxy import Door, Proxy, Scope
from gateway.server.receive import Receive
from gateway.settings import Settings
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.request_log import RequestLog
from gateway.upstream.client import UpstreamClient, UpstreamTimeouts
from gateway.upstream.poll import Poller
from gateway.upstream.state import PollPace

_FREE_SEQUENCES = 128
CONTROL_PATHS = frozenset(
    {"/livez", "/readyz", "/startupz", "/health", "/metrics", "/version", "/docs", "/openapi.json"}
)


class DecodeBudget:
    """The byte budget as the image workers ask for it: with the patience of the queue."""

    def __init__(self, budget: ByteBudget, wait_seconds: float) -> None:
        self._budget = budget
        self._wait_seconds = wait_seconds

    async def acquire(self, byte_count: int) -> None:
        await self._budget.acquire(byte_count, self._wait_seconds)

    def release(self, byte_count: int) -> None:
        self._budget.release(byte_count)


@dataclass(slots=True)
class Running:
    """What exists between start and stop."""

    proxy: Proxy
    poller: Poller
    metrics: Metrics
    seats: Seats
    connection_refusals: ConnectionRefusals


class Application:
    """The ASGI application. Mistakes of the settings that only show when files are read are raised at once
    (ModelSettingsError). `write_log` takes the lines of the request log; None: standard output.
    """

    def __init__(self, settings: Settings, write_log: Callable[[bytes], None] | None = None) -> None:
        self._settings = settings
        self._write_log = write_log
        self._models = models_of(settings)
        self._control = create_control_app(self)
        self._running: Running | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["path"] in CONTROL_PATHS:
            await self._control(scope, receive, send)
        else:
            assert self._running is not None, "the server starts the application before it serves"
            await self._running.proxy(scope, receive, send)

    @property
    def write_timeout_seconds(self) -> float:
        return self._settings.server.write_timeout_seconds

    def connection_refused(self, error: GatewayError) -> None:
        """A connection was answered with this error before there was a request."""
        if self._running is not None:
            self._running.connection_refusals.note(error)

    def drain(self) -> None:
        """Take nothing new; what is inside is finished."""
        if self._running is not None:
            self._running.proxy.is_draining = True

    @property
    def is_draining(self) -> bool:
        return self._running is not None and self._running.proxy.is_draining

    @property
    def is_empty(self) -> bool:
        """Nobody is inside whose answer would be cut off by stopping now."""
        return self._running is None or not self._running.seats.taken

    def is_started(self) -> bool:
        return self._running is not None

    def why_not_ready(self) -> str | None:
        if self._running is None:
            return "the gateway is still starting"
        if self._running.proxy.is_draining:
            return "the gateway is shutting down"
        state = self._running.poller.state
        if state.is_up:
            return None
        return (
            f"the model server is {'still loading or not there yet' if state.is_loading else 'down'}: {state.trouble}"
        )

    def metrics_page(self, accept: str) -> tuple[bytes, str]:
        assert self._running is not None, "the server starts the application before it serves"
        return self._running.metrics.render(accept)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Everything started, in the order of need; stopped in reverse whatever happens."""
        async with AsyncExitStack() as stack:
            self._running = await _start(self._settings, self._models, self._write_log, stack)
            stack.callback(self._stopped)
            yield

    def _stopped(self) -> None:
        self._running = None

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        phase = "startup"
        try:
            async with self.running():
                await send({"type": "lifespan.startup.complete"})
                phase = "shutdown"
                await receive()
        except Exception as error:
            await send({"type": f"lifespan.{phase}.failed", "message": str(error)})
            raise
        await send({"type": "lifespan.shutdown.complete"})


async def _start(
    settings: Settings,
    models: list[ServedModel],
    write_log: Callable[[bytes], None] | None,
    stack: AsyncExitStack,
) -> Running:
    loop = asyncio.get_running_loop()
    budgets = ByteBudgets.of(settings.budget, memory_limit_bytes())
    body_budget = ByteBudget(budgets.body_bytes, purpose="request bodies", call_later=loop.call_later)
    decode_budget = ByteBudget(budgets.decode_bytes, purpose="decoding images", call_later=loop.call_later)
    metrics = Metrics([model.name for model in models], [tenant.name for tenant in settings.tenants])
    metrics.build_info(version=__version__, encoder_id=ENCODER_ID, python=platform.python_version())
    table = ModelTable(models, engine_of(settings))
    gate = _gate(settings, budgets.body_bytes, loop)
    url, upstream_key = _address(settings)
    upstream = UpstreamClient(url, _timeouts(settings), upstream_key=upstream_key)
    images = ImageWorkers(
        threads=usable_cores(),
        decode_budget=DecodeBudget(decode_budget, settings.queue.wait_seconds),
        cache_bytes=budgets.cache_bytes,
        verify=settings.images.verify,
    )
    log = RequestLog(write_log, is_on=settings.log.requests)
    follower = EngineFollower(
        table, gate, metrics, settings.budget.kv_blocks, settings.budget.sequences, clock=time.monotonic
    )
    parts = Parts(
        policies=policies_of(settings, budgets),
        models=table,
        images=images,
        gate=gate,
        upstream=upstream,
        metrics=metrics,
        log=log,
        clock=time.monotonic,
        pushed_back=follower.pushed_back,
    )
    seats = Seats(settings.server.seats)
    poller = Poller(
        url,
        observers=[follower, lambda _state: grow_unseen(parts.unseen.values(), time.monotonic())],
        pace=PollPace(busy_seconds=settings.upstream.poll_seconds),
        is_busy=lambda: seats.taken > 0,
        upstream_key=upstream_key,
        clock=time.monotonic,
    )
    metrics.observe_gauges(**gauge_readers(gate, seats, body_budget, decode_budget, poller, follower, upstream, log))
    stack.push_async_callback(images.close)
    await _begin(
        stack,
        (log.start, log.close),
        (upstream.start, upstream.close),
        (gate.start, gate.stop),
        (poller.start, poller.close),
    )
    body_limits = body_limits_of(settings, budgets)
    door = Door(seats, body_budget, body_limits, settings.queue.wait_seconds, tenancy_of(settings))
    return Running(Proxy(parts, door), poller, metrics, seats, ConnectionRefusals(metrics, log, time.monotonic))


async def _begin(
    stack: AsyncExitStack, *parts: tuple[Callable[[], Awaitable[None]], Callable[[], Awaitable[None]]]
) -> None:
    """Start each in turn; `stack` stops those that were started, in reverse."""
    for start, stop in parts:
        await start()
        stack.push_async_callback(stop)


def _address(settings: Settings) -> tuple[str, str | None]:
    """Where vLLM is, and the key that it wants."""
    secret = settings.upstream.api_key
    return str(settings.upstream.url), secret.get_secret_value() if secret else None


def _gate(settings: Settings, body_bytes: int, loop: asyncio.AbstractEventLoop) -> Gate:
    budget = settings.budget
    capacity = (budget.kv_blocks, budget.sequences or _FREE_SEQUENCES, budget.encoder_tokens, None)
    return Gate(
        LocalLedger(capacity),
        # Waiting bodies may fill half of the byte budget, so that those that are sent always find room too.
        QueuePolicy(settings.queue.requests, body_bytes // 2, settings.queue.wait_seconds),
        clock=time.monotonic,
        call_later=loop.call_later,
        jitter=random.random,
        preprocess_rate=PreprocessRate(budget.preprocess_backlog_seconds),
    )


def _timeouts(settings: Settings) -> UpstreamTimeouts:
    upstream = settings.upstream
    return UpstreamTimeouts(
        connect_seconds=upstream.connect_timeout_seconds,
        first_event_seconds=upstream.first_byte_timeout_seconds,
        gap_seconds=upstream.gap_timeout_seconds,
        whole_seconds=upstream.total_timeout_seconds,
    )
