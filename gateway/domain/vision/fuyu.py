"""Fuyu: rows of patches at the image's own size, each with a newline, shrunk only where it exceeds 1920 x 1080.

A side that vanishes on the way is an error of the processor.
Source: Fuyu-8B (blog of October 2023); transformers 5.19 `fuyu` (vLLM dropped the model after 0.25).
"""

from dataclasses import dataclass

from gateway.domain.geometry import Size
from gateway.domain.vision.base import ImageTokens, UnservableImageError, refuse_empty
from gateway.domain.vision.fitting import Fitted
from gateway.domain.vision.sources import Sources


@dataclass(frozen=True, slots=True)
class Fuyu(Fitted):
    """`patch` is its side in pixels, `canvas` what an image is shrunk into."""

    name: str
    patch: int
    canvas: Size

    @property
    def max_image_tokens(self) -> int:
        columns, rows = (-(-side // self.patch) for side in (self.canvas.width, self.canvas.height))
        return rows * (columns + 1)

    def tokens(self, size: Size) -> ImageTokens:
        refuse_empty(size)
        scale = min(self.canvas.height / size.height, self.canvas.width / size.width)
        shrunk = Size(min(int(size.width * scale), size.width), min(int(size.height * scale), size.height))
        if not shrunk.pixels:
            raise UnservableImageError(f"the image is {size}: shrunk into {self.canvas}, a side vanishes")
        columns, rows = (-(-side // self.patch) for side in (shrunk.width, shrunk.height))
        return ImageTokens(rows * (columns + 1), 0, rows * columns, shrunk, is_capped=shrunk != size)

    @property
    def step(self) -> int:
        return self.patch


def from_sources(name: str, read: Sources) -> Fuyu:
    canvas = Size(read.whole("size.width", default=1920), read.whole("size.height", default=1080))
    return Fuyu(name, read.side("patch_size", default=30), canvas)
