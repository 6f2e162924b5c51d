"""Molmo: a low-resolution view, and overlapping crops of a larger one as one joint grid of features.

Margins around the image are no part of what the windows must cover, so an image smaller than them counts as negative.
Both parts have a start, an end and a token after each row. Two by two patches are pooled into one feature.
Source: Molmo (arXiv:2409.17146); vLLM 0.32 `molmo.py`, which divides in single precision.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from gateway.domain.geometry import Size
from gateway.domain.vision.base import ImageTokens, refuse_empty
from gateway.domain.vision.fitting import Fitted, inside
from gateway.domain.vision.grids import Grid, covering_grid, grids_of, in_single_precision
from gateway.domain.vision.sources import MOST_TILES, Sources

_POOL = 2
_TAGS = 2


@dataclass(frozen=True, slots=True)
class Molmo(Fitted):
    """`patch` is its side in pixels; `window` and `margins` (both sides' together) are in patches; `view` is the side
    of the low-resolution view in features.
    """

    name: str
    patch: int
    window: int
    margins: int
    view: int
    most_crops: int

    @property
    def max_image_tokens(self) -> int:
        return max(sum(self._count(grid)) for grid in self._grids)

    def tokens(self, size: Size) -> ImageTokens:
        refuse_empty(size)
        margin = self.margins * self.patch
        covered = Size(size.width - margin, size.height - margin)
        grid = covering_grid(covered, self._grids, self.window * self.patch, in_single_precision)
        encoder, structure = self._count(grid)
        scaled = inside(size, self._canvas(grid))
        return ImageTokens(encoder + structure, 0, encoder, scaled)

    def shapes(self, size: Size, /) -> Iterator[Size]:
        return (inside(size, self._canvas(grid)) for grid in self._grids)

    @property
    def _grids(self) -> tuple[Grid, ...]:
        """Equals are decided for the grid of fewer rows, then of fewer columns."""
        return tuple((columns, rows) for rows, columns in grids_of(1, self.most_crops))

    def _canvas(self, grid: Grid) -> Size:
        columns, rows = (self.patch * (self.window * windows + self.margins) for windows in grid)
        return Size(columns, rows)

    def _count(self, grid: Grid) -> tuple[int, int]:
        """Features, and the tokens around them."""
        columns, rows = ((self.window * windows + self.margins + 1) // _POOL for windows in grid)
        return self.view**2 + columns * rows, self.view + _TAGS + rows + _TAGS


def from_sources(name: str, read: Sources) -> Molmo:
    patch = read.side("image_patch_size", default=14)
    margins = sum(read.pair("overlap_margins", default=(4, 4)))
    crop = read.pair("base_image_input_size", default=(336, 336))[0] // patch
    view = read.whole("image_token_length_w", default=-(-crop // _POOL))
    return Molmo(name, patch, crop - margins, margins, view, read.whole("max_crops", default=12, most=MOST_TILES))
