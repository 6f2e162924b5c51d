"""LLaVA-NeXT, LLaVA-OneVision and Granite Vision: a low-resolution view, and tiles of a canvas without its padding.

Of the listed canvases ("pinpoints") the one that keeps most of the image is chosen, the image scaled into it and cut
into tiles. Features that are only padding are dropped again, and each row of what remains ends with a newline.
OneVision (`anyres_max_9`) shrinks features beyond nine tiles' worth.
Source: LLaVA-NeXT (blog of January 2024), LLaVA-OneVision (arXiv:2408.03326), Granite Vision (arXiv:2502.09927);
transformers 5.19 `select_best_resolution`, vLLM 0.32 `llava_next.py`, `llava_onevision.py`, `granite4_vision.py`.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from gateway.domain.geometry import Size
from gateway.domain.quoting import quoted
from gateway.domain.vision.base import ImageTokens, ProcessorConfigError, refuse_empty
from gateway.domain.vision.constant import clip_grid
from gateway.domain.vision.fitting import Fitted, inside
from gateway.domain.vision.grids import pinpoint
from gateway.domain.vision.sources import Sources

_ONEVISION_TILES = 9
"""Hard-coded in vLLM, whatever the model's `anyres_max_N` says."""
_ONEVISION_SLACK = 1.1

_FRACTION = re.compile(r"[0-9./]{1,16}")

_TILE_SHAPES = ((1, 2), (2, 1), (2, 2), (3, 1), (1, 3))
"""Rows and columns of the first LLaVA-NeXT checkpoints' canvases."""


@dataclass(frozen=True, slots=True)
class LlavaNext(Fitted):
    """`grid` features along a side of a tile of `tile` pixels; `base` tokens of the low-resolution view.

    `most_tiles` is how many tiles' worth of features are kept, None: all.
    """

    name: str
    tile: int
    grid: int
    base: int
    canvases: tuple[Size, ...]
    most_tiles: int | None = None

    @property
    def max_image_tokens(self) -> int:
        """An upper bound where features are shrunk: just below the slack all of them are kept."""
        kept = math.inf if self.most_tiles is None else _ONEVISION_SLACK**2 * self.most_tiles * self.grid**2
        grids = [self._features(canvas) for canvas in self.canvases]
        return self.base + max(int(min(columns * rows, kept)) + rows for columns, rows in grids)

    def tokens(self, size: Size) -> ImageTokens:
        refuse_empty(size)
        canvas = pinpoint(size, self.canvases)
        columns, rows = self._unpadded(size, *self._features(canvas))
        count = self.base + self._count(columns, rows)
        # What is cut off depends on the image's exact shape, so it is not handed over in whole pixels of the canvas.
        return ImageTokens(count, 0, count, inside(size, canvas))

    def shapes(self, size: Size, /) -> Iterator[Size]:
        """The image's own shape, as large as each canvas holds it."""
        return (inside(size, canvas) for canvas in self.canvases)

    def _features(self, canvas: Size) -> tuple[int, int]:
        return self.grid * (canvas.width // self.tile), self.grid * (canvas.height // self.tile)

    def _unpadded(self, size: Size, columns: int, rows: int) -> tuple[int, int]:
        """Padding is cut off the two sides alike, in whole features; scaled sides are rounded to the seventh digit."""
        if size.width / size.height > columns / rows:
            kept = int(round(size.height * (columns / size.width), 7))
            return columns, rows - 2 * ((rows - kept) // 2)
        kept = int(round(size.width * (rows / size.height), 7))
        return columns - 2 * ((columns - kept) // 2), rows

    def _count(self, columns: int, rows: int) -> int:
        """Features and one newline a row."""
        if self.most_tiles:
            ratio = math.sqrt(columns * rows / (self.most_tiles * self.grid**2))
            if ratio > _ONEVISION_SLACK:
                columns, rows = int(columns // ratio), int(rows // ratio)
        return rows * columns + rows


def llava_next(name: str, read: Sources) -> LlavaNext:
    tile, grid, base = clip_grid(read)
    return LlavaNext(name, tile, grid, base, _canvases(read, tile))


def llava_onevision(name: str, read: Sources) -> LlavaNext:
    tile, grid, base = clip_grid(read)
    return LlavaNext(name, tile, grid, base, _canvases(read, tile), _ONEVISION_TILES)


def granite4_vision(name: str, read: Sources) -> LlavaNext:
    """Features are sampled down by a fraction such as `4/8`."""
    tile = read.side("vision_config.image_size", "image_size", default=384)
    rate = read.value("downsample_rate", default="4/8")
    try:
        # With an exponent a short text stands for a number that fills the memory.
        kept = Fraction(str(rate) if _FRACTION.fullmatch(str(rate)) else "")
    except (ValueError, ZeroDivisionError) as broken:
        raise ProcessorConfigError("downsample_rate", f"must be a fraction such as 4/8, not {quoted(rate)}") from broken
    grid = int(tile // read.side("vision_config.patch_size", "patch_size", default=16) * kept)
    return LlavaNext(name, tile, grid, grid * grid, _canvases(read, tile))


def _canvases(read: Sources, tile: int) -> tuple[Size, ...]:
    """Pinpoints are listed height first."""
    default = tuple((rows * tile, columns * tile) for rows, columns in _TILE_SHAPES)
    return tuple(Size(width, height) for height, width in read.pairs("image_grid_pinpoints", default=default))
