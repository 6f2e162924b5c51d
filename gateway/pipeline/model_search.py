"""Looks for the own files of the models that a server lists, beside all else: nothing waits for it.

Discs and the hub may hang, so each look is in a thread that keeps nobody from ending, and is given up after a time.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from gateway.domain.quoting import quoted
from gateway.models.identity import FoundFiles
from gateway.models.places import Look, Places
from gateway.models.served import ModelTable, Wanted
from gateway.upstream.state import UpstreamModel, UpstreamState

_log = logging.getLogger(__name__)

THREAD = "model files"
_LOOK_SECONDS = 60.0
_AGAIN_SECONDS = (30.0, 300.0)
"""After which a hub that could not be reached is asked again; then not before the server's list changes."""
_FRESH_SECONDS = 3600.0
"""For which files that were found, or that were said not to be there, are not looked for again; but for a model that
was gone from the list meanwhile.
"""
_MOST_MODELS = 64


class Answered(NamedTuple):
    """What was found of a model, if there is anything, and until when nobody asks again, on the search's clock."""

    found: FoundFiles | None
    until: float


class ModelSearch:
    """An observer of the poller, told behind the one that fills `table`. Whenever the list changes it looks for what is
    new in it, and for what was looked at long ago.
    """

    def __init__(
        self,
        table: ModelTable,
        places: Places,
        *,
        log_prefix: str = "",
        look_seconds: float = _LOOK_SECONDS,
        again_seconds: Sequence[float] = _AGAIN_SECONDS,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._table = table
        self._places = places
        self._prefix = log_prefix
        self._look_seconds = look_seconds
        self._again_seconds = again_seconds
        self._now = now
        self._answered: dict[Wanted, Answered] = {}
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
            try:
                await self._answer()
            except Exception:  # noqa: BLE001  whatever a list or its files hold, it must not end the looking
                _log.exception("%slooking for files of models failed; it goes on when the list changes", self._prefix)

    async def _answer(self) -> None:
        """What is asked by the present list, until all of it is answered or there is another list."""
        open_questions = await self._search(self._due(self._table.wanted()))
        for seconds in self._again_seconds:
            if not open_questions or await self._has_changed_within(seconds):
                break
            open_questions = await self._search(open_questions)

    def _due(self, wanted: Sequence[Wanted]) -> list[Wanted]:
        """Those to look for. What was found of the others is handed over again, for the table forgets the files of a
        model that is listed anew.
        """
        now = self._now()
        self._answered = {each: known for each in wanted if (known := self._answered.get(each)) and now < known.until}
        for each, known in self._answered.items():
            if known.found is not None:
                self._take(each, known.found)
        return [each for each in wanted if each not in self._answered]

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
            if look.is_worth_another:
                open_questions.append(each)
            elif not self._is_looking:
                self._answered[each] = Answered(look.found, self._now() + _FRESH_SECONDS)
            if look.found is not None:
                self._take(each, look.found)
        return open_questions

    async def _look(self, wanted: Wanted) -> Look:
        try:
            # Not wait_for, which in Python 3.11 loses a cancellation that comes together with the result.
            async with asyncio.timeout(self._look_seconds):
                return await self._beside(lambda: self._places.look(*wanted))
        except TimeoutError:
            return Look(troubles=(f"not found within {self._look_seconds:g} s: a disc or the hub hangs",))

    def _take(self, wanted: Wanted, found: FoundFiles) -> None:
        before = self._table.served(wanted.name)
        try:
            self._table.found(wanted, found)
        except Exception:  # noqa: BLE001  nobody here wrote these files, and there are other models
            _log.exception("%smodel %r: its files cannot be used", self._prefix, wanted.name)
            return
        model = self._table.served(wanted.name)
        if model is not before:
            _log.info("%smodel %r: %s by its own files (%s)", self._prefix, wanted.name, model.family.name, found.place)

    def _beside(self, work: Callable[[], Look]) -> Awaitable[Look]:
        """In a daemon: an executor's threads would be waited for at the end of the process."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Look] = loop.create_future()

        def run() -> None:
            try:
                look = work()
            except Exception as error:  # noqa: BLE001  without an answer nothing would be looked for any more
                look = Look(troubles=(f"cannot be looked for: {quoted(error)}",))
            finally:
                self._is_looking = False
            with suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(lambda: None if done.done() else done.set_result(look))

        self._is_looking = True
        threading.Thread(target=run, name=THREAD, daemon=True).start()
        return done
