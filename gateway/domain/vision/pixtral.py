"""Pixtral, Mistral Small 3.x and LightOnOCR: rows of patches in the image's own shape, each with a break after it.

An image whose longer sides exceed the limit is shrunk into it, never enlarged; then its patches are counted, partly
filled ones too. The last break is the end of the image. The two ways of serving round differently, by one row or
column: Mistral's own tokenizer rounds sides half to even and keeps at least a pixel; the Hugging Face processor cuts
them to whole pixels and fails on a side that vanishes.
Source: Pixtral 12B (arXiv:2410.07073); mistral_common 1.13 `ImageEncoder`, transformers 5.19 `pixtral`, vLLM 0.32.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from gateway.domain.geometry import Size
from gateway.domain.vision.base import ImageTokens, UnservableImageError, refuse_empty
from gateway.domain.vision.fitting import Fitted
from gateway.domain.vision.sources import Sources


@dataclass(frozen=True, slots=True)
class Pixtral(Fitted):
    """`unit` is the side of what becomes one token (patch x merge), `most` the longest side, in pixels; `rounded` how a
    shrunk side becomes whole pixels.
    """

    name: str
    unit: int
    most: int
    rounded: Callable[[float], int]

    @property
    def max_image_tokens(self) -> int:
        rows = -(-self.most // self.unit)
        return rows * (rows + 1)

    def tokens(self, size: Size) -> ImageTokens:
        refuse_empty(size)
        scale = max(size.width / self.most, size.height / self.most)
        if scale > 1:
            size = Size(self.rounded(size.width / scale), self.rounded(size.height / scale))
            if not size.pixels:
                raise UnservableImageError("the image is too long: shrunk into the model's limit a side vanishes")
        columns, rows = (-(-side // self.unit) for side in (size.width, size.height))
        model_size = Size(columns * self.unit, rows * self.unit)
        return ImageTokens(rows * (columns + 1), 0, rows * columns, model_size, is_capped=scale > 1)

    @property
    def step(self) -> int:
        return self.unit


def by_transformers(name: str, read: Sources) -> Pixtral:
    """Keys of the Hugging Face processor; `spatial_merge_size` of config.json too."""
    patch = read.side("patch_size", "vision_config.patch_size", default=16)
    merge = read.whole("spatial_merge_size", default=1)
    most = read.whole("size.longest_edge", "longest_edge", "vision_config.image_size", default=1024)
    return Pixtral(name, patch * merge, most, math.floor)


def by_mistral(name: str, read: Sources) -> Pixtral:
    """Keys of Mistral's own params.json and tokenizer files."""
    patch = read.whole("image_patch_size", "vision_encoder.patch_size", "image.image_patch_size", default=16)
    merge = read.whole("spatial_merge_size", "vision_encoder.spatial_merge_size", "image.spatial_merge_size", default=1)
    most = read.whole(
        "max_image_size",
        "vision_encoder.max_image_size",
        "image.max_image_size",
        "vision_encoder.image_size",
        default=1024,
    )
    return Pixtral(name, patch * merge, most, _at_least_one)


def _at_least_one(side: float) -> int:
    return max(1, round(side))
