"""DeepSeek-VL2 and DeepSeek-OCR: a global view and the tiles of a larger one, in rows with a break after each.

VL2 chooses among listed canvases as LLaVA-NeXT does, and cuts nothing up from three images in a request on; how many
there are decides, so where that is not known the global view with one tile is the least there can be.
OCR leaves alone what fits one tile, and else takes InternVL's closest grid of two to six.
Source: DeepSeek-VL2 (arXiv:2412.10302), DeepSeek-OCR (arXiv:2510.18234); vLLM 0.32 `processors/deepseek_vl2.py`,
`deepseek_ocr.py`, whose constants for OCR no configuration changes.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from gateway.domain.geometry import Size
from gateway.domain.vision.base import BoundedTokens, ImageTokens, refuse_empty
from gateway.domain.vision.fitting import Fitted, inside, is_capped, stretched
from gateway.domain.vision.grids import closest_grid, grids_of, pinpoint
from gateway.domain.vision.sources import MOST_TILES, Sources

_MOST_TILED_IMAGES = 2
"""Of a request to VL2; with more of them none is cut up."""

_TILE = 384
_SHAPES = (
    (1, 1), (1, 2), (2, 1), (1, 3), (3, 1), (1, 4), (4, 1), (2, 2), (1, 5), (5, 1), (1, 6), (6, 1), (2, 3), (3, 2),
    (1, 7), (7, 1), (1, 8), (8, 1), (2, 4), (4, 2), (1, 9), (9, 1), (3, 3),
)  # fmt: skip
"""Sides of VL2's canvases in tiles."""


@dataclass(frozen=True, slots=True)
class DeepseekVL2(Fitted):
    """`grid` features along a side of a tile of `tile` pixels; `images` in the request, None where not known."""

    name: str
    tile: int
    grid: int
    canvases: tuple[Size, ...]
    images: int | None = None

    @property
    def max_image_tokens(self) -> int:
        return max(self._count(canvas) for canvas in self.canvases)

    def tokens(self, size: Size) -> ImageTokens:
        refuse_empty(size)
        canvas = Size(self.tile, self.tile) if self._is_never_tiled else pinpoint(size, self.canvases)
        count = self._count(canvas)
        uncertain = count - self._count(Size(self.tile, self.tile)) if self.images is None else 0
        scaled = inside(size, canvas)
        return BoundedTokens(
            count, 0, count, scaled, is_capped(size, scaled), uncertain=uncertain, uncertain_encoder=uncertain
        )

    def shapes(self, size: Size, /) -> Iterator[Size]:
        return (inside(size, canvas) for canvas in self.canvases)

    @property
    def _is_never_tiled(self) -> bool:
        return self.images is not None and self.images > _MOST_TILED_IMAGES

    def _count(self, canvas: Size) -> int:
        columns, rows = (self.grid * (side // self.tile) for side in (canvas.width, canvas.height))
        return self.grid * (self.grid + 1) + 1 + rows * (columns + 1)


@dataclass(frozen=True, slots=True)
class DeepseekOCR(Fitted):
    """`view` and `tile` are sides in features, `tile_pixels` that of a tile in pixels."""

    name: str
    view: int
    tile: int
    tile_pixels: int
    least_tiles: int
    most_tiles: int
    crops: bool

    @property
    def max_image_tokens(self) -> int:
        grids = grids_of(self.least_tiles, self.most_tiles) if self.crops else ()
        return self._view_tokens + max((self._grid_tokens(*grid) for grid in grids), default=0)

    def tokens(self, size: Size) -> ImageTokens:
        refuse_empty(size)
        if not self.crops or max(size.width, size.height) <= self.tile_pixels:
            return ImageTokens(self._view_tokens, 0, self._view_tokens, size)
        columns, rows = closest_grid(size, grids_of(self.least_tiles, self.most_tiles), self.tile_pixels)
        count = self._view_tokens + self._grid_tokens(columns, rows)
        model_size = Size(columns * self.tile_pixels, rows * self.tile_pixels)
        return ImageTokens(count, 0, count, model_size, is_capped(size, model_size))

    def shapes(self, size: Size, /) -> Iterator[Size]:
        yield inside(size, Size(self.tile_pixels, self.tile_pixels))
        for grid in grids_of(self.least_tiles, self.most_tiles):
            if each := stretched(size, grid, self.tile_pixels):
                yield each

    @property
    def _view_tokens(self) -> int:
        return self.view * (self.view + 1) + 1

    def _grid_tokens(self, columns: int, rows: int) -> int:
        return rows * self.tile * (columns * self.tile + 1)


def deepseek_vl2(name: str, read: Sources) -> DeepseekVL2:
    tile = read.side("vision_config.image_size", "image_size", default=_TILE)
    patch, merge = (
        read.side("patch_size", "vision_config.patch_size", default=14),
        read.whole("downsample_ratio", default=2),
    )
    canvases = read.pairs(
        "candidate_resolutions", default=tuple((columns * tile, rows * tile) for columns, rows in _SHAPES)
    )
    grid = -(-(tile // patch) // merge)
    images = read.whole_or_none("images_in_request")
    return DeepseekVL2(name, tile, grid, tuple(Size(width, height) for width, height in canvases), images)


def deepseek_ocr(name: str, read: Sources) -> DeepseekOCR:
    """Patches of 16 pixels, four along a side become one feature."""
    view, tile = read.side("base_size", default=1024), read.side("image_size", default=640)
    least, most = (
        read.whole("min_crops", default=2, most=MOST_TILES),
        read.whole("max_crops", default=6, most=MOST_TILES),
    )
    crops = read.flag("crop_mode", default=True)
    return DeepseekOCR(name, -(-view // 16 // 4), -(-tile // 16 // 4), tile, least, most, crops)
