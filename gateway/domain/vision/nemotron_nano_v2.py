"""Nemotron Nano V2 VL: InternVL's grid of 512-pixel tiles, or patches at the image's own size.

In the second, dynamic mode the whole request decides: patches of all images share what the context leaves beside the
text. One image in a request of known text is exact. Else there are bounds: the room that it has is never below
`min_num_patches` and never above `max_num_patches`. Sides are brought to even numbers of patches; four are one
embedding.
Source: Nemotron Nano V2 VL (arXiv:2511.03929); vLLM 0.32 `processors/nano_nemotron_vl.py`. A shipped configuration was
not seen.
"""

import math
from dataclasses import dataclass

from gateway.domain.geometry import Size
from gateway.domain.vision.base import MOST_PIXELS, BoundedTokens, ImageTokens, refuse_empty
from gateway.domain.vision.fitting import Fitted
from gateway.domain.vision.grids import Grid
from gateway.domain.vision.internvl import TAGS, InternVL, tokens_of
from gateway.domain.vision.sources import MOST_TILES, Sources

_POOLED = 4
_RESERVED_TOKENS = 4
"""Of the context, beside the text."""


@dataclass(frozen=True, slots=True)
class DynamicNemotron(Fitted):
    """`patch` is its side in pixels. `context` and `text` are in tokens, None where not known."""

    name: str
    patch: int
    least_patches: int
    most_patches: int
    context: int | None = None
    text: int | None = None

    @property
    def max_image_tokens(self) -> int:
        """An upper bound: long strips are rounded up to two rows."""
        room = self._most_room
        return 2 * room // _POOLED + 2 * self.least_patches + TAGS

    def tokens(self, size: Size) -> ImageTokens:
        refuse_empty(size)
        if self.text is not None and self.context is not None:
            columns, rows = self._grid(size, self._room(self.context, self.text))
            count = self._embeddings((columns, rows))
            model_size = Size(columns * self.patch, rows * self.patch)
            return ImageTokens(count + TAGS, 0, count, model_size if model_size.pixels else size)
        least, most = self._bounds(size)
        uncertain = most - least
        return BoundedTokens(most + TAGS, 0, most, size, uncertain=uncertain, uncertain_encoder=uncertain)

    @property
    def step(self) -> int:
        return 2 * self.patch

    def _room(self, context: int, text: int) -> int:
        """Patches that the one image of a request may have."""
        left = max(_POOLED * (context - text - _RESERVED_TOKENS), self.least_patches)
        return max(min(left, self.most_patches), self.least_patches)

    @property
    def _most_room(self) -> int:
        return max(self.most_patches, self.least_patches) if self.context is None else self._room(self.context, 0)

    def _own(self, size: Size) -> Grid:
        """Patches along the sides of the image as it is: halves rounded to even once half a patch is added."""
        return round(size.width / self.patch + 0.5), round(size.height / self.patch + 0.5)

    def _grid(self, size: Size, room: int) -> Grid:
        columns, rows = self._own(size)
        scale = min(math.sqrt(room / (columns * rows)), 1.0)
        columns, rows = math.floor(scale * columns), math.floor(scale * rows)
        if room > self.least_patches and 0 < columns * rows < self.least_patches:
            enlarged = math.sqrt(self.least_patches / (columns * rows))
            columns, rows = math.ceil(enlarged * columns), math.ceil(enlarged * rows)
        rows = _even(rows, columns, room)
        return _even(columns, rows, room), rows

    def _bounds(self, size: Size) -> tuple[int, int]:
        """Embeddings with the least room, both sides rounded down, and with the most, both rounded up.

        Where what is left is enlarged to `least_patches`, it is by the shape of whole patches: at most twice as long.
        """
        columns, rows = self._own(size)
        scale = min(math.sqrt(self.least_patches / (columns * rows)), 1.0)
        least = [math.floor(scale * side) // 2 * 2 for side in (columns, rows)]
        scale = min(math.sqrt(self._most_room / (columns * rows)), 1.0)
        most = [math.floor(scale * side) // 2 * 2 + 2 for side in (columns, rows)]
        ratio = min(2 * max(columns, rows) / min(columns, rows), self.least_patches)
        enlarged = self.least_patches + 2 * math.sqrt(self.least_patches) * (math.sqrt(ratio) + 1) + 4
        return self._embeddings((least[0], least[1])), max(math.prod(most), math.ceil(enlarged)) // _POOLED

    @staticmethod
    def _embeddings(grid: Grid) -> int:
        return grid[0] * grid[1] // _POOLED


def _even(side: int, other: int, room: int) -> int:
    """Up where there is room, else down, and two at least."""
    if side % 2 == 0:
        return side
    return side + 1 if (side + 1) * other <= room else max(2, side - 1)


def from_sources(name: str, read: Sources) -> InternVL | DynamicNemotron:
    """The mode is dynamic where the encoder's arguments limit patches, unless the configuration says otherwise."""
    patch = read.side("patch_size", default=16)
    least = read.whole_or_none("vision_config.args.min_num_patches", "min_num_patches")
    if least is not None:
        most = read.whole_or_none("vision_config.args.max_num_patches", "max_num_patches", least=0)
        context, text = read.whole_or_none("max_model_len"), read.whole_or_none("text_tokens", least=0)
        return DynamicNemotron(name, patch, least, most or MOST_PIXELS // patch**2, context, text)
    tile = read.side("force_image_size", default=512)
    tile_tokens = tokens_of(tile, patch, read.real("downsample_ratio", default=0.5))
    has_thumbnail = read.flag("use_thumbnail", default=True)
    return InternVL(name, tile, tile_tokens, 1, read.whole("max_num_tiles", default=12, most=MOST_TILES), has_thumbnail)
