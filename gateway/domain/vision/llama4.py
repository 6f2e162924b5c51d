"""Llama 4, and Llama 3.2 Vision of old vLLM: the canvas of tiles that covers the image with the least enlargement.

The image keeps its shape inside the canvas. Llama 4 marks the end of each tile of a row but the last, and of each row,
and adds a tile of the whole where there is more than one. Llama 3.2 has one token in the prompt, whatever its encoder
makes of the tiles (cross-attention).
Source: transformers 5.19 `llama4` (which divides in single precision), `mllama`; vLLM 0.32 `mllama4.py`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from gateway.domain.geometry import Size
from gateway.domain.vision.base import ImageTokens, refuse_empty
from gateway.domain.vision.fitting import Fitted, inside, is_capped
from gateway.domain.vision.grids import Grid, covering_grid, grids_of, in_single_precision
from gateway.domain.vision.sources import MOST_TILES, Sources

_TAGS = 3
"""Start and end, and the token that stands for the image before its tile of the whole."""


@dataclass(frozen=True, slots=True)
class Llama4(Fitted):
    """`tile` is its side in pixels, `tile_tokens` what one becomes. `fills` enlarges an image as far as it can be."""

    name: str
    tile: int
    tile_tokens: int
    most_tiles: int
    fills: bool = False

    @property
    def max_image_tokens(self) -> int:
        return self._count(self.most_tiles)[0]

    def tokens(self, size: Size) -> ImageTokens:
        refuse_empty(size)
        grid = covering_grid(size, self._grids, self.tile, in_single_precision, largest=self.fills)
        placeholder, encoder = self._count(grid[0] * grid[1])
        scaled = inside(size, _canvas(grid, self.tile))
        return ImageTokens(placeholder, 0, encoder, scaled, is_capped(size, scaled))

    def shapes(self, size: Size, /) -> Iterator[Size]:
        return (inside(size, _canvas(grid, self.tile)) for grid in self._grids)

    @property
    def _grids(self) -> tuple[Grid, ...]:
        return grids_of(1, self.most_tiles)

    def _count(self, tiles: int) -> tuple[int, int]:
        """In the prompt, and for the encoder. Separators, of columns or rows, come one a tile."""
        if tiles == 1:
            return self.tile_tokens + _TAGS, self.tile_tokens
        encoder = self.tile_tokens * (tiles + 1)
        return encoder + tiles + _TAGS, encoder


@dataclass(frozen=True, slots=True)
class Mllama(Fitted):
    """`tile_tokens` are the encoder's: all patches and the class token. There is nothing to save in the prompt."""

    name: str
    tile: int
    tile_tokens: int
    most_tiles: int

    @property
    def max_image_tokens(self) -> int:
        return 1

    def tokens(self, size: Size) -> ImageTokens:
        refuse_empty(size)
        grid = covering_grid(size, grids_of(1, self.most_tiles), self.tile)
        scaled = inside(size, _canvas(grid, self.tile))
        return ImageTokens(1, 0, grid[0] * grid[1] * self.tile_tokens, scaled, is_capped(size, scaled))


def _canvas(grid: Grid, tile: int) -> Size:
    return Size(grid[0] * tile, grid[1] * tile)


def llama4(name: str, read: Sources) -> Llama4:
    tile = read.side("vision_config.image_size", "size", "image_size", default=336)
    patch = read.side("vision_config.patch_size", "patch_size", default=14)
    ratio = read.real("vision_config.pixel_shuffle_ratio", "pixel_shuffle_ratio", default=0.5)
    tokens = int((tile // patch) ** 2 * ratio**2)
    fills = read.flag("resize_to_max_canvas", default=False)
    return Llama4(name, tile, tokens, read.whole("max_patches", default=16, most=MOST_TILES), fills)


def mllama(name: str, read: Sources) -> Mllama:
    tile = read.side("size", "vision_config.image_size", "tile_size", default=560)
    patch = read.side("vision_config.patch_size", "patch_size", default=14)
    return Mllama(name, tile, (tile // patch) ** 2 + 1, read.whole("max_image_tiles", default=4, most=MOST_TILES))
