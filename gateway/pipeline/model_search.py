"""Looks for the own files of the models that a server lists, beside all else: nothing waits for it.

Discs and the hub may hang, so each look is in a thread that keeps nobody from ending, and is given up after a time.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from gateway.models.places import Look, Places
from gateway.models.served import ModelTable, Wanted
from gateway.upstream.state import UpstreamModel, UpstreamState

_log = logging.getLogger(__name__)

THREAD = "model files"
_LOOK_SECONDS = 60.0
_AGAIN_SECONDS = (30.0, 300.0)
"""After which a hub that could not be reached is asked again; then not before the server's list changes."""
_MOST_MODELS = 64


class ModelSearch:
    """An observer of the poller, told behind the one that fills `table`. Looks anew whenever the list changes."""

    def __init__(
        self,
        table: ModelTable,
        places: Places,
        *,
        log_prefix: str = "",
        look_seconds: float = _LOOK_SECONDS,
        again_seconds: Sequence[float] = _AGAIN_SECONDS,
    ) -> None:
        self._table = table
        self._places = places
        self._prefix = log_prefix
        self._look_seconds = look_seconds
        self._again_seconds = again_seconds
        self._seen: Sequence[UpstreamModel] = ()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_looking = False

    def __call__(self, state: UpstreamState) -> None:
        if state.models is not self._seen:
            self._seen = state.models
            self._changed.set()

    async def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="model search")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            open_questions = await self._search(self._table.wanted())
            for seconds in self._again_seconds:
                if not open_questions or await self._has_changed_within(seconds):
                    break
                open_questions = await self._search(open_questions)

    async def _has_changed_within(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        return self._changed.is_set()

    async def _search(self, wanted: Sequence[Wanted]) -> list[Wanted]:
        """One after the other; those that it is worth to ask for again."""
        open_questions = []
        for each in wanted[:_MOST_MODELS]:
            if self._is_looking:
                _log.warning("%slooking for files of models still hangs; no more are looked for", self._prefix)
                break
            look = await self._look(each)
            for trouble in look.troubles:
                _log.warning("%smodel %r: its files: %s", self._prefix, each.name, trouble)
            if look.found is not None:
                self._take(each, look)
            elif look.is_worth_another:
                open_questions.append(each)
        return open_questions

    async def _look(self, wanted: Wanted) -> Look:
        try:
            # Not wait_for, which in Python 3.11 loses a cancellation that comes together with the result.
            async with asyncio.timeout(self._look_seconds):
                return await self._beside(lambda: self._places.look(*wanted))
        except TimeoutError:
            return Look(troubles=(f"not found within {self._look_seconds:g} s: a disc or the hub hangs",))

    def _take(self, wanted: Wanted, look: Look) -> None:
        assert look.found is not None, "there is something to take"
        before = self._table.served(wanted.name)
        self._table.found(wanted, look.found)
        model = self._table.served(wanted.name)
        if model is not before:
            _log.info(
                "%smodel %r: %s by its own files (%s)", self._prefix, wanted.name, model.family.name, look.found.place
            )

    def _beside(self, work: Callable[[], Look]) -> Awaitable[Look]:
        """In a daemon: an executor's threads would be waited for at the end of the process."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Look] = loop.create_future()

        def run() -> None:
            look = work()
            self._is_looking = False
            with suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(lambda: None if done.done() else done.set_result(look))

        self._is_looking = True
        threading.Thread(target=run, name=THREAD, daemon=True).start()
        return done
