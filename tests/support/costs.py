"""Requests whose cost is easily seen: a family with one token for each 100 x 100 pixels, and what estimate() makes."""

from dataclasses import dataclass

from gateway.domain.cost import EngineLimits, RequestCost, estimate
from gateway.domain.geometry import Size
from gateway.domain.image import ImageFormat, ImageInfo, ImagePlan
from gateway.domain.kv_layout import KvCharge
from gateway.domain.quantities import Bounds, ceil_div
from gateway.domain.request import ImageRef, MessageOutline, Span, VisionRequest
from gateway.domain.vision.base import ImageTokens


@dataclass(frozen=True)
class SquareTokens:
    """A family with one token for each 100 x 100 pixels and two markers around an image."""

    name: str = "squares"
    min_side: int = 1
    max_image_tokens: int = 10_000

    def tokens(self, size: Size) -> ImageTokens:
        count = (size.width // 100) * (size.height // 100)
        return ImageTokens(placeholder=count, markers=2, encoder=count, model_size=size)

    def shrink(self, size: Size, max_tokens: int) -> Size | None:
        side = 100 * int(max_tokens**0.5)
        return Size(side, side) if side else None


FAMILY = SquareTokens()
NOTHING = Bounds.exact(0)
UNKNOWN = PLAIN = EngineLimits()
HYBRID = EngineLimits(
    kv_charges=(KvCharge(1, 16), KvCharge(5, 16, most_blocks=9, later_blocks=6), KvCharge(1, 32)),
)
"""One group keeps every token, five have a window, and one keeps every token in longer blocks."""


def blocks_now(prompt_tokens: int, generated_tokens: int, limits: EngineLimits) -> int:
    """What an engine holds of one sequence, and while it computes the prompt at most."""
    tokens, is_later = prompt_tokens + generated_tokens, generated_tokens > 0
    return sum(each.within(ceil_div(tokens, each.block_tokens), 1, is_later=is_later) for each in limits.charges)


def request_with(*sizes: Size, **fields) -> tuple[VisionRequest, list[ImagePlan], list[ImageTokens]]:
    refs = tuple(
        ImageRef(i, ("messages", i, "content", 0), f"messages[{i}].content[0].image_url.url", Span(0, 0))
        for i in range(len(sizes))
    )
    messages = tuple(MessageOutline("user", 0, (i,)) for i in range(len(sizes))) or (MessageOutline("user", 0),)
    tokens = [FAMILY.tokens(size) for size in sizes]
    plans = [
        ImagePlan(
            i, ImageInfo(ImageFormat.PNG, size, size, 1, 1, 1, is_lossy=False), size, t.placeholder, t.placeholder
        )
        for i, (size, t) in enumerate(zip(sizes, tokens, strict=True))
    ]
    return VisionRequest("m", messages=messages, images=refs, **fields), plans, tokens


def cost_of(*sizes: Size, text=NOTHING, output_tokens=16, limits=UNKNOWN, **fields) -> RequestCost:
    request, plans, tokens = request_with(*sizes, **fields)
    return estimate(request, plans, tokens, text=text, output_tokens=output_tokens, limits=limits, body_bytes=1_000)
