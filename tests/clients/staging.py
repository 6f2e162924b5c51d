"""Gateways in the states that make clients come back: full, and on its way out. Neither ends before it is told to."""

import contextlib
import json
import pathlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx

from gateway.emulator.config import EmulatorConfig, StepCost
from gateway.emulator.serve import RunningEmulator, running_emulator
from tests.clients.talking import KEY, MODEL
from tests.conformance.harness import eventually
from tests.support.processes import RunningGateway, metrics, running_gateway

CHAT = "/v1/chat/completions"
CLIENTS_TOKENS, RESPONSE_TOKENS = 8, 16  # what clients ask for, by which their lines are told from the staging's
_HOLDER_TOKENS, _WAITER_TOKENS, _WARMING_TOKENS = 5, 4, 3
_STEP_SECONDS = 0.15  # so that a place is promised in about two seconds: no client comes back so late by itself


@dataclass(frozen=True, slots=True)
class Stage:
    """A gateway and what its clients' requests became of."""

    gateway: RunningGateway
    emulator: RunningEmulator

    def lines(self) -> list[dict[str, Any]]:
        """The request log's, of the clients only, in the order of their ends."""
        whole = self.gateway.log.read_text(encoding="utf-8").splitlines()
        lines = [json.loads(line) for line in whole if '"outcome"' in line]
        return [line for line in lines if line.get("max_tokens") in {None, CLIENTS_TOKENS, RESPONSE_TOKENS}]

    def rejections(self) -> float:
        found = metrics(self.gateway.url)
        return sum(value for name, value in found.items() if name.startswith("gateway_rejections_total"))

    def told_seconds(self) -> float:
        """All the times to come back that were named, together."""
        return metrics(self.gateway.url)["gateway_retry_after_seconds_sum"]

    @contextlib.contextmanager
    def leaving(self) -> Iterator[None]:
        """Everybody is refused with 503 meanwhile."""
        path = f"{self.gateway.url}/gateway/drain"
        httpx.post(path, params={"timeout_seconds": 0}).raise_for_status()
        try:
            yield
        finally:
            httpx.delete(path).raise_for_status()

    @contextlib.contextmanager
    def full(self) -> Iterator[None]:
        """The only place and the only one to wait in are taken meanwhile: 429."""
        headers = {"authorization": f"Bearer {KEY}"}
        with (
            httpx.Client(base_url=self.gateway.url, timeout=60, headers=headers) as http,
            http.stream("POST", CHAT, json=_body(_HOLDER_TOKENS, stream=True)) as holder,
        ):
            pieces = holder.iter_raw()
            next(pieces)
            self.emulator.set_faults(freeze=True)
            waiter = threading.Thread(target=http.post, args=(CHAT,), kwargs={"json": _body(_WAITER_TOKENS)})
            waiter.start()
            try:
                assert eventually(lambda: metrics(self.gateway.url)["gateway_queue_depth"] == 1)
                yield
            finally:
                self.emulator.set_faults(freeze=False)
                list(pieces)
                waiter.join()

    def meanwhile(self, state: contextlib.AbstractContextManager[None], do: Callable[[], dict[str, Any]]) -> Any:
        """What the client saw, who was refused once while it was so."""
        before = self.rejections()
        with ThreadPoolExecutor(1) as pool:
            with state:
                seen = pool.submit(do)
                assert eventually(lambda: self.rejections() > before or seen.done(), within_seconds=60)
            return seen.result()


@contextlib.contextmanager
def plain_stage(work: pathlib.Path) -> Iterator[Stage]:
    settings = {"calibration": "off", "server": {"drain_route": True, "drain_grace_seconds": 0}}
    config = EmulatorConfig.fast(enable_prompt_tokens_details=True)
    with running_emulator(config) as emulator, running_gateway(emulator.base_url, work, settings) as gateway:
        yield Stage(gateway, emulator)


@contextlib.contextmanager
def pooling_stage(work: pathlib.Path) -> Iterator[Stage]:
    config = EmulatorConfig.fast(runner="pooling")
    with (
        running_emulator(config) as emulator,
        running_gateway(emulator.base_url, work, {"calibration": "off"}) as gateway,
    ):
        yield Stage(gateway, emulator)


@contextlib.contextmanager
def narrow_stage(work: pathlib.Path) -> Iterator[Stage]:
    """A gateway with one place and one to wait in, which knows how fast places fall free."""
    settings = {"calibration": "off", "queue": {"requests": 1, "wait_seconds": 120}, "budget": {"sequences": 1}}
    config = EmulatorConfig.fast(step_cost=StepCost(_STEP_SECONDS, 0.0, 0.0, 0.0))
    with running_emulator(config) as emulator, running_gateway(emulator.base_url, work, settings) as gateway:
        _warm(gateway.url)
        yield Stage(gateway, emulator)


def _warm(url: str) -> None:
    """Enough leave while others wait."""
    with ThreadPoolExecutor(2) as pool, httpx.Client(base_url=url, timeout=60) as http:
        answers = list(pool.map(lambda _: http.post(CHAT, json=_body(_WARMING_TOKENS)), range(12)))
    assert {answer.status_code for answer in answers} == {200}


def _body(tokens: int, **fields: Any) -> dict[str, Any]:
    message = {"role": "user", "content": "Go on."}
    return {"model": MODEL, "messages": [message], "max_tokens": tokens, "ignore_eos": True} | fields
