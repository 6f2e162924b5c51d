"""Phi-3 and Phi-3.5 Vision, and Phi-4 multimodal: tiles in the image's own shape without the padding around it.

Phi-3: of the longer side, as many tiles as `num_crops` allows, small images enlarged too, so only the shape decides;
each row of tiles is twelve rows of features with a newline each. Phi-4: as many tiles as the image covers at its own
size, InternVL's closest grid where those are too many; features that are only padding are dropped.
Source: Phi-3 (arXiv:2404.14219), Phi-4-Mini (arXiv:2503.01743); the checkpoints' own processors, vLLM 0.32 `phi3v.py`,
`phi4mm.py`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from gateway.domain.geometry import Size
from gateway.domain.vision.base import ImageTokens, UnservableImageError, refuse_empty
from gateway.domain.vision.fitting import Fitted, inside, is_capped, stretched
from gateway.domain.vision.grids import Grid, closest_grid, grids_of
from gateway.domain.vision.sources import MOST_TILES, Sources

_PHI3_TILE = 336
_PHI3_ROWS = 12
"""Rows, and columns, of features in a tile."""

_PHI4_TILE = 448
_PHI4_PATCH = 14
_PHI4_MERGE = 2
_PHI4_LEAST_SIDE = 10


@dataclass(frozen=True, slots=True)
class Phi3(Fitted):
    """`most_tiles` is what the checkpoints call `num_crops`."""

    name: str
    most_tiles: int

    @property
    def max_image_tokens(self) -> int:
        return max(self._count(columns * rows, rows) for columns, rows in grids_of(1, self.most_tiles))

    def tokens(self, size: Size) -> ImageTokens:
        refuse_empty(size)
        model_size = self._resized(size)
        if not model_size.pixels:
            raise UnservableImageError(f"the image is {size}: brought to the model's width, a side vanishes")
        columns, rows = (-(-side // _PHI3_TILE) for side in (model_size.width, model_size.height))
        count = self._count(columns * rows, rows)
        return ImageTokens(count, 0, count, model_size, is_capped(size, model_size))

    def shapes(self, size: Size, /) -> Iterator[Size]:
        return (each for grid in grids_of(1, self.most_tiles) if (each := stretched(size, grid, _PHI3_TILE)))

    def _resized(self, size: Size) -> Size:
        wide = size if size.width >= size.height else size.transposed
        ratio = wide.width / wide.height
        columns = 1
        while (columns + 1) * -int(-(columns + 1) / ratio // 1) <= self.most_tiles:
            columns += 1
        width = _PHI3_TILE * columns
        target = Size(width, int(width / ratio))
        return target if wide is size else target.transposed

    @staticmethod
    def _count(tiles: int, rows: int) -> int:
        """A tile of the whole comes first, then a separator."""
        return (tiles + 1) * _PHI3_ROWS**2 + 1 + (rows + 1) * _PHI3_ROWS


@dataclass(frozen=True, slots=True)
class Phi4(Fitted):
    """`most_tiles` is what the checkpoint calls `dynamic_hd`."""

    name: str
    most_tiles: int

    @property
    def max_image_tokens(self) -> int:
        side = _PHI4_TILE // _PHI4_PATCH // _PHI4_MERGE
        grids = grids_of(1, self.most_tiles)
        return self._count(0, 0) + max(side * rows * (side * columns + 1) for columns, rows in grids)

    def tokens(self, size: Size) -> ImageTokens:
        refuse_empty(size)
        canvas = self._canvas(size)
        scaled = _scaled_into(size, canvas)
        if min(scaled.width, scaled.height) < _PHI4_LEAST_SIDE:
            raise UnservableImageError(
                f"the image is {size}: in its tiles a side has fewer than {_PHI4_LEAST_SIDE} pixels, which the model "
                "refuses"
            )
        columns, rows = (_features(side, whole) for side, whole in zip(_sides(scaled), _sides(canvas), strict=True))
        count = self._count(columns, rows)
        return ImageTokens(count, 0, count, scaled, is_capped(size, scaled))

    def shapes(self, size: Size, /) -> Iterator[Size]:
        grids = grids_of(1, self.most_tiles)
        return (inside(size, Size(columns * _PHI4_TILE, rows * _PHI4_TILE)) for columns, rows in grids)

    @property
    def step(self) -> int:
        return _PHI4_PATCH * _PHI4_MERGE

    def _canvas(self, size: Size) -> Size:
        columns, rows = (-(-side // _PHI4_TILE) for side in _sides(size))
        if columns * rows > self.most_tiles:
            columns, rows = closest_grid(size, grids_of(1, self.most_tiles), _PHI4_TILE)
        return Size(columns * _PHI4_TILE, rows * _PHI4_TILE)

    @staticmethod
    def _count(columns: int, rows: int) -> int:
        """A view of the whole with a newline a row, a separator, and the features with a newline a row."""
        side = _PHI4_TILE // _PHI4_PATCH // _PHI4_MERGE
        return side * (side + 1) + 1 + rows * (columns + 1)


def _sides(size: Size) -> Grid:
    return size.width, size.height


def _scaled_into(size: Size, canvas: Size) -> Size:
    """The side that fills the canvas is exact, the other one cut to whole pixels."""
    by_width, by_height = canvas.width / size.width, canvas.height / size.height
    if by_width < by_height:
        return Size(canvas.width, int(size.height * by_width))
    return Size(int(size.width * by_height), canvas.height)


def _features(side: int, whole: int) -> int:
    """Along a side, without whole patches of padding; half a feature counts."""
    return -(-(whole // _PHI4_PATCH - (whole - side) // _PHI4_PATCH) // _PHI4_MERGE)


def phi3_5_vision(name: str, read: Sources) -> Phi3:
    return Phi3(name, read.whole("num_crops", default=4, most=MOST_TILES))


def phi4_multimodal(name: str, read: Sources) -> Phi4:
    return Phi4(name, read.whole("dynamic_hd", default=36, most=MOST_TILES))
