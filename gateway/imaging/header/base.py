"""What every header parser returns, how much work it may do, and the three ways in which it can fail."""

from dataclasses import dataclass

from gateway.domain.geometry import Size
from gateway.domain.image import ImageFormat, Why


class ShortHeaderError(Exception):
    """The header goes on behind the bytes at hand: `needed_bytes` from the start of the file would help."""

    def __init__(self, needed_bytes: int) -> None:
        super().__init__(f"the header needs {needed_bytes} bytes")
        self.needed_bytes = needed_bytes


class BrokenHeaderError(ValueError):
    """The header contradicts its format; the text says how, for the client."""


class TooManyStepsError(Exception):
    """The header has more segments, chunks or blocks than its reader was allowed to look at."""


class Steps:
    """What one reading of a header may cost: each segment, chunk or block takes a step of about a microsecond.

    Bytes alone do not bound it: a file may be made of segments of two bytes.
    """

    INLINE = 1000  # at most 2 ms on the event loop
    ALL = 16_384  # more than any true file has; the rest of the work grows with the bytes alone
    PILLOW = 1001  # what Pillow reads may take milliseconds: never on the event loop

    __slots__ = ("_left",)

    def __init__(self, allowed: int = ALL) -> None:
        self._left = allowed

    def take(self, count: int = 1) -> None:
        """Raises TooManyStepsError when none are left."""
        self._left -= count
        if self._left < 0:
            raise TooManyStepsError


@dataclass(frozen=True, slots=True)
class Header:
    """A header as it stands. `stored` is the size before orientation (1..8, 1 where there is none).

    `frames` is exact where the header shows it and otherwise 2 for "more than one". `why` leaves out orientation.
    `is_progressive`: a decoder keeps the coefficients of every stored pixel, at whatever scale it decodes.
    `extra_bytes`: memory that decoding takes beside what each pixel of the format takes.
    """

    format: ImageFormat
    stored: Size
    is_lossy: bool
    orientation: int = 1
    frames: int = 1
    why: frozenset[Why] = frozenset()
    is_progressive: bool = False
    extra_bytes: int = 0


def need(data: bytes, end: int) -> None:
    """Raises ShortHeaderError unless the first `end` bytes of the file are at hand."""
    if len(data) < end:
        raise ShortHeaderError(end)
