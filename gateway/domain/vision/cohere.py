"""Command A Vision (`cohere2_vision`) and Aya Vision: square tiles, and a thumbnail where there is more than one.

Command A chooses the grid that covers the image with the least enlargement, Aya InternVL's closest one. Command A ends
each tile with a line break; Aya names each tile in words, of which its processor counts one token.
Source: transformers 5.19 `cohere2_vision`, `aya_vision`, `got_ocr2`; vLLM 0.32 `cohere2_vision.py`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from gateway.domain.geometry import Size
from gateway.domain.vision.base import BoundedTokens, ImageTokens, refuse_empty
from gateway.domain.vision.fitting import Fitted, inside, is_capped, stretched
from gateway.domain.vision.grids import Grid, closest_grid, covering_grid, grids_of
from gateway.domain.vision.sources import MOST_TILES, Sources


@dataclass(frozen=True, slots=True)
class Cohere(Fitted):
    """`tile` is its side in pixels, `tile_tokens` what one becomes, with one more for each; `tags` stand around all.

    `name_tokens` is the most that a tile's name can cost beyond what is counted.
    """

    name: str
    tile: int
    tile_tokens: int
    least_tiles: int
    most_tiles: int
    tags: int
    choose: Callable[[Size, Sequence[Grid], int], Grid]
    name_tokens: int = 0

    @property
    def markers(self) -> int:
        return self.name_tokens * (self.most_tiles + 1)

    @property
    def max_image_tokens(self) -> int:
        return self._tiles(self.most_tiles) * (self.tile_tokens + 1) + self.tags

    def tokens(self, size: Size) -> ImageTokens:
        refuse_empty(size)
        columns, rows = self.choose(size, self._grids, self.tile)
        tiles = self._tiles(columns * rows)
        names = self.name_tokens * tiles
        model_size = Size(columns * self.tile, rows * self.tile)
        return BoundedTokens(
            tiles * (self.tile_tokens + 1) + self.tags,
            names,
            tiles * self.tile_tokens,
            model_size,
            is_capped(size, model_size),
            uncertain=names,
        )

    def shapes(self, size: Size, /) -> Iterator[Size]:
        """The image's own shape in each canvas, where its size decides, and each canvas's shape, where shape does."""
        for columns, rows in self._grids:
            yield inside(size, Size(columns * self.tile, rows * self.tile))
            if each := stretched(size, (columns, rows), self.tile):
                yield each

    @property
    def _grids(self) -> tuple[Grid, ...]:
        return grids_of(self.least_tiles, self.most_tiles)

    @staticmethod
    def _tiles(tiles: int) -> int:
        return tiles + (tiles > 1)


def cohere2_vision(name: str, read: Sources) -> Cohere:
    tile, most = read.side("size", default=512), read.whole("max_patches", default=12, most=MOST_TILES)
    patch, merge = (
        read.side("patch_size", "vision_config.patch_size", default=16),
        read.whole("downsample_factor", default=2),
    )
    return Cohere(name, tile, (tile // patch // merge) ** 2, 1, most, tags=2, choose=covering_grid)


def aya_vision(name: str, read: Sources) -> Cohere:
    """`TILE_n` is at least the one token that is counted, and at most one a byte."""
    tile, most = read.side("img_size", "size", default=364), read.whole("max_patches", default=12, most=MOST_TILES)
    patch, merge = (
        read.side("patch_size", "vision_config.patch_size", default=14),
        read.whole("downsample_factor", default=2),
    )
    least, longest_name = read.whole("min_patches", default=1, most=MOST_TILES), len("TILE_GLOBAL")
    return Cohere(name, tile, (tile // patch // merge) ** 2, least, most, 2, closest_grid, longest_name - 1)
