"""Qwen2-VL, Qwen2.5-VL, Qwen3-VL and Qwen3.5: size to visual tokens, and back.

Only this family's arithmetic and how its processor configuration is read belong here; policy is `domain/resize.py`.

Two kinds of numbers stand side by side on purpose. The model's own resize (`_model_size`) runs in IEEE doubles in
exactly the order of transformers' `smart_resize`: exact arithmetic would give one row and column more for one in eight
large squares. Our inverse (`shrink`) runs in integers: doubles would lose a row and a column of perfect squares.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from gateway.domain.geometry import Size
from gateway.domain.quoting import quoted
from gateway.domain.vision.base import ImageTokens, ProcessorConfigError, UnservableImageError, refuse_empty
from gateway.domain.vision.sources import MOST_WHOLE, Sources, at_most

MAX_ASPECT_RATIO = 200
"""Long side by short side; exactly 200 passes (transformers `smart_resize`)."""

MARKERS = 2
"""`<|vision_start|>` and `<|vision_end|>`, written by the chat template around each image."""

_CLASS_DEFAULTS: Mapping[str, object] = {
    "patch_size": 14,
    "merge_size": 2,
    "size": {"shortest_edge": 3136, "longest_edge": 1003520},
}
"""What transformers' `Qwen2VLImageProcessor` assumes for keys that a configuration leaves out."""


