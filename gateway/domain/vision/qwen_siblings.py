"""GLM-4.1V to GLM-4.6V and GLM-OCR, PaddleOCR-VL, Keye-VL and ERNIE-4.5-VL: Qwen2-VL's rule with a step ahead.

What they do to an image with a side below one unit, before Qwen's own resize (qwen_vl.py), is all that tells them
apart; the test of the aspect ratio comes after it.
- GLM (arXiv:2507.01006): both sides grow by the factor that the shorter one needs, cut to whole pixels. An image counts
  as the two frames of one temporal patch, so half of each configured area is a picture's.
- PaddleOCR-VL (arXiv:2510.14528) and Keye-VL (arXiv:2507.01949): first the height, then the width is brought to one
  unit and the other side follows, rounded.
- ERNIE-4.5-VL: nothing; its template writes the picture's number before it.
Source: transformers 5.19 `glm4v`, `glm46v`, `paddleocr_vl`, `ernie4_5_vl_moe`; vLLM 0.32 `keye.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass

from gateway.domain.geometry import Size
from gateway.domain.vision.base import BoundedTokens, ImageTokens, UnservableImageError, refuse_empty
from gateway.domain.vision.qwen_vl import QwenVL, areas
from gateway.domain.vision.sources import Sources

_NUMBER_BYTES = len("Picture 999:")
"""Before an image of ERNIE; at most one token each."""


@dataclass(frozen=True, slots=True)
class QwenSibling:
    """`qwen` prices what `prepare` makes of an image (it is given the unit in pixels).

    Beside Qwen's own markers there may be as many as `uncertain`.
    """

    qwen: QwenVL
    prepare: Callable[[Size, int], Size]
    uncertain: int = 0

    @property
    def name(self) -> str:
        return self.qwen.name

    @property
    def markers(self) -> int:
        return self.qwen.markers + self.uncertain

    @property
    def min_side(self) -> int:
        return self.qwen.unit

    @property
    def max_image_tokens(self) -> int:
        return self.qwen.max_image_tokens

    def tokens(self, size: Size) -> ImageTokens:
        refuse_empty(size)
        cost = self.qwen.tokens(self.prepare(size, self.qwen.unit))
        if not self.uncertain:
            return cost
        count, markers = cost.placeholder, self.markers
        return BoundedTokens(count, markers, count, cost.model_size, cost.is_capped, uncertain=self.uncertain)

    def shrink(self, size: Size, max_tokens: int) -> Size | None:
        """As Qwen's, whose targets have whole units and so are left alone by the step ahead."""
        refuse_empty(size)
        try:
            if self.tokens(size).placeholder <= max_tokens:
                return size
        except UnservableImageError:
            pass  # too long: Qwen's rule makes it one that the model takes
        return self.qwen.shrink(self.prepare(size, self.qwen.unit), max_tokens)


def glm(name: str, read: Sources) -> QwenSibling:
    patch, merge = read.side("patch_size", default=14), read.whole("merge_size", default=2)
    frames = read.whole("temporal_patch_size", default=2)
    least, most = areas(read, 12544, 11760000)
    # Shipped areas are multiples of two; the model compares twice the picture's area with the whole.
    return QwenSibling(QwenVL(name, patch * merge, least // frames, most // frames), _both_grown)


def paddleocr_vl(name: str, read: Sources) -> QwenSibling:
    return QwenSibling(_qwen(name, read, 147456, 2359296), _height_then_width)


def keye_vl(name: str, read: Sources) -> QwenSibling:
    return QwenSibling(_qwen(name, read, 3136, 1003520), _height_then_width)


def ernie4_5_vl(name: str, read: Sources) -> QwenSibling:
    return QwenSibling(_qwen(name, read, 3136, 4842768), _unchanged, uncertain=_NUMBER_BYTES)


def _qwen(name: str, read: Sources, least: int, most: int) -> QwenVL:
    patch, merge = read.side("patch_size", default=14), read.whole("merge_size", default=2)
    least, most = areas(read, least, most)
    return QwenVL(name, patch * merge, least, most)


def _unchanged(size: Size, _unit: int) -> Size:
    return size


def _both_grown(size: Size, unit: int) -> Size:
    if min(size.width, size.height) >= unit:
        return size
    scale = max(unit / size.height, unit / size.width)
    return Size(int(size.width * scale), int(size.height * scale))


def _height_then_width(size: Size, unit: int) -> Size:
    width, height = size.width, size.height
    if height < unit:
        width, height = round(width * unit / height), unit
    if width < unit:
        width, height = unit, round(height * unit / width)
    return Size(width, height)
