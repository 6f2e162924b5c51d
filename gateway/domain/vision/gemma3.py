"""Gemma 3: 256 soft tokens for the image, and as much again for each crop where pan-and-scan is switched on.

`<start_of_image>`, `<end_of_image>` and a blank line before and after make it 260. Pan-and-scan, off in the shipped
files, cuts a long image into 2 to 4 crops along its long side and writes an English sentence around them.
Source: Gemma 3 (arXiv:2503.19786); vLLM 0.32 `gemma3_mm.py`.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from gateway.domain.geometry import Size
from gateway.domain.vision.base import BoundedTokens, ImageTokens, refuse_empty
from gateway.domain.vision.fitting import Fitted, is_capped
from gateway.domain.vision.sources import MOST_TILES, Sources

_STRUCTURE = 4
_MERGING = 1
"""Right after a newline of the text, the first blank line melts into it."""
_SENTENCE_BYTES = 128
"""Of "Here is the original image ... and here are some crops to help you see better ...", at most one token each."""


@dataclass(frozen=True, slots=True)
class Gemma3(Fitted):
    """`least_crop` is the least side of a crop in pixels, `least_ratio` the shape from which an image is cut up."""

    name: str
    side: int
    soft: int
    pans: bool
    least_crop: int
    most_crops: int
    least_ratio: float

    @property
    def markers(self) -> int:
        return _SENTENCE_BYTES if self.pans else 0

    @property
    def max_image_tokens(self) -> int:
        return (self.soft + _STRUCTURE) * (1 + (self.most_crops if self.pans else 0))

    def tokens(self, size: Size) -> ImageTokens:
        refuse_empty(size)
        crops = self._crops(size) if self.pans else 0
        parts, sentence = 1 + crops, _SENTENCE_BYTES if crops else 0
        model_size = Size(self.side, self.side)
        return BoundedTokens(
            parts * (self.soft + _STRUCTURE),
            sentence,
            parts * self.soft,
            size if crops else model_size,
            is_capped=not crops and is_capped(size, model_size),
            uncertain=parts * _MERGING + sentence,
        )

    def shapes(self, size: Size, /) -> Iterator[Size]:
        """Pan-and-scan leaves alone what has crops too small, or a shape too square."""
        short, long = sorted((size.width, size.height))
        yield _shaped(size, self.least_crop - 1, long * (self.least_crop - 1) // short)
        for crops in range(1, self.most_crops + 1):
            yield _shaped(size, short, min(long, (crops + 1) * self.least_crop - 1))
        yield _shaped(size, short, math.ceil(short * self.least_ratio) - 1)

    def _crops(self, size: Size) -> int:
        short, long = sorted((size.width, size.height))
        ratio = long / short
        if ratio < self.least_ratio:
            return 0
        crops = min(int(long / self.least_crop), int(ratio + 0.5))
        crops = min(max(2, crops), self.most_crops)
        return 0 if min(math.ceil(long / crops), short) < self.least_crop else crops


def _shaped(size: Size, short: int, long: int) -> Size:
    short, long = max(1, short), max(1, long)
    return Size(long, short) if size.width >= size.height else Size(short, long)


def from_sources(name: str, read: Sources) -> Gemma3:
    return Gemma3(
        name,
        side=read.side("size", default=896),
        soft=read.whole("image_seq_length", "mm_tokens_per_image", default=256),
        pans=read.flag("do_pan_and_scan", default=False),
        least_crop=read.whole("pan_and_scan_min_crop_size", default=256),
        most_crops=read.whole("pan_and_scan_max_num_crops", default=4, most=MOST_TILES),
        least_ratio=read.real("pan_and_scan_min_ratio_to_activate", default=1.2),
    )
