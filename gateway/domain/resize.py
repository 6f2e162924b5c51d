"""Which images are sent smaller, and how large: the same picture gets the same target at every turn.

A target is planned only where a cap acts and it has fewer pixels than the image (design: an image under every cap is
left alone, off the model's grid or not); the one exception is a side below the model's unit, which is brought to the
model's own size. Decisions depend on the image, the fixed policy and the number of images after trimming, so vLLM's
caches, keyed by the bytes of the picture, keep hitting. No pixels here: `imaging/` carries the plan out.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from gateway.domain.errors import Code, GatewayError
from gateway.domain.geometry import Size
from gateway.domain.image import ImageInfo, ImagePlan, Why
from gateway.domain.request import ImageRef
from gateway.domain.trim import ContextRoom
from gateway.domain.vision.base import ImageTokens, UnservableImageError, VisionFamily

REQUEST_HEADER = "x-gateway-resize"
OPT_OUT = "off"


class Preset(StrEnum):
    """Named maximum areas, for operators and for `x-gateway-resize`."""

    THUMBNAIL = "thumbnail"
    OCR = "ocr"
    DETAIL = "detail"

    @property
    def area_pixels(self) -> int:
        return {Preset.THUMBNAIL: 512**2, Preset.OCR: 1280**2, Preset.DETAIL: 1600**2}[self]


class Fit(StrEnum):
    """What becomes of an image that could never be served: brought under the limit, or left for the refusal."""

    SHRINK = "shrink"
    REFUSE = "refuse"


class Cap(StrEnum):
    """What made an image smaller: `ImagePlan.resize_reason`."""

    MODEL_MAXIMUM = "model_maximum"
    ENCODER_BUDGET = "encoder_budget"
    CONTEXT = "context"
    PRESET = "preset"
    MAX_TOKENS_PER_IMAGE = "max_tokens_per_image"
    MAX_TOKENS_PER_REQUEST = "max_tokens_per_request"
    PRESSURE = "pressure"


@dataclass(frozen=True, slots=True)
class ResizePolicy:
    """What the operator allows, and the upstream's fixed limit.

    The two `max_tokens_*` are limits in placeholder tokens: an image that cannot be brought under them is refused.
    `preset` is a wish: an opted-out request goes at full cost. `encoder_budget` is the most embeddings one image may
    have (None: unknown). `honour_detail` reads `detail: low` as the thumbnail preset. Images with a side below
    `min_side` pixels, or below the unit of the model, are brought to the size that the model itself would give them.
    `pressed` is the preset that an image gets because of pressure (pressure.py), a wish too.
    """

    max_tokens_per_image: int | None = None
    max_tokens_per_request: int | None = None
    preset: Preset | None = None
    fit: Fit = Fit.SHRINK
    honour_detail: bool = False
    encoder_budget: int | None = None
    min_side: int = 1
    is_opted_out: bool = False
    pressed: Preset | None = None

    def for_request(self, asked: str | None) -> "ResizePolicy":
        """The policy with what a request's `x-gateway-resize` asks for, which is never more than allowed.

        Raises GatewayError (invalid_request) for another word.
        """
        if asked is None:
            return self
        if asked == OPT_OUT:
            return replace(self, is_opted_out=True)
        if asked not in set(Preset):
            words = ", ".join([OPT_OUT, *Preset])
            raise GatewayError(
                Code.INVALID_REQUEST, f"{REQUEST_HEADER} can be {words}, and nothing else.", param=REQUEST_HEADER
            )
        return replace(self, preset=_smaller(self.preset, Preset(asked)))


_NOTHING_PRESSED: Mapping[int, Preset] = {}


class _Ceiling(NamedTuple):
    """A cap on one image in placeholder tokens. A hard one refuses what it cannot bring under, where that is sure to
    cost more.
    """

    tokens: int
    cap: Cap
    is_hard: bool


def plan_images(
    infos: Sequence[ImageInfo],
    refs: Sequence[ImageRef],
    policy: ResizePolicy,
    family: VisionFamily,
    pressed: Mapping[int, Preset] = _NOTHING_PRESSED,
) -> tuple[ImagePlan, ...]:
    """One plan per image that stays in the request, in its order.

    `infos[i]` describes `refs[i]`; `pressed` holds the presets that pressure asks for, by ordinal. Raises GatewayError
    with the image's path: invalid_image_dimensions where the model's processor refuses the size, image_too_large or
    too_many_images where a limit cannot be met.
    """
    return tuple(
        _plan_image(info, ref, _for_image(policy, ref, pressed), len(infos), family)
        for info, ref in zip(infos, refs, strict=True)
    )


def shrink_to_context(
    plans: Sequence[ImagePlan], room: ContextRoom, policy: ResizePolicy, family: VisionFamily
) -> tuple[ImagePlan, ...]:
    """The plans with every image that alone exceeds the context brought under it.

    Caps are `room.limit_tokens` halved until all fits, so a picture keeps its size while the text around it grows.
    Unchanged where nothing is too large alone, where no cap makes the request fit, or where policy says so.
    """
    room_tokens = room.image_tokens
    costs = [family.tokens(plan.target).prompt for plan in plans]
    if policy.fit is Fit.REFUSE or policy.is_opted_out or max(costs, default=0) <= room_tokens:
        return tuple(plans)
    for halvings in range(1, room.limit_tokens.bit_length()):
        ceiling = room.limit_tokens >> halvings
        shrunk = [
            _under(plan, ceiling, family) if cost > room_tokens else plan
            for plan, cost in zip(plans, costs, strict=True)
        ]
        if sum(family.tokens(plan.target).prompt for plan in shrunk) <= room_tokens:
            return tuple(shrunk)
    return tuple(plans)


def _under(plan: ImagePlan, ceiling: int, family: VisionFamily) -> ImagePlan:
    target = _target(plan, ceiling, family)
    return plan if target is None else _resized(plan, target, Cap.CONTEXT, family)


def _for_image(policy: ResizePolicy, ref: ImageRef, pressed: Mapping[int, Preset]) -> ResizePolicy:
    if policy.honour_detail and ref.detail == "low":
        policy = replace(policy, preset=_smaller(policy.preset, Preset.THUMBNAIL))
    return replace(policy, pressed=pressed[ref.ordinal]) if ref.ordinal in pressed else policy


def _smaller(allowed: Preset | None, asked: Preset) -> Preset:
    return asked if allowed is None else min(allowed, asked, key=lambda preset: preset.area_pixels)


def _plan_image(info: ImageInfo, ref: ImageRef, policy: ResizePolicy, images: int, family: VisionFamily) -> ImagePlan:
    cost = _cost(info.size, ref, family)
    plan = _at_model_size(
        ImagePlan(ref.ordinal, info, info.size, cost.placeholder, cost.placeholder), cost, policy, family
    )
    uncertain = cost.prompt - cost.least_prompt
    for ceiling in sorted(_ceilings(plan.target, cost, policy, images)):
        if plan.tokens <= ceiling.tokens:
            break
        target = None if policy.is_opted_out else _target(plan, ceiling.tokens, family)
        if target is not None:
            return _resized(plan, target, ceiling.cap, family)
        if ceiling.is_hard and plan.tokens - uncertain > ceiling.tokens:
            raise _refusal(plan, ceiling, policy, ref.param)
    return plan


def _cost(size: Size, ref: ImageRef, family: VisionFamily) -> ImageTokens:
    try:
        return family.tokens(size)
    except UnservableImageError as unservable:
        raise GatewayError(
            Code.INVALID_IMAGE_DIMENSIONS, f"{ref.param}: {unservable}.", param=ref.param
        ) from unservable


def _at_model_size(plan: ImagePlan, cost: ImageTokens, policy: ResizePolicy, family: VisionFamily) -> ImagePlan:
    """The image at the size the model would give it, where that must or may be done here."""
    size = plan.info.size
    is_small = min(size.width, size.height) < max(family.min_side, policy.min_side)
    if not is_small and (policy.is_opted_out or not cost.is_capped):
        return plan
    try:
        sent = family.tokens(cost.model_size)
    except UnservableImageError:
        return plan  # rounding has made it longer than what the model takes
    if is_small:
        info = replace(plan.info, why=plan.info.why | {Why.TOO_SMALL})
        return replace(plan, info=info, target=cost.model_size, tokens=sent.placeholder)
    if sent.model_size == cost.model_size:
        return _resized(plan, cost.model_size, Cap.MODEL_MAXIMUM, family)
    return plan


def _ceilings(size: Size, cost: ImageTokens, policy: ResizePolicy, images: int) -> Iterator[_Ceiling]:
    if policy.max_tokens_per_image is not None:
        yield _Ceiling(policy.max_tokens_per_image, Cap.MAX_TOKENS_PER_IMAGE, is_hard=True)
    if policy.max_tokens_per_request is not None:
        # Divided by the next power of two, so that earlier pictures keep their size while a conversation grows.
        share = policy.max_tokens_per_request >> (images - 1).bit_length()
        yield _Ceiling(share, Cap.MAX_TOKENS_PER_REQUEST, is_hard=True)
    for preset, cap in (policy.preset, Cap.PRESET), (policy.pressed, Cap.PRESSURE):
        if preset is not None and size.pixels > preset.area_pixels:
            worth = cost.placeholder * preset.area_pixels // cost.model_size.pixels
            yield _Ceiling(worth, cap, is_hard=False)
    if policy.fit is Fit.SHRINK and policy.encoder_budget is not None and cost.encoder > policy.encoder_budget:
        yield _Ceiling(policy.encoder_budget, Cap.ENCODER_BUDGET, is_hard=False)


def _target(plan: ImagePlan, ceiling: int, family: VisionFamily) -> Size | None:
    """A size under `ceiling` in the image's own shape, with fewer pixels than planned so far, or None."""
    target = family.shrink(plan.info.size, ceiling)
    return target if target is not None and target.pixels < plan.target.pixels else None


def _resized(plan: ImagePlan, target: Size, cap: Cap, family: VisionFamily) -> ImagePlan:
    info = replace(plan.info, why=plan.info.why | {Why.RESIZE})
    return replace(plan, info=info, target=target, tokens=family.tokens(target).placeholder, resize_reason=cap)


def _refusal(plan: ImagePlan, ceiling: _Ceiling, policy: ResizePolicy, param: str) -> GatewayError:
    is_shared = ceiling.cap is Cap.MAX_TOKENS_PER_REQUEST
    limit = f"{ceiling.cap} allows {ceiling.tokens}"
    if is_shared:
        limit = f"its share of {ceiling.cap} ({policy.max_tokens_per_request}) is {ceiling.tokens}"
    help_text = "the model spends more on every size of this shape. Send fewer images or crop this one"
    if policy.is_opted_out:
        help_text = f"{REQUEST_HEADER} is '{OPT_OUT}'. Leave it out, or send a smaller image"
    return GatewayError(
        Code.TOO_MANY_IMAGES if is_shared else Code.IMAGE_TOO_LARGE,
        f"The image ({plan.info.size}) costs {plan.tokens} tokens, {limit}, and {help_text}.",
        param=param,
    )
