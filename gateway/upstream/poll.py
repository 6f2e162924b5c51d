"""The control path to vLLM: looks at it now and then and tells those who asked. All of httpx lives here.

One import line names the library, because httpx2 continues httpx with the same interface.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import httpx
import msgspec

from gateway.upstream.state import Health, Observation, PollPace, UpstreamModel, UpstreamState, next_state
from gateway.wire.vllm_metrics import EngineReport, parse_metrics

_log = logging.getLogger(__name__)

_LOOK_SECONDS = 5.0
_DISCOVERY_SECONDS = 2.0

_T = TypeVar("_T")
Observer = Callable[[UpstreamState], None]


class _Card(msgspec.Struct):
    id: str
    max_model_len: int | None = None


class _ModelList(msgspec.Struct):
    data: list[_Card]


class _Version(msgspec.Struct):
    version: str


async def discover(
    base_url: str,
    *,
    upstream_key: str | None = None,
    timeout_seconds: float = _DISCOVERY_SECONDS,
    clock: Callable[[], float] = time.monotonic,
) -> UpstreamState:
    """One look at the start: models, limits, version. Never raises; a server that is not there yet is `is_loading`."""
    async with _client(base_url, upstream_key, timeout_seconds) as client:
        return next_state(UpstreamState(), await look(client), clock())


async def look(client: httpx.AsyncClient) -> Observation:
    """Ask everything once. Never raises for what the server does."""
    try:
        answer = await client.get("/health")
    except httpx.TimeoutException as error:
        is_silent = not isinstance(error, httpx.ConnectTimeout)
        return Observation(Health.SILENT if is_silent else Health.REFUSING, trouble="/health did not answer in time")
    except httpx.HTTPError as error:
        return Observation(Health.REFUSING, trouble=f"/health: {_named(error)}")
    if not answer.is_success:
        return Observation(Health.REFUSING, trouble=f"/health answered {answer.status_code}")
    troubles: list[str] = []
    models = await _ask(client, "/v1/models", _read_models, troubles)
    version = await _ask(client, "/version", _read_version, troubles)
    report = await _ask(client, "/metrics", _read_report, troubles)
    return Observation(Health.OK, models, version, report, "; ".join(troubles) or None)


class Poller:
    """Keeps `state` fresh in a task of its own, which never ends by an error."""

    def __init__(
        self,
        base_url: str,
        *,
        initial: UpstreamState | None = None,
        pace: PollPace | None = None,
        observers: Sequence[Observer] = (),
        is_busy: Callable[[], bool] = lambda: True,
        upstream_key: str | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.state = initial or UpstreamState()
        self._base_url = base_url
        self._pace = pace or PollPace()
        self._observers = tuple(observers)
        self._is_busy = is_busy
        self._upstream_key = upstream_key
        self._clock = clock
        self._sleep = sleep
        self._chance = chance
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="upstream poller")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def report_age_seconds(self) -> float | None:
        """How old the engine's numbers are now; None without any."""
        return self.state.report_age_seconds(self._clock())

    async def _run(self) -> None:
        async with _client(self._base_url, self._upstream_key, _LOOK_SECONDS) as client:
            while True:
                try:
                    self._learn(await look(client))
                except Exception:  # noqa: BLE001  an observer that fails must not end the looking
                    _log.exception("looking at the upstream failed")
                await self._sleep(self._pace.wait_seconds(self.state, is_busy=self._is_busy(), chance=self._chance()))

    def _learn(self, seen: Observation) -> None:
        before = self.state
        self.state = next_state(before, seen, self._clock())
        if self.state.is_up != before.is_up:
            _log.warning("upstream is %s", "up" if self.state.is_up else f"down: {seen.trouble}")
        for observer in self._observers:
            observer(self.state)


def _client(base_url: str, upstream_key: str | None, timeout_seconds: float) -> httpx.AsyncClient:
    headers: Mapping[str, str] = {"authorization": f"Bearer {upstream_key}"} if upstream_key else {}
    return httpx.AsyncClient(base_url=base_url, headers=headers, timeout=timeout_seconds, trust_env=False)


async def _ask(
    client: httpx.AsyncClient, path: str, read: Callable[[httpx.Response], _T], troubles: list[str]
) -> _T | None:
    try:
        answer = await client.get(path)
        if answer.is_success:
            return read(answer)
        troubles.append(f"{path} answered {answer.status_code}")
    except (httpx.HTTPError, ValueError) as error:
        troubles.append(f"{path}: {_named(error)}")
    return None


def _read_models(answer: httpx.Response) -> tuple[UpstreamModel, ...]:
    cards = msgspec.json.decode(answer.content, type=_ModelList).data
    return tuple(UpstreamModel(card.id, card.max_model_len) for card in cards)


def _read_version(answer: httpx.Response) -> str:
    return msgspec.json.decode(answer.content, type=_Version).version


def _read_report(answer: httpx.Response) -> EngineReport:
    return parse_metrics(answer.text)


def _named(error: Exception) -> str:
    return str(error) or type(error).__name__
