"""MiniCPM-V 2.5 to 4.5 and MiniCPM-o 2.6: a view of the whole, and slices of an image that is larger than that.

An image worth n views of 448 x 448 pixels, 9 at most, is cut into n slices, one more or one less, whichever grid has
the shape closest to the image's on a logarithmic scale. Every view costs the same, with a start and an end; rows end
with a newline, and the image's number stands before all.
Source: MiniCPM-V (arXiv:2408.01800); the checkpoints' `image_processing_minicpmv.py`, vLLM 0.32 `minicpmv.py`.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from gateway.domain.geometry import Size
from gateway.domain.vision.base import BoundedTokens, ImageTokens, refuse_empty
from gateway.domain.vision.fitting import Fitted, inside
from gateway.domain.vision.grids import Grid
from gateway.domain.vision.sources import MOST_TILES, Sources

TAGS = 2
"""Start and end of a view."""
ID_TAGS = 3
"""Start, a number of one digit, end."""
MORE_DIGITS = 2
"""Of the number from the tenth image on; vLLM takes 999 of them at most."""
_NEWLINE = 1
"""Of the template, after an image; not of all templates."""


@dataclass(frozen=True, slots=True)
class MiniCPMV(Fitted):
    """`scale` is the side of a view in pixels, `view_tokens` what one becomes."""

    name: str
    scale: int
    view_tokens: int
    most_slices: int
    numbers: bool

    @property
    def markers(self) -> int:
        return _NEWLINE + (MORE_DIGITS if self.numbers else 0)

    @property
    def max_image_tokens(self) -> int:
        return self._count(1, self.most_slices)[0]

    def tokens(self, size: Size) -> ImageTokens:
        refuse_empty(size)
        columns, rows = sliced_grid(size, self.scale, self.most_slices, prefers_rows=False)
        placeholder, encoder = self._count(columns, rows)
        seen = within_area(size, max(1, columns * rows) * self.scale**2)
        return BoundedTokens(placeholder, self.markers, encoder, seen, uncertain=self.markers)

    def shapes(self, size: Size, /) -> Iterator[Size]:
        return by_area(size, self.scale, self.most_slices)

    def _count(self, columns: int, rows: int) -> tuple[int, int]:
        """In the prompt, and for the encoder. No columns: there is the view of the whole alone."""
        views = 1 + columns * rows
        structure = views * TAGS + max(0, rows - 1) + (ID_TAGS if self.numbers else 0)
        return views * self.view_tokens + structure, views * self.view_tokens


def sliced_grid(size: Size, scale: int, most_slices: int, *, prefers_rows: bool) -> Grid:
    """Columns and rows of slices, (0, 0) where there are none. Of equals the first of fewest columns wins, or
    (`prefers_rows`) the one of most rows.

    Logarithms are the C library's: 2 x 3 and 3 x 2 are told apart for a square by their last bit.
    """
    worth = min(math.ceil(size.pixels / (scale * scale)), most_slices)
    if worth <= 1:
        return 0, 0
    shape = math.log(size.width / size.height)
    best, least_error = (1, 1), math.inf
    for slices in (worth - 1, worth, worth + 1):
        if slices == 1 or slices > most_slices:
            continue
        for columns, rows in _factors(slices, by_rows=prefers_rows):
            error = abs(shape - math.log(columns / rows))
            if error < least_error or (prefers_rows and error == least_error and rows > best[1]):
                best, least_error = (columns, rows), error
    return best


def by_area(size: Size, scale: int, most_slices: int) -> Iterator[Size]:
    """The image's own shape at each area from which it is worth one slice more."""
    for slices in range(1, most_slices + 1):
        yield within_area(size, slices * scale * scale)


def within_area(size: Size, pixels: int) -> Size:
    """The largest size of the image's own shape that has no more pixels, and is no larger."""
    if size.pixels <= pixels:
        return size
    width = max(1, math.isqrt(pixels * size.width // size.height))
    return inside(size, Size(width, max(1, pixels // width)))


def _factors(slices: int, *, by_rows: bool) -> Iterator[Grid]:
    for first in range(1, slices + 1):
        if slices % first == 0:
            yield (slices // first, first) if by_rows else (first, slices // first)


def from_sources(name: str, read: Sources) -> MiniCPMV:
    most = read.whole("max_slice_nums", "slice_config.max_slice_nums", default=9, most=MOST_TILES)
    return MiniCPMV(
        name,
        scale=read.whole("scale_resolution", "slice_config.scale_resolution", default=448),
        view_tokens=read.whole("image_feature_size", "query_num", default=64),
        most_slices=most if read.flag("slice_mode", default=True) else 1,
        numbers=read.flag("use_image_id", default=True),
    )
