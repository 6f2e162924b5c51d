"""Time that passes when a test says so."""

import asyncio
import heapq
from collections.abc import Callable
from itertools import count

import pytest


class FakeTimer:
    def __init__(self, due: float, callback: Callable[[], None]):
        self.due = due
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class FakeClock:
    """A clock that moves when told, and fires the timers on its way."""

    def __init__(self):
        self.now = 100.0
        self._timers: list[tuple[float, int, FakeTimer]] = []
        self._number = count()

    def __call__(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], None]) -> FakeTimer:
        timer = FakeTimer(self.now + delay, callback)
        heapq.heappush(self._timers, (timer.due, next(self._number), timer))
        return timer

    @property
    def pending(self) -> list[float]:
        return sorted(due for due, _, timer in self._timers if not timer.is_cancelled)

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while self._timers and self._timers[0][0] <= end:
            due, _, timer = heapq.heappop(self._timers)
            self.now = max(self.now, due)
            if not timer.is_cancelled:
                timer.callback()
        self.now = end


class StoppedTime:
    """The running loop's own time, which passes only when a test says so; what is then due happens at the loop's next
    turn. It is for tests that wait for events alone: `asyncio.sleep` waits for ever.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loop = asyncio.get_running_loop()
        self.now = loop.time()
        monkeypatch.setattr(loop, "time", lambda: self.now)

    def advance(self, seconds: float) -> None:
        self.now += seconds

    async def passes(self, seconds: float) -> None:
        """And what is then due has happened."""
        self.advance(seconds)
        for _ in range(3):
            await asyncio.sleep(0)
