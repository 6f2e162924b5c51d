"""Time that passes when a test says so."""

import heapq
from collections.abc import Callable
from itertools import count


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
