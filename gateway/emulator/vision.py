"""Visual tokens of the Qwen-VL families from sizes of images and videos. The emulator's own reading of smart-resize.

Source: transformers `qwen2_vl.image_processing_qwen2_vl.smart_resize`, as vLLM's `Qwen2VLProcessingInfo` uses it, and
`video_processing_{qwen2_vl,qwen3_vl}.py`.
"""

import math
from dataclasses import dataclass

MAX_ASPECT_RATIO = 200
PATCH_FRAMES = 2
"""Frames of a video that are one patch in time."""


class AspectRatioError(ValueError):
    """The long side is more than 200 times the short one; the processor refuses the image."""


class TooShortError(ValueError):
    """The processor makes no patch of so few frames."""


@dataclass(frozen=True, slots=True)
class VideoArea:
    """Between these areas all frames of a video are brought together."""

    min_pixels: int
    max_pixels: int


@dataclass(frozen=True, slots=True)
class Family:
    """How a model family cuts images: sides become multiples of `unit_pixels`, areas stay within both bounds. Frames of
    videos are images, unless there is a `video_area`; then the second is written before each patch in time.
    """

    processor: str
    root: str
    unit_pixels: int
    min_pixels: int
    max_pixels: int
    video_area: VideoArea | None = None

    @property
    def has_timestamps(self) -> bool:
        return self.video_area is not None

    def video_grid(self, frames: int, width: int, height: int) -> tuple[int, int]:
        """Patches in time, and the embeddings of each. Raises AspectRatioError or TooShortError."""
        patches = (frames + 1) // PATCH_FRAMES
        if self.video_area is None:
            return patches, self.visual_tokens(width, height)
        return patches, self._shared_units(self.video_area, frames, width, height)

    def _shared_units(self, area: VideoArea, frames: int, width: int, height: int) -> int:
        unit = self.unit_pixels
        if frames < PATCH_FRAMES:
            raise TooShortError
        if min(width, height) < unit:
            grow = max(unit / height, unit / width)
            width, height = int(width * grow), int(height * grow)
        if max(width, height) > MAX_ASPECT_RATIO * min(width, height):
            raise AspectRatioError(f"{width}x{height}")
        columns, rows = round(width / unit), round(height / unit)
        pixels = round(frames / PATCH_FRAMES) * PATCH_FRAMES * columns * rows * unit * unit
        if pixels > area.max_pixels:
            shrink = math.sqrt(frames * height * width / area.max_pixels)
            return max(1, math.floor(width / shrink / unit)) * max(1, math.floor(height / shrink / unit))
        if pixels < area.min_pixels:
            grow = math.sqrt(area.min_pixels / (frames * height * width))
            return math.ceil(width * grow / unit) * math.ceil(height * grow / unit)
        return columns * rows

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
    "qwen3_vl": Family("Qwen3VLProcessor", "qwen3_vl", 32, 65_536, 16_777_216, video_area=VideoArea(4_096, 25_165_824)),
}
