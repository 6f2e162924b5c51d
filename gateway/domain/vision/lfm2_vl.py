"""LFM2-VL: one image of 64 to 256 tokens, and tiles of 512 pixels under a thumbnail where it is much larger.

The one image is resized as Qwen2-VL does it (qwen_vl.py), with at least one unit a side and no limit of the ratio. A
large one takes InternVL's closest grid of 2 to 10 tiles, each after a tag, and that one image as its thumbnail.
Source: LFM2 (arXiv:2511.23404); transformers 5.19 `lfm2_vl`, vLLM 0.32 `lfm2_vl.py`, which counts the thumbnail even
where `use_thumbnail` is false.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from gateway.domain.geometry import Size
from gateway.domain.vision.base import MOST_PIXELS, ImageTokens, refuse_empty
from gateway.domain.vision.fitting import Fitted, stretched
from gateway.domain.vision.grids import Grid, closest_grid, grids_of
from gateway.domain.vision.sources import MOST_TILES, Sources

_TAGS = 2


@dataclass(frozen=True, slots=True)
class Lfm2VL(Fitted):
    """`patch` and `tile` are sides in pixels, `merge` patches along a side become one token.

    An image of more than `tolerance` times what `most_tokens` are worth is large. One tile at most: nothing is.
    """

    name: str
    patch: int
    merge: int
    tile: int
    least_tokens: int
    most_tokens: int
    least_tiles: int
    most_tiles: int
    tolerance: float

    @property
    def max_image_tokens(self) -> int:
        """Of the longest strip there can be: its side of one unit keeps the other one from being shrunk enough."""
        strip = math.isqrt(MOST_PIXELS * self.most_tokens) + 1
        tiled = self.most_tiles * (1 + self._tile_tokens) + 1 if self._tiles else 0
        return _TAGS + tiled + max(strip, self.most_tokens)

    def tokens(self, size: Size) -> ImageTokens:
        refuse_empty(size)
        single, was_shrunk = self._resized(size)
        soft = single.pixels // self.step**2
        if not (self._tiles and self._is_large(size)):
            return ImageTokens(soft + _TAGS, 0, soft, single, was_shrunk)
        columns, rows = closest_grid(size, self._tiles, self.tile)
        tiles = columns * rows
        soft += tiles * self._tile_tokens
        model_size = Size(columns * self.tile, rows * self.tile)
        return ImageTokens(soft + tiles + 1 + _TAGS, 0, soft, model_size)

    def shapes(self, size: Size, /) -> Iterator[Size]:
        for grid in self._tiles:
            # Below the tolerance even a shape that fills its tiles is no large image.
            least = math.isqrt(self._most_alone // (grid[0] * grid[1])) + self.step
            yield from (each for tile in (self.tile, least) if (each := stretched(size, grid, tile)))

    @property
    def step(self) -> int:
        return self.patch * self.merge

    @property
    def _tiles(self) -> tuple[Grid, ...]:
        return grids_of(self.least_tiles, self.most_tiles) if self.most_tiles > 1 else ()

    @property
    def _tile_tokens(self) -> int:
        return (-(-(self.tile // self.patch) // self.merge)) ** 2

    @property
    def _most_alone(self) -> int:
        """Pixels of the largest image that is not cut up."""
        return int(self.most_tokens * self.step**2 * self.tolerance)

    def _is_large(self, size: Size) -> bool:
        """The least side is a patch here, not a unit."""
        width, height = (max(self.patch, round(s / self.step) * self.step) for s in (size.width, size.height))
        return width * height > self._most_alone

    def _resized(self, size: Size) -> tuple[Size, bool]:
        """Of the one image, and whether its maximum acted."""
        unit = self.step
        least, most = self.least_tokens * unit**2, self.most_tokens * unit**2
        width, height = (max(unit, round(side / unit) * unit) for side in (size.width, size.height))
        if width * height > most:
            divisor = math.sqrt(size.pixels / most)
            sides = (max(unit, math.floor(side / divisor / unit) * unit) for side in (size.width, size.height))
            return Size(*sides), True
        if width * height < least:
            factor = math.sqrt(least / size.pixels)
            return Size(*(math.ceil(side * factor / unit) * unit for side in (size.width, size.height))), False
        return Size(width, height), False


def from_sources(name: str, read: Sources) -> Lfm2VL:
    splits = read.flag("do_image_splitting", default=True)
    return Lfm2VL(
        name,
        patch=read.whole("encoder_patch_size", "vision_config.patch_size", default=16),
        merge=read.whole("downsample_factor", default=2),
        tile=read.whole("tile_size", default=512),
        least_tokens=read.whole("min_image_tokens", default=64),
        most_tokens=read.whole("max_image_tokens", default=256),
        least_tiles=read.whole("min_tiles", default=2, most=MOST_TILES),
        most_tiles=read.whole("max_tiles", default=10, most=MOST_TILES) if splits else 1,
        tolerance=read.real("max_pixels_tolerance", default=2.0),
    )
