"""How tile families choose the grid or canvas that they cut an image into: three rules that many of them share.

A grid is (columns, rows). Each rule decides in the arithmetic of the code that it stands for (IEEE doubles, or single
precision where that is what the models' own processors compute in): a tie, or the last bit, decides on whole tiles.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from struct import Struct

from gateway.domain.geometry import Size

Grid = tuple[int, int]
Division = Callable[[int, int], float]

_SINGLE = Struct("f")


@lru_cache(maxsize=64)
def grids_of(least_tiles: int, most_tiles: int) -> tuple[Grid, ...]:
    """All grids of so many tiles, the smaller ones first, narrow ones first among equals."""
    grids = [
        (columns, rows)
        for columns in range(1, most_tiles + 1)
        for rows in range(-(-least_tiles // columns), most_tiles // columns + 1)
    ]
    return tuple(sorted(grids, key=lambda grid: grid[0] * grid[1]))


def closest_grid(size: Size, grids: Sequence[Grid], tile: int) -> Grid:
    """The grid whose shape is closest to the image's; of equals a larger one only for an image that fills half of it.

    Source: InternVL 1.5 (arXiv:2404.16821) and its `dynamic_preprocess`; transformers `got_ocr2`.
    """
    best, least_difference = grids[0], math.inf
    ratio = size.width / size.height
    for columns, rows in grids:
        difference = abs(ratio - columns / rows)
        fills_half = size.pixels > 0.5 * tile * tile * columns * rows
        if difference < least_difference or (difference == least_difference and fills_half):
            best, least_difference = (columns, rows), difference
    return best


def in_doubles(dividend: int, divisor: int) -> float:
    """The quotient as numpy gives it: by zero it is infinite."""
    return dividend / divisor if divisor else math.inf


def in_single_precision(dividend: int, divisor: int) -> float:
    """The quotient as torch and numpy give it where both are single-precision numbers."""
    return _single(in_doubles(int(_single(dividend)), int(_single(divisor))))


def covering_grid(
    size: Size, grids: Sequence[Grid], tile: int, divide: Division = in_doubles, *, largest: bool = False
) -> Grid:
    """The grid that covers the image with the least enlargement (`largest`: with the most), or else the one into which
    it has to be shrunk the least. The first of `grids`, the smallest, wins among equals.

    Source: Llama 3.2 and Llama 4 (transformers `mllama`, `llama4`), Molmo (arXiv:2409.17146), Cohere.
    """
    most = max(map(max, grids))
    widths = [divide(columns * tile, size.width) for columns in range(most + 1)]
    heights = [divide(rows * tile, size.height) for rows in range(most + 1)]
    scales = [min(widths[columns], heights[rows]) for columns, rows in grids]
    enlarging = [scale for scale in scales if scale >= 1]
    if not enlarging:
        return grids[scales.index(max(scales))]
    return grids[scales.index(max(enlarging) if largest else min(enlarging))]


def pinpoint(size: Size, canvases: Sequence[Size]) -> Size:
    """The canvas that keeps most of the image's pixels once it is scaled into it; then the one that wastes the fewest.

    The first one listed wins among equals. Scaled sides are cut to whole pixels as products of doubles.
    Source: LLaVA-NeXT, `select_best_resolution` of transformers.
    """
    return max(canvases, key=lambda canvas: _kept_and_waste(size, canvas))


def _kept_and_waste(size: Size, canvas: Size) -> tuple[int, int]:
    scale = min(canvas.width / size.width, canvas.height / size.height)
    kept = min(int(size.width * scale) * int(size.height * scale), size.pixels)
    return kept, kept - canvas.pixels


def _single(value: float) -> float:
    return float(_SINGLE.unpack(_SINGLE.pack(value))[0])
