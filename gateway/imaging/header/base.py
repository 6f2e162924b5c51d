"""What every header parser returns, and the two ways in which it can fail."""

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


@dataclass(frozen=True, slots=True)
class Header:
    """A header as it stands. `stored` is the size before orientation (1..8, 1 where there is none).

    `frames` is exact where the header shows it and otherwise 2 for "more than one". `why` leaves out orientation.
    `is_progressive`: a decoder keeps the coefficients of every stored pixel, at whatever scale it decodes.
    """

    format: ImageFormat
    stored: Size
    is_lossy: bool
    orientation: int = 1
    frames: int = 1
    why: frozenset[Why] = frozenset()
    is_progressive: bool = False


def need(data: bytes, end: int) -> None:
    """Raises ShortHeaderError unless the first `end` bytes of the file are at hand."""
    if len(data) < end:
        raise ShortHeaderError(end)
