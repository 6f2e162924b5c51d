"""Llama Nemotron Nano VL (v1): InternVL's tiles, with a score of its own for the grid.

The grid with the greatest min(share of the image that its area covers, 0.6) x likeness of shape wins, the first of
equals. Source: vLLM 0.32 `processors/nemotron_vl.py`; its shipped configuration was not seen.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from gateway.domain.geometry import Size
from gateway.domain.vision.base import ImageTokens, refuse_empty
from gateway.domain.vision.fitting import Fitted, is_capped, stretched
from gateway.domain.vision.grids import Grid, grids_of
from gateway.domain.vision.internvl import TAGS, tile_of, tiles_of, tokens_of
from gateway.domain.vision.sources import Sources

_ENOUGH_AREA = 0.6


@dataclass(frozen=True, slots=True)
class NemotronVL(Fitted):
    """`tile` is its side in pixels, `tile_tokens` what one becomes."""

    name: str
    tile: int
    tile_tokens: int
    least_tiles: int
    most_tiles: int
    has_thumbnail: bool

    @property
    def max_image_tokens(self) -> int:
        return self.tile_tokens * (self.most_tiles + self.has_thumbnail) + TAGS

    def tokens(self, size: Size) -> ImageTokens:
        refuse_empty(size)
        columns, rows = max(self._grids, key=lambda grid: self._score(size, grid))
        tiles = columns * rows
        encoder = self.tile_tokens * (tiles + (self.has_thumbnail and tiles > 1))
        model_size = Size(columns * self.tile, rows * self.tile)
        return ImageTokens(encoder + TAGS, self.markers, encoder, model_size, is_capped(size, model_size))

    def shapes(self, size: Size, /) -> Iterator[Size]:
        return (each for grid in self._grids if (each := stretched(size, grid, self.tile)))

    @property
    def _grids(self) -> tuple[Grid, ...]:
        return grids_of(self.least_tiles, self.most_tiles)

    def _score(self, size: Size, grid: Grid) -> float:
        columns, rows = grid
        ratio, of_grid = size.width / size.height, columns / rows
        area = min(columns * rows * self.tile * self.tile / size.pixels, _ENOUGH_AREA)
        return area * min(of_grid / ratio, ratio / of_grid)


def from_sources(name: str, read: Sources) -> NemotronVL:
    tile, patch, ratio = tile_of(read)
    least, most, has_thumbnail = tiles_of(read)
    return NemotronVL(name, tile, tokens_of(tile, patch, ratio), least, most, has_thumbnail)
