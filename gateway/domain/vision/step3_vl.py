"""Step3-VL: a view of the whole, and square windows over an image that is large or long.

A long sliver is first padded to a square, what is longer than 3024 pixels shrunk. Below 728 pixels only a long image
has windows, of its shorter side; above, they have 504 pixels, or the shorter side of a very long one. Sides are brought
to whole windows, up from a rest of a fifth on. Each part has a start and an end, rows of windows a newline between.
Source: Step3 (arXiv:2507.19427); vLLM 0.32 `processors/step3_vl.py`, whose constants no configuration changes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from gateway.domain.geometry import Size
from gateway.domain.vision.base import ImageTokens, UnservableImageError, refuse_empty
from gateway.domain.vision.fitting import Fitted, inside, stretched
from gateway.domain.vision.grids import Grid
from gateway.domain.vision.sources import Sources

_LONGEST = 3024
_VIEW = 728
_WINDOW = 504
_VIEW_TOKENS = 169
_WINDOW_TOKENS = 81
_TAGS = 2
_SLIVER_SIDE, _SLIVER_RATIO = 32, 4
_LONG_RATIO = 1.5
_VERY_LONG_RATIO = 4
_REMAINDER = 0.2


@dataclass(frozen=True, slots=True)
class Step3VL(Fitted):
    """Without `windows` there is the view of the whole alone."""

    name: str
    windows: bool

    @property
    def max_image_tokens(self) -> int:
        """Of a long strip that is shrunk to a width of one pixel: windows are as wide as it is."""
        return _count(1, _LONGEST) if self.windows else _count(0, 0)

    def tokens(self, size: Size) -> ImageTokens:
        refuse_empty(size)
        prepared = _prepared(size)
        columns, rows = self._grid(prepared) if self.windows else (0, 0)
        encoder = _VIEW_TOKENS + columns * rows * _WINDOW_TOKENS
        seen = inside(size, Size(_LONGEST, _LONGEST)) if max(size.width, size.height) > _LONGEST else size
        return ImageTokens(_count(columns, rows), 0, encoder, seen)

    def shapes(self, size: Size, /) -> Iterator[Size]:
        yield inside(size, Size(_VIEW - 1, _VIEW - 1))
        sliver = _SLIVER_SIDE - 1
        yield inside(size, Size(sliver, _VIEW) if size.width < size.height else Size(_VIEW, sliver))
        width, height = min(size.width, _VIEW - 1), min(size.height, _VIEW - 1)
        yield Size(min(width, int(height * _LONG_RATIO)), min(height, int(width * _LONG_RATIO)))
        sides = range(1, _LONGEST // _WINDOW + 1)
        for columns, rows in product(sides, sides):
            yield inside(size, Size(_up_to(columns), _up_to(rows)))
            if each := stretched(size, (columns, rows), _WINDOW):
                yield each

    @staticmethod
    def _grid(size: Size) -> Grid:
        long, short = max(size.width, size.height), min(size.width, size.height)
        ratio = long / short
        if long < _VIEW:
            window = short if ratio > _LONG_RATIO else 0
        else:
            window = min(short, _WINDOW) if ratio > _VERY_LONG_RATIO else _WINDOW
        return (_windows(size.width, window), _windows(size.height, window)) if window else (0, 0)


def _prepared(size: Size) -> Size:
    ratio, longest = size.width / size.height, max(size.width, size.height)
    if min(size.width, size.height) < _SLIVER_SIDE and not 1 / _SLIVER_RATIO <= ratio <= _SLIVER_RATIO:
        size = Size(longest, longest)
    if longest <= _LONGEST:
        return size
    scale = _LONGEST / longest
    shrunk = Size(int(size.width * scale), int(size.height * scale))
    if not shrunk.pixels:
        raise UnservableImageError(f"the image is too long: shrunk to {_LONGEST} pixels, a side vanishes")
    return shrunk


def _windows(side: int, window: int) -> int:
    """How many lie along a side; what is left over takes one more from a fifth of a window on."""
    whole, rest = side // window, side / window - side // window
    return max(1, whole + (rest > _REMAINDER))


def _up_to(windows: int) -> int:
    """The longest side that so many windows lie along."""
    return int((windows + _REMAINDER) * _WINDOW)


def _count(columns: int, rows: int) -> int:
    windows = columns * rows * (_WINDOW_TOKENS + _TAGS)
    return _VIEW_TOKENS + _TAGS + windows + max(0, rows - 1)


def from_sources(name: str, read: Sources) -> Step3VL:
    return Step3VL(name, read.flag("enable_patch", default=True))
