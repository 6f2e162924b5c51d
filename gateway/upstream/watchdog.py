"""Deadlines of all requests to vLLM under way, at the price of one timer for all of them.

Whoever waits only writes down until when; the watchdog looks at everybody once a second. That is cheaper than a timer
per request (2 us) and far cheaper than one per piece of an answer, and a second late is early enough here.
It bites nobody who does not wait: a slow client is not vLLM's silence, and neither is a time in which this process
itself stood still.
"""

import asyncio
from dataclasses import dataclass
from math import inf
from typing import Protocol

_PAUSE_SECONDS = 1.0  # a look that is so late shows that this process stood still; a busy loop is late by less


@dataclass(frozen=True, slots=True)
class UpstreamTimeouts:
    """Seconds. `first_event` binds streams only: head and first piece together, because vLLM sends the head before
    it schedules the request. `gap` lies between two pieces, `whole` bounds the request from its beginning to its end.
    """

    connect_seconds: float = 5.0
    first_event_seconds: float = 120.0
    gap_seconds: float = 120.0
    whole_seconds: float = 600.0

    @property
    def look_seconds(self) -> float:
        """How often to look: each second, or often enough that no limit is overdrawn by more than a tenth."""
        return min(1.0, min(self.first_event_seconds, self.gap_seconds, self.whole_seconds) / 10)


class Deadline:
    """Until when one request may last, and until when its present wait may (for ever while nobody waits). It has begun
    once a piece of its answer has come, or where only the whole answer would come.
    """

    __slots__ = ("has_begun", "wait_until_seconds", "whole_until_seconds")

    def __init__(self, now_seconds: float, timeouts: UpstreamTimeouts, *, is_streaming: bool) -> None:
        self.whole_until_seconds = now_seconds + timeouts.whole_seconds
        self.wait_until_seconds = now_seconds + timeouts.first_event_seconds if is_streaming else inf
        self.has_begun = not is_streaming

    @property
    def is_mid_answer(self) -> bool:
        """The answer has begun, and more of it is waited for."""
        return self.has_begun and self.wait_until_seconds < inf

    def pardon(self, seconds: float) -> None:
        """For so long nothing could be read, whatever came."""
        self.wait_until_seconds += seconds
        self.whole_until_seconds += seconds

    def verdict(self, now_seconds: float) -> str | None:
        """What was overdrawn, in words for the client; None while all is well."""
        if now_seconds >= self.whole_until_seconds:
            return "the answer was not complete within the limit for whole answers"
        if now_seconds >= self.wait_until_seconds:
            return "nothing came within the limit for silence"
        return None


class Watched(Protocol):
    """What the watchdog looks after."""

    @property
    def deadline(self) -> Deadline: ...

    def time_out(self, verdict: str) -> None:
        """Ends what is overdue. Called at each look until it is forgotten, so that no connection made late escapes."""
        ...


class Watchdog:
    """Looks at the deadlines of those it watches, and only while there are any."""

    def __init__(self, loop: asyncio.AbstractEventLoop, look_seconds: float) -> None:
        self._loop = loop
        self._look_seconds = look_seconds
        self._watched: set[Watched] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._due_seconds = 0.0

    def watch(self, watched: Watched) -> None:
        self._watched.add(watched)
        if self._timer is None:
            self._look_later()

    def forget(self, watched: Watched) -> None:
        self._watched.discard(watched)

    def mid_answer(self) -> int:
        """How many wait for more of their answers."""
        return sum(watched.deadline.is_mid_answer for watched in self._watched)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        now_seconds = self._loop.time()
        late_seconds = now_seconds - self._due_seconds
        self._timer = None
        for watched in tuple(self._watched):
            if late_seconds > _PAUSE_SECONDS:
                watched.deadline.pardon(late_seconds)
            verdict = watched.deadline.verdict(now_seconds)
            if verdict is not None:
                watched.time_out(verdict)
        if self._watched:
            self._look_later()

    def _look_later(self) -> None:
        self._due_seconds = self._loop.time() + self._look_seconds
        self._timer = self._loop.call_later(self._look_seconds, self._look)
