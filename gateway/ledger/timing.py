"""The two things of an event loop's clock that are needed, handed in so that tests need no waiting."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


class Timer(Protocol):
    """What `loop.call_later` returns."""

    def cancel(self) -> None: ...


class CallLater(Protocol):
    """`loop.call_later`: the delay is in seconds."""

    def __call__(self, delay: float, callback: Callable[[], None], /) -> Timer: ...


@dataclass(frozen=True, slots=True)
class Timing:
    """A monotonic clock, in seconds, and the timers that go by it."""

    clock: Callable[[], float]
    call_later: CallLater
