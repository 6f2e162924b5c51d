"""InternVL 2, 2.5, 3 and 3.5, InternS1 and the `-hf` checkpoints: a grid of square tiles of about the image's shape.

The image is stretched to the grid of 1 to 12 tiles that is closest to it (grids.py), cut up, and followed by a
thumbnail of the whole where there is more than one tile. Each tile becomes 256 embeddings; `<img>` and `</img>` stand
around all of them inside the replacement.
Source: InternVL 1.5 (arXiv:2404.16821, dynamic high resolution); vLLM 0.32 `processors/internvl.py`, `interns1.py`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from gateway.domain.geometry import Size
from gateway.domain.vision.base import ImageTokens, refuse_empty
from gateway.domain.vision.fitting import Fitted, is_capped, stretched
from gateway.domain.vision.grids import Grid, closest_grid, grids_of
from gateway.domain.vision.sources import MOST_TILES, Sources

TAGS = 2
"""Start and end of the image."""


@dataclass(frozen=True, slots=True)
class InternVL(Fitted):
    """`tile` is its side in pixels, `tile_tokens` what one becomes."""

    name: str
    tile: int
    tile_tokens: int
    least_tiles: int
    most_tiles: int
    has_thumbnail: bool

    @property
    def max_image_tokens(self) -> int:
        return self.tile_tokens * self._with_thumbnail(self.most_tiles) + TAGS

    def tokens(self, size: Size) -> ImageTokens:
        refuse_empty(size)
        columns, rows = self.grid(size)
        encoder = self.tile_tokens * self._with_thumbnail(columns * rows)
        model_size = Size(columns * self.tile, rows * self.tile)
        return ImageTokens(encoder + TAGS, self.markers, encoder, model_size, is_capped(size, model_size))

    def grid(self, size: Size) -> Grid:
        return closest_grid(size, self._grids, self.tile)

    def shapes(self, size: Size, /) -> Iterator[Size]:
        return (each for grid in self._grids if (each := stretched(size, grid, self.tile)))

    def _with_thumbnail(self, tiles: int) -> int:
        return tiles + (self.has_thumbnail and tiles > 1)

    @property
    def _grids(self) -> tuple[Grid, ...]:
        return grids_of(self.least_tiles, self.most_tiles)


def from_sources(name: str, read: Sources) -> InternVL:
    """Keys of config.json. Left out, they are those of the checkpoints' own configuration class: one tile, no more."""
    tile, patch, ratio = tile_of(read)
    least, most, has_thumbnail = tiles_of(read)
    return InternVL(name, tile, tokens_of(tile, patch, ratio), least, most, has_thumbnail)


def from_hf_sources(name: str, read: Sources) -> InternVL:
    """Keys of the `-hf` checkpoints' processor. `crop_to_patches` is false in their files, and cropped they are."""
    tile = read.side("size", "crop_size", default=384)
    least, most = (
        read.whole("min_patches", default=1, most=MOST_TILES),
        read.whole("max_patches", default=12, most=MOST_TILES),
    )
    return InternVL(name, tile, read.whole("image_seq_length", default=256), least, most, has_thumbnail=True)


def tile_of(read: Sources) -> tuple[int, int, float]:
    """Side of a tile, side of a patch, and by how much a side shrinks before the language model."""
    tile = read.side("force_image_size", "vision_config.image_size", "image_size", default=448)
    patch = read.side("vision_config.patch_size", "patch_size", default=14)
    return tile, patch, read.real("downsample_ratio", default=0.5)


def tokens_of(tile: int, patch: int, downsample_ratio: float) -> int:
    return int((tile // patch) ** 2 * downsample_ratio**2)


def tiles_of(read: Sources) -> tuple[int, int, bool]:
    """Least and most tiles, and whether there is a thumbnail."""
    is_dynamic = read.flag("dynamic_image_size", default=False)
    has_thumbnail = read.flag("use_thumbnail", default=False)
    least, most = (
        read.whole("min_dynamic_patch", default=1, most=MOST_TILES),
        read.whole("max_dynamic_patch", default=6, most=MOST_TILES),
    )
    return (least, most, has_thumbnail) if is_dynamic else (1, 1, has_thumbnail)