@dataclass(frozen=True, slots=True)
class QwenVL:
    """One model's image processor.

    `unit` is the side in pixels of the square that becomes one token (patch x merge); `min_pixels` and `max_pixels`
    are the areas between which the processor brings every image.
    Source: transformers 5.19 `models/qwen2_vl/image_processing_qwen2_vl.py`, vLLM 0.32 `qwen2_vl.py`, `qwen3_vl.py`.
    """

    name: str
    unit: int
    min_pixels: int
    max_pixels: int

    @property
    def min_side(self) -> int:
        return self.unit

    @property
    def markers(self) -> int:
        return MARKERS

    @property
    def max_image_tokens(self) -> int:
        """An upper bound; exact where `max_pixels` is well above `min_pixels` and 200 units, as shipped.

        Small limits do not bind long images: one side never falls below a unit, and enlarging rounds both sides up.
        """
        area = self.max_pixels // self.unit**2
        one_row = math.isqrt(MAX_ASPECT_RATIO * self.max_pixels) // self.unit
        long_side = math.isqrt(MAX_ASPECT_RATIO * self.min_pixels) // self.unit + 1
        short_side = math.isqrt(self.min_pixels // MAX_ASPECT_RATIO) // self.unit + 1
        enlarged = self.min_pixels // self.unit**2 + long_side + short_side
        return max(area, one_row, enlarged)

    def tokens(self, size: Size) -> ImageTokens:
        """Cost of an image of `size`. Raises UnservableImageError for an empty side or a ratio above 200."""
        refuse_empty(size)
        if size.aspect_ratio > MAX_ASPECT_RATIO:
            raise UnservableImageError(
                f"the image is {size}: its aspect ratio is {size.aspect_ratio:.7g}, "
                f"the model takes at most {MAX_ASPECT_RATIO}"
            )
        model_size, is_capped = self._model_size(size)
        placeholder = model_size.pixels // self.unit**2
        return ImageTokens(placeholder, self.markers, placeholder, model_size, is_capped)

    def shrink(self, size: Size, max_tokens: int) -> Size | None:
        """Largest size of about the same shape, in whole units, that costs at most `max_tokens` placeholder tokens.

        `size` itself where it fits. None where the processor would enlarge every such size above `max_tokens` again
        (it never spends less than `min_pixels`). The model leaves the result as it is, and a picture too long for the
        model becomes one that it takes. Raises UnservableImageError for an empty side.
        """
        refuse_empty(size)
        if size.aspect_ratio <= MAX_ASPECT_RATIO and self.tokens(size).placeholder <= max_tokens:
            return size
        budget = min(max_tokens, self.max_pixels // self.unit**2)
        if budget < 1:
            return None
        columns, rows = _grid(size, budget)
        cost = self.tokens(Size(columns * self.unit, rows * self.unit))
        # Below min_pixels the processor enlarges the target again: if what it makes of it fits, that is sent instead.
        fits = cost.placeholder <= max_tokens and self._is_fixed_point(cost.model_size)
        return cost.model_size if fits else None

    def _is_fixed_point(self, size: Size) -> bool:
        return self.tokens(size).model_size == size

    def _model_size(self, size: Size) -> tuple[Size, bool]:
        """The processor's target, and whether its maximum acted."""
        width, height = (round(side / self.unit) * self.unit for side in (size.width, size.height))
        if width * height > self.max_pixels:
            divisor = math.sqrt(size.pixels / self.max_pixels)
            return Size(self._floor_units(size.width / divisor), self._floor_units(size.height / divisor)), True
        if width * height < self.min_pixels:
            factor = math.sqrt(self.min_pixels / size.pixels)
            return Size(self._ceil_units(size.width * factor), self._ceil_units(size.height * factor)), False
        return Size(width, height), False

    def _floor_units(self, side: float) -> int:
        return max(self.unit, math.floor(side / self.unit) * self.unit)

    def _ceil_units(self, side: float) -> int:
        return math.ceil(side / self.unit) * self.unit


def from_config(name: str, config: Mapping[str, object]) -> QwenVL:
    """The family as a checkpoint's image processor configuration sets it up.

    Top-level `min_pixels` and `max_pixels` override the edges of `size`, which are areas here; keys left out take the
    defaults of the processor class. Raises ProcessorConfigError naming the key.
    """
    if config.get("do_resize") is False:
        raise ProcessorConfigError(
            "do_resize", "is false: images would reach the model at any size, which is not supported"
        )
    merged = {**_CLASS_DEFAULTS, **{key: value for key, value in config.items() if value is not None}}
    min_pixels, max_pixels = _areas(merged)
    if min_pixels > max_pixels:
        raise ProcessorConfigError("size", f"has a least area of {min_pixels} above its greatest of {max_pixels}")
    unit = _positive(merged, "patch_size") * _positive(merged, "merge_size")
    return QwenVL(name, unit, min_pixels, max_pixels)


def from_sources(name: str, read: Sources) -> QwenVL:
    """The same out of several sources: a stronger one's `size` takes the place of a weaker one's areas, as vLLM fills
    in the other spelling of what a server's or a request's own options say.
    """
    keys = ("do_resize", *_CLASS_DEFAULTS, "min_pixels", "max_pixels")
    config = read.merged(keys, replaces={"size": ("min_pixels", "max_pixels")})
    has_areas = "min_pixels" in config and "max_pixels" in config
    assumed = _CLASS_DEFAULTS.keys() - config.keys() - ({"size"} if has_areas else set())
    read.note({key: value for key, value in _CLASS_DEFAULTS.items() if key in assumed})
    return from_config(name, config)


def areas(read: Sources, least: int, most: int) -> tuple[int, int]:
    """Least and greatest area in pixels, for families that spell them as Qwen does and read them with less care."""
    return (
        read.whole("min_pixels", "size.shortest_edge", default=least),
        read.whole("max_pixels", "size.longest_edge", default=most),
    )


def _grid(size: Size, budget: int) -> tuple[int, int]:
    """Columns and rows with columns x rows <= `budget`, in about the shape of `size`, within the ratio limit."""
    columns = max(1, math.isqrt(budget * size.width // size.height))
    rows = max(1, math.isqrt(budget * size.height // size.width))
    columns = max(1, min(columns, budget // rows))
    rows = min(rows, budget // columns)
    columns = min(columns, MAX_ASPECT_RATIO * rows)
    rows = min(rows, MAX_ASPECT_RATIO * columns)
    return columns, rows


def _areas(config: Mapping[str, object]) -> tuple[int, int]:
    """Least and greatest area in pixels."""
    size = config["size"]
    if not isinstance(size, Mapping):
        raise ProcessorConfigError("size", f"must hold shortest_edge and longest_edge, not {quoted(size)}")
    edges = dict(size)
    for key, edge in (("min_pixels", "shortest_edge"), ("max_pixels", "longest_edge")):
        if key in config:
            edges[edge] = _positive(config, key)
            edges.pop(key, None)
    missing = [edge for edge in ("shortest_edge", "longest_edge") if edges.get(edge) is None]
    if missing:
        raise ProcessorConfigError(
            "size", f"lacks {' and '.join(missing)} (it has {', '.join(sorted(edges)) or 'nothing'})"
        )
    return _positive(edges, "shortest_edge", "size."), _positive(edges, "longest_edge", "size.")


def _positive(config: Mapping[str, object], key: str, where: str = "") -> int:
    value = config[key]
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ProcessorConfigError(where + key, f"must be a whole number above 0, not {quoted(value)}")
    return at_most(where + key, value, MOST_WHOLE)
