"""A clock that stands still until it is told to go on, and the timers that go off on its way."""

import heapq
from collections.abc import Callable
from itertools import count


class VirtualTimer:
    __slots__ = ("callback", "is_cancelled")

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class VirtualTime:
    """Seconds. Timers that are due at the same time go off in the order in which they were set."""

    __slots__ = ("_number", "_timers", "now")

    def __init__(self, now: float) -> None:
        self.now = now
        self._timers: list[tuple[float, int, VirtualTimer]] = []
        self._number = count()

    def __call__(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], None]) -> VirtualTimer:
        timer = VirtualTimer(callback)
        heapq.heappush(self._timers, (self.now + delay, next(self._number), timer))
        return timer

    def run_until(self, end: float) -> None:
        """All that is due until then, `end` itself included."""
        timers = self._timers
        while timers and timers[0][0] <= end:
            due, _, timer = heapq.heappop(timers)
            if not timer.is_cancelled:
                self.now = max(self.now, due)
                timer.callback()
        self.now = max(self.now, end)

    def run_out(self) -> None:
        """Until no timer is left."""
        while self._timers:
            self.run_until(self._timers[0][0])
