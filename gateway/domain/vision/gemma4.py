"""Gemma 4: as many patches as the budget of soft tokens allows, in the image's own shape.

Every image, small ones too, is scaled until it holds the whole budget; sides are cut to whole units of 48 pixels
(3 x 3 patches, pooled into one token). A side that would vanish is kept at one unit. Start and end stand around it.
Source: transformers 5.19 `gemma4`, vLLM 0.32 `gemma4_mm.py`.
"""

import math
from dataclasses import dataclass

from gateway.domain.geometry import Size
from gateway.domain.vision.base import ImageTokens, refuse_empty
from gateway.domain.vision.fitting import Fitted, is_capped
from gateway.domain.vision.sources import Sources

_TAGS = 2


@dataclass(frozen=True, slots=True)
class Gemma4(Fitted):
    """`pool` patches of `patch` pixels along a side make one of at most `most_soft` tokens.

    There are no candidates for a smaller budget: an image sent smaller is enlarged again.
    """

    name: str
    patch: int
    pool: int
    most_soft: int

    @property
    def max_image_tokens(self) -> int:
        return self.most_soft + _TAGS

    def tokens(self, size: Size) -> ImageTokens:
        refuse_empty(size)
        unit = self.patch * self.pool
        most_patches = self.most_soft * self.pool**2
        scale = math.sqrt(most_patches / ((size.height / self.patch) * (size.width / self.patch)))
        # A side that is kept though it would vanish leaves the other one longer than the budget.
        columns, rows = (
            min(max(1, math.floor(side * scale / unit)), self.most_soft) for side in (size.width, size.height)
        )
        soft = min(columns * rows, self.most_soft)
        model_size = Size(columns * unit, rows * unit)
        return ImageTokens(soft + _TAGS, 0, soft, model_size, is_capped(size, model_size))


def from_sources(name: str, read: Sources) -> Gemma4:
    return Gemma4(
        name,
        patch=read.side("patch_size", default=16),
        pool=read.whole("pooling_kernel_size", default=3),
        most_soft=read.whole("max_soft_tokens", "image_seq_length", default=280),
    )
