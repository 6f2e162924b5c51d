"""H2OVL Mississippi: InternVL's grid, and with `use_msac` a second one of at least three tiles over the first.

The second pass leaves out every grid whose columns or rows divide those of the first choice. It runs for a request of
exactly one image; with more of them, or where their number is not known, the single pass is the least there can be.
Source: H2OVL-Mississippi (arXiv:2410.13611, multi-scale adaptive cropping); vLLM 0.32 `processors/h2ovl.py`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from gateway.domain.geometry import Size
from gateway.domain.vision.base import BoundedTokens, ImageTokens, refuse_empty
from gateway.domain.vision.fitting import Fitted, stretched
from gateway.domain.vision.grids import Grid, closest_grid, grids_of
from gateway.domain.vision.internvl import TAGS, InternVL, tile_of, tiles_of, tokens_of
from gateway.domain.vision.sources import Sources

_SECOND_LEAST_TILES = 3


@dataclass(frozen=True, slots=True)
class H2ovl(Fitted):
    """`images` in the request, None where that is not known. Without `has_second_pass` it is InternVL's rule."""

    name: str
    first: InternVL
    has_second_pass: bool
    images: int | None = None

    @property
    def max_image_tokens(self) -> int:
        passes = 2 if self._may_pass_twice else 1
        return passes * (self.first.max_image_tokens - TAGS) + TAGS

    def tokens(self, size: Size) -> ImageTokens:
        refuse_empty(size)
        once = self.first.tokens(size)
        if not self._may_pass_twice:
            return once
        encoder = once.encoder + self._second(size, self.first.grid(size)) - self.first.tile_tokens
        uncertain = 0 if self.images == 1 else encoder - once.encoder
        return BoundedTokens(
            encoder + TAGS, 0, encoder, once.model_size, uncertain=uncertain, uncertain_encoder=uncertain
        )

    def shapes(self, size: Size, /) -> Iterator[Size]:
        grids = grids_of(1, self.first.most_tiles)
        return (each for grid in grids if (each := stretched(size, grid, self.first.tile)))

    @property
    def _may_pass_twice(self) -> bool:
        return self.has_second_pass and self.images in {None, 1}

    def _second(self, size: Size, chosen: Grid) -> int:
        """Embeddings of the second pass, a thumbnail among them."""
        grids = [
            (columns, rows)
            for columns, rows in grids_of(_SECOND_LEAST_TILES, self.first.most_tiles)
            if chosen[0] % columns and chosen[1] % rows
        ]
        columns, rows = closest_grid(size, grids, self.first.tile) if grids else (1, 1)
        tiles = columns * rows
        return self.first.tile_tokens * (tiles + (self.first.has_thumbnail and tiles > 1))


def from_sources(name: str, read: Sources) -> H2ovl:
    tile, patch, ratio = tile_of(read)
    least, most, has_thumbnail = tiles_of(read)
    first = InternVL(name, tile, tokens_of(tile, patch, ratio), least, most, has_thumbnail)
    images = read.whole_or_none("images_in_request")
    return H2ovl(name, first, read.flag("use_msac", default=False), images)
