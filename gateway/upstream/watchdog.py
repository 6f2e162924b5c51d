"""Deadlines of one request to vLLM, at the price of one timer per request instead of one per piece of the answer.

Whoever waits only writes down until when (`wait_until_seconds`); the timer looks at it when it rings and, as a rule,
winds itself up again. It cuts nothing while nobody waits: a slow client is not vLLM's silence.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True)
class UpstreamTimeouts:
    """Seconds. `first_event` binds streams only: head and first piece together, because vLLM sends the head before
    it schedules the request. `gap` lies between two pieces, `whole` bounds the request from connection to end.
    """

    connect_seconds: float = 5.0
    first_event_seconds: float = 120.0
    gap_seconds: float = 120.0
    whole_seconds: float = 600.0


class Watchdog:
    """Calls `cut` once when a deadline has passed, and then says in `verdict` which."""

    __slots__ = ("_cut", "_gap_seconds", "_loop", "_timer", "_whole_at", "verdict", "wait_until_seconds")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        timeouts: UpstreamTimeouts,
        *,
        is_streaming: bool,
        cut: Callable[[], None],
    ) -> None:
        now = loop.time()
        self._loop = loop
        self._cut = cut
        self._gap_seconds = timeouts.gap_seconds
        self._whole_at = now + timeouts.whole_seconds
        self.verdict: str | None = None
        self.wait_until_seconds = now + timeouts.first_event_seconds if is_streaming else inf
        self._timer = loop.call_at(min(self.wait_until_seconds, self._whole_at), self._ring)

    def stop(self) -> None:
        self._timer.cancel()

    def _ring(self) -> None:
        now = self._loop.time()
        if now >= self._whole_at:
            self._end("the answer was not complete within the limit for whole answers")
        elif now >= self.wait_until_seconds:
            self._end("nothing came within the limit for silence")
        else:
            # A wait that begins later cannot end before a whole gap from now, so looking then is soon enough.
            self._timer = self._loop.call_at(
                min(self.wait_until_seconds, self._whole_at, now + self._gap_seconds), self._ring
            )

    def _end(self, verdict: str) -> None:
        self.verdict = verdict
        self._cut()
