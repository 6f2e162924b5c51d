"""Ovis2.5: Qwen2-VL's rule for every shape there is.

A side below one unit is brought to it and the other one follows, rounded; else what is longer than 200:1 is cut to
that. Then areas are brought within 448 x 448 and 1792 x 1792 as Qwen does it (qwen_vl.py), but nothing keeps a side
from vanishing: a strip of some 5000:1 leaves start and end only. Both stand inside the replacement, and vLLM counts all
of it as embeddings. Source: Ovis2.5 (arXiv:2508.11737); vLLM 0.32 `processors/ovis2_5.py`.
"""

import math
from dataclasses import dataclass

from gateway.domain.geometry import Size
from gateway.domain.vision.base import ImageTokens, refuse_empty
from gateway.domain.vision.fitting import Fitted
from gateway.domain.vision.qwen_vl import MAX_ASPECT_RATIO, areas
from gateway.domain.vision.sources import Sources

_TAGS = 2


@dataclass(frozen=True, slots=True)
class Ovis2_5(Fitted):  # noqa: N801 - the model's name
    """`unit` is the side in pixels of what becomes one token; areas are in pixels."""

    name: str
    unit: int
    min_pixels: int
    max_pixels: int

    @property
    def max_image_tokens(self) -> int:
        """Long strips just before a side vanishes keep one row; enlarging rounds both sides up."""
        area = max(self.max_pixels, self.min_pixels) // self.unit**2
        enlarged = self.min_pixels // self.unit**2
        return max(area, enlarged + math.isqrt(enlarged * MAX_ASPECT_RATIO) + 2 * MAX_ASPECT_RATIO) + _TAGS

    def tokens(self, size: Size) -> ImageTokens:
        refuse_empty(size)
        model_size, is_capped = self._resized(_prepared(size, self.unit))
        count = model_size.pixels // self.unit**2 + _TAGS
        # A side that vanishes leaves nothing to send: such an image is passed on as it is.
        if not model_size.pixels:
            return ImageTokens(count, 0, count, size)
        return ImageTokens(count, 0, count, model_size, is_capped)

    @property
    def step(self) -> int:
        return self.unit

    def _resized(self, size: Size) -> tuple[Size, bool]:
        width, height = (round(side / self.unit) * self.unit for side in (size.width, size.height))
        if width * height > self.max_pixels:
            divisor = math.sqrt(size.pixels / self.max_pixels)
            return Size(*(math.floor(s / divisor / self.unit) * self.unit for s in (size.width, size.height))), True
        if width * height < self.min_pixels:
            factor = math.sqrt(self.min_pixels / size.pixels)
            return Size(*(math.ceil(s * factor / self.unit) * self.unit for s in (size.width, size.height))), False
        return Size(width, height), False


def from_sources(name: str, read: Sources) -> Ovis2_5:
    patch = read.side("vit_config.patch_size", "patch_size", default=16)
    stride = read.whole("vit_config.hidden_stride", "hidden_stride", default=2)
    least, most = areas(read, 448**2, 1792**2)
    return Ovis2_5(name, patch * stride, min(least, most), most)


def _prepared(size: Size, unit: int) -> Size:
    width, height = size.width, size.height
    if min(width, height) >= unit:
        return Size(min(width, MAX_ASPECT_RATIO * height), min(height, MAX_ASPECT_RATIO * width))
    if height < width:
        return Size(round(unit / height * width), unit)
    return Size(unit, round(unit / width * height))
