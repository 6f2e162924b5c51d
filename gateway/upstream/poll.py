"""The control path to vLLM: looks at it now and then and tells those who asked.

No answer ends the looking: what cannot be read becomes a sentence in the log, and what was known before stands.
"""

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec

from gateway.upstream.pages import Page, PageError, Pages, SilentPageError, one_line
from gateway.upstream.state import Health, Observation, PollPace, UpstreamModel, UpstreamState, next_state
from gateway.upstream.tls import UpstreamTls
from gateway.wire.vllm_metrics import EngineReport, parse_metrics

_log = logging.getLogger(__name__)

_LOOK_SECONDS = 5.0
_DISCOVERY_SECONDS = 2.0
_LARGE_PAGE_BYTES = 256 << 10  # takes 5 ms to read, as long as the loop may stand still
_MOST_MODELS = 4096
_LONGEST_CONTEXT = 2**31

_T = TypeVar("_T")
Observer = Callable[[UpstreamState], None]


class _Card(msgspec.Struct):
    id: str
    max_model_len: int | None = None
    root: Any = None
    parent: Any = None


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
    tls: UpstreamTls | None = None,
) -> UpstreamState:
    """One look at the start: models, limits, version. Never raises; a server that is not there yet is `is_loading`."""
    async with _pages(base_url, upstream_key, timeout_seconds, tls) as pages:
        return next_state(UpstreamState(), await look(pages), clock())


async def look(pages: Pages) -> Observation:
    """Ask everything once. Never raises for what the server does."""
    try:
        answer = await pages.get("/health")
    except PageError as error:
        health = Health.SILENT if isinstance(error, SilentPageError) else Health.REFUSING
        return Observation(health, trouble=f"/health: {error}")
    if not answer.is_success:
        return Observation(Health.REFUSING, trouble=f"/health answered {answer.status}")
    troubles: list[str] = []
    models = await _ask(pages, "/v1/models", _read_models, troubles)
    if models is not None and len(models) > _MOST_MODELS:
        troubles.append(f"/v1/models lists {len(models)} models, and only the first {_MOST_MODELS} are known apart")
        models = models[:_MOST_MODELS]
    version = await _ask(pages, "/version", _read_version, troubles)
    report = await _ask(pages, "/metrics", _read_report, troubles)
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
        log_prefix: str = "",
        tls: UpstreamTls | None = None,
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
        self._prefix = log_prefix
        self._tls = tls
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
        async with _pages(self._base_url, self._upstream_key, _LOOK_SECONDS, self._tls) as pages:
            while True:
                try:
                    self._learn(await look(pages))
                except Exception:  # noqa: BLE001  an observer that fails must not end the looking
                    _log.exception("%slooking at the upstream failed", self._prefix)
                await self._rest()

    async def _rest(self) -> None:
        """Until the next look. Work that begins meanwhile does not wait for an idle pace, for it has much to teach."""
        is_busy = self._is_busy()
        left = self._pace.wait_seconds(self.state, is_busy=is_busy, chance=self._chance())
        may_be_cut = not (is_busy or self.state.misses)
        while left > 0:
            part = min(left, self._pace.busy_seconds) if may_be_cut else left
            await self._sleep(part)
            left = 0.0 if may_be_cut and self._is_busy() else left - part

    def _learn(self, seen: Observation) -> None:
        before = self.state
        self.state = next_state(before, seen, self._clock())
        if self.state.is_up != before.is_up:
            _log.warning("%supstream is %s", self._prefix, "up" if self.state.is_up else f"down: {seen.trouble}")
        elif self.state.is_loading and seen.trouble != before.trouble:
            _log.warning(
                "%supstream is not there yet: %s. Unless vLLM is still loading, check its url",
                self._prefix,
                seen.trouble,
            )
        if seen.health is Health.OK and seen.trouble and seen.trouble != before.trouble:
            _log.warning("%supstream is up, but not all that it tells can be read: %s", self._prefix, seen.trouble)
        for observer in self._observers:
            observer(self.state)


@asynccontextmanager
async def _pages(
    base_url: str, upstream_key: str | None, timeout_seconds: float, tls: UpstreamTls | None
) -> AsyncIterator[Pages]:
    pages = Pages(base_url, upstream_key, timeout_seconds, tls)
    try:
        yield pages
    finally:
        await pages.close()


async def _ask(pages: Pages, path: str, read: Callable[[bytes], _T], troubles: list[str]) -> _T | None:
    try:
        page = await pages.get(path)
        if page.is_success:
            return await _read(page, read)
        troubles.append(f"{path} answered {page.status}")
    except PageError as error:
        troubles.append(f"{path}: {error}")
    except Exception as error:  # noqa: BLE001  whatever a parser makes of an odd page, it must not end the looking
        troubles.append(f"{path}: {one_line(error)}")
    return None


async def _read(page: Page, read: Callable[[bytes], _T]) -> _T:
    return await asyncio.to_thread(read, page.body) if len(page.body) > _LARGE_PAGE_BYTES else read(page.body)


def _read_models(body: bytes) -> tuple[UpstreamModel, ...]:
    cards = msgspec.json.decode(body, type=_ModelList).data
    return tuple(
        UpstreamModel(card.id, _context(card.max_model_len), _text(card.root), _text(card.parent)) for card in cards
    )


def _text(value: Any) -> str | None:
    """Nobody must lose the whole list for what is of no use here."""
    return value if isinstance(value, str) else None


def _context(tokens: int | None) -> int | None:
    """A length that no model has is not known, or everything would be refused for it."""
    return tokens if tokens is not None and 0 < tokens <= _LONGEST_CONTEXT else None


def _read_version(body: bytes) -> str:
    return msgspec.json.decode(body, type=_Version).version


def _read_report(body: bytes) -> EngineReport:
    return parse_metrics(body.decode(errors="replace"))
