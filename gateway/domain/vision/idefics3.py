"""Idefics3 and SmolVLM: the longer side is always brought to one length, and what comes of it is cut into tiles.

Small images are enlarged to it too, so only an image's shape decides. The other side is made even. Each tile has a tag
for its row and column and one before it; rows end with a newline, and the view of the whole follows after a blank line.
Source: Idefics3 (arXiv:2408.12637), SmolVLM (arXiv:2504.05299); transformers 5.19, vLLM 0.32 `idefics3.py`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from gateway.domain.geometry import Size
from gateway.domain.vision.base import BoundedTokens, ImageTokens, refuse_empty
from gateway.domain.vision.fitting import Fitted, is_capped, stretched
from gateway.domain.vision.grids import grids_of
from gateway.domain.vision.sources import Sources, at_most

_MOST_TILES_ALONG_SIDE = 32
"""Published checkpoints have five at most."""

_TAGS = 2
"""Before each tile; around the view of the whole there is one more at the end."""
_BLANK_LINE = 1
"""A tokenizer without a token for a blank line spends two: one may not come."""


@dataclass(frozen=True, slots=True)
class Idefics3(Fitted):
    """`longest` and `tile` are sides in pixels, `tile_tokens` what a tile becomes. Without `splits` there is one."""

    name: str
    longest: int
    tile: int
    tile_tokens: int
    splits: bool

    @property
    def markers(self) -> int:
        return _BLANK_LINE if self.splits else 0

    @property
    def max_image_tokens(self) -> int:
        return self._count(*[self._most_along_side] * 2)[0]

    def tokens(self, size: Size) -> ImageTokens:
        refuse_empty(size)
        model_size = self._resized(size)
        columns, rows = (-(-side // self.tile) for side in (model_size.width, model_size.height))
        placeholder, encoder = self._count(columns, rows) if self.splits else self._count(1, 1)
        newline = _BLANK_LINE if encoder > self.tile_tokens else 0
        return BoundedTokens(placeholder, newline, encoder, model_size, is_capped(size, model_size), uncertain=newline)

    def shapes(self, size: Size, /) -> Iterator[Size]:
        """Each shape of tiles that the longer side can be cut into."""
        most = self._most_along_side
        grids = [grid for grid in grids_of(1, most * most) if max(grid) == most]
        return (each for grid in grids if (each := stretched(size, grid, self.longest // most)))

    @property
    def _most_along_side(self) -> int:
        return -(-self.longest // self.tile) if self.splits else 1

    def _resized(self, size: Size) -> Size:
        ratio = size.width / size.height
        if size.width >= size.height:
            return Size(self.longest, _even(int(self.longest / ratio)))
        return Size(_even(int(self.longest * ratio)), self.longest)

    def _count(self, columns: int, rows: int) -> tuple[int, int]:
        """In the prompt, and for the encoder."""
        tiles = columns * rows
        whole = self.tile_tokens + _TAGS + 1
        if tiles == 1:
            return whole, self.tile_tokens
        return tiles * (self.tile_tokens + _TAGS) + rows + whole, (tiles + 1) * self.tile_tokens


def from_sources(name: str, read: Sources) -> Idefics3:
    longest = read.whole("size.longest_edge", "size_longest_edge", default=1456)
    tile = read.whole("max_image_size.longest_edge", "max_image_longest_edge", default=364)
    at_most("size.longest_edge", longest, _MOST_TILES_ALONG_SIDE * tile)
    return Idefics3(
        name,
        longest=longest,
        tile=tile,
        tile_tokens=read.whole("image_seq_len", default=169),
        splits=read.flag("do_image_splitting", default=True),
    )


def _even(side: int) -> int:
    return max(1, side + side % 2)
