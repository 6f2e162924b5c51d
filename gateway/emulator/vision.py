"""Visual tokens of the Qwen-VL families from an image's size. The emulator's own reading of the smart-resize rule.

Source: transformers `qwen2_vl.image_processing_qwen2_vl.smart_resize`, as vLLM's `Qwen2VLProcessingInfo` uses it.
"""

import math
from dataclasses import dataclass

MAX_ASPECT_RATIO = 200


class AspectRatioError(ValueError):
    """The long side is more than 200 times the short one; the processor refuses the image."""


@dataclass(frozen=True, slots=True)
class Family:
    """How a model family cuts images: sides become multiples of `unit_pixels`, areas stay within both bounds."""

    processor: str
    root: str
    unit_pixels: int
    min_pixels: int
    max_pixels: int

    def visual_tokens(self, width: int, height: int) -> int:
        """Embeddings of one image, without its start and end marker. Raises AspectRatioError."""
        if max(width, height) > MAX_ASPECT_RATIO * min(width, height):
            raise AspectRatioError(f"{width}x{height}")
        columns, rows = self._grid(width, height)
        return columns * rows

    def _grid(self, width: int, height: int) -> tuple[int, int]:
        """Columns and rows of units. Halves go to the even neighbour, as Python's round does.

        A side below half a unit rounds to 0, so the area is 0 and the image "grows" to the minimum area: a long thin
        image becomes smaller by it.
        """
        unit = self.unit_pixels
        columns, rows = round(width / unit), round(height / unit)
        area = columns * rows * unit * unit
        if area > self.max_pixels:
            shrink = math.sqrt(height * width / self.max_pixels)
            return (max(1, math.floor(width / shrink / unit)), max(1, math.floor(height / shrink / unit)))
        if area < self.min_pixels:
            grow = math.sqrt(self.min_pixels / (height * width))
            return math.ceil(width * grow / unit), math.ceil(height * grow / unit)
        return columns, rows


FAMILIES = {
    "qwen2_vl": Family("Qwen2VLProcessor", "qwen2_vl", 28, 3_136, 12_845_056),
    "qwen2_5_vl": Family("Qwen2_5_VLProcessor", "qwen2_5_vl", 28, 3_136, 12_845_056),
    "qwen3_vl": Family("Qwen3VLProcessor", "qwen3_vl", 32, 65_536, 16_777_216),
}
