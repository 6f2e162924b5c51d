"""Ovis2: cut into as few parts as cover nine tenths of the image, each shrunk into a square tile.

A part's share is what is left of its pixels once it is shrunk into the tile. Of the grids whose parts cover more than
the threshold the one of fewest parts wins, then the one that covers most; without any, the one that covers most.
Source: Ovis (arXiv:2405.20797); vLLM 0.32 `processors/ovis.py`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from gateway.domain.geometry import Size
from gateway.domain.vision.base import ImageTokens, refuse_empty
from gateway.domain.vision.fitting import Fitted, inside
from gateway.domain.vision.grids import Grid
from gateway.domain.vision.sources import Sources

_MOST_PARTS = 32
"""Each grid is weighed part by part: with more, one image would take seconds."""

_TAGS = 3
"""Start, what precedes the parts, end."""


@dataclass(frozen=True, slots=True)
class Ovis2(Fitted):
    """`tile` is its side in pixels, `tile_tokens` what one becomes. All of the replacement is embeddings for vLLM."""

    name: str
    tile: int
    tile_tokens: int
    most_parts: int
    threshold: float

    @property
    def max_image_tokens(self) -> int:
        return max(self._count(columns, rows) for columns, rows in self._grids)

    def tokens(self, size: Size) -> ImageTokens:
        refuse_empty(size)
        columns, rows = self._grid(size)
        count = self._count(columns, rows)
        scaled = inside(size, Size(columns * self.tile, rows * self.tile))
        return ImageTokens(count, 0, count, scaled)

    def shapes(self, size: Size, /) -> Iterator[Size]:
        return (inside(size, Size(columns * self.tile, rows * self.tile)) for columns, rows in self._grids)

    @property
    def _grids(self) -> tuple[Grid, ...]:
        """Few rows first, then few columns: the first wins among equals."""
        sides = range(1, self.most_parts + 1)
        return tuple((columns, rows) for rows in sides for columns in sides if columns * rows <= self.most_parts)

    def _grid(self, size: Size) -> Grid:
        shares = [(grid, self._covered(size, grid)) for grid in self._grids]
        good = [(grid, share) for grid, share in shares if share > self.threshold]
        if good:
            return min(good, key=lambda each: (each[0][0] * each[0][1], -each[1]))[0]
        return min(shares, key=lambda each: (-each[1], each[0][0] * each[0][1]))[0]

    def _covered(self, size: Size, grid: Grid) -> float:
        """Parts have equal whole sides; the last column and row take what is left over. Summed up row by row."""
        columns, rows = grid
        widths, heights = _parts(size.width, columns), _parts(size.height, rows)
        return sum(self._kept(width, height) for height in heights for width in widths) / size.pixels

    def _kept(self, width: int, height: int) -> float:
        long, short = max(width, height), min(width, height)
        return self.tile * (short / long * self.tile) if long > self.tile else long * short

    def _count(self, columns: int, rows: int) -> int:
        """With more than one part, the whole comes first, and separators stand between columns and between rows."""
        parts = columns * rows
        if parts == 1:
            return self.tile_tokens + _TAGS
        separators = rows * (columns - 1) + rows - 1
        # Each part's marker and those of the whole are counted with it: one more a part.
        return (parts + 1) * self.tile_tokens + _TAGS + separators


def _parts(side: int, count: int) -> list[int]:
    whole = side // count
    return [whole] * (count - 1) + [side - whole * (count - 1)]


def from_sources(name: str, read: Sources) -> Ovis2:
    tile = read.side("visual_tokenizer_config.backbone_config.image_size", "size", "image_size", default=448)
    patch = read.side("visual_tokenizer_config.backbone_config.patch_size", "patch_size", default=14)
    stride = read.whole("visual_tokenizer_config.hidden_stride", "hidden_stride", default=2)
    return Ovis2(
        name,
        tile,
        (tile // patch // stride) ** 2,
        read.whole("max_partition", default=9, most=_MOST_PARTS),
        read.real("covering_threshold", default=0.9),
    )
