"""Time that passes when a test says so."""

import asyncio

import pytest

from gateway.replay.virtual_time import VirtualTime


class FakeClock(VirtualTime):
    """A clock that moves when told, and fires the timers on its way."""

    def __init__(self):
        super().__init__(100.0)

    @property
    def pending(self) -> list[float]:
        return sorted(due for due, _, timer in self._timers if not timer.is_cancelled)

    def advance(self, seconds: float) -> None:
        self.run_until(self.now + seconds)


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
