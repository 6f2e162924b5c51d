"""What a request will cost the engine, before anything is sent. Which requests can never fit: never_fits.py.

Only arithmetic over counts that others made: tokens of images (vision/), of text (a tokenizer or a learned ratio).
What is held of which capacity belongs to holdings.py, what a request is likely to answer to learning.py.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

from gateway.domain.geometry import Size
from gateway.domain.growth import OutputGrowth
from gateway.domain.image import ImagePlan
from gateway.domain.kv_layout import KvCharge, pool_tokens_of
from gateway.domain.media import LEAST_TOKENS, MediaCost
from gateway.domain.output import most_output_tokens
from gateway.domain.quantities import Amounts, Bounds, ceil_div
from gateway.domain.request import VisionRequest
from gateway.domain.vision.base import ImageTokens


def growth_room_blocks(pool_blocks: int) -> int:
    """Of a pool, what is kept free for answers that outgrow their reservation."""
    return pool_blocks // 20


class EngineLimits(NamedTuple):
    """What one engine can hold. None: unknown, and then neither enforced nor a reason for a 400.

    `kv_blocks` is vLLM's `num_gpu_blocks` less the one block it keeps for itself. `kv_groups` counts the groups of
    layers that each need blocks of their own; each is charged as `kv_charges` say, in full where these are empty, and
    where the number is unknown, one is charged. Of several engines (data parallel) `kv_blocks` is the sum and
    `kv_blocks_of_one` what the smallest of them has: no request is spread over two. None there: there is one engine.
    A server without a KV cache has no `kv_blocks`.
    `sequences` is what may be generated at the same time.
    """

    max_model_len: int | None = None
    kv_blocks: int | None = None
    kv_blocks_of_one: int | None = None
    kv_block_tokens: int = 16
    kv_groups: int | None = None
    encoder_budget_tokens: int | None = None
    sequences: int | None = None
    prefix_caching: bool = True
    kv_charges: tuple[KvCharge, ...] = ()

    @property
    def kv_pool_tokens(self) -> int | None:
        """Tokens of the longest request that the pool could hold: a bound, as only one group is sure to keep them all
        where the layout is not known.
        """
        blocks = self.largest_kv_blocks
        if blocks is None:
            return None
        return pool_tokens_of(self.kv_charges, blocks) if self.kv_charges else blocks * self.kv_block_tokens

    @property
    def largest_kv_blocks(self) -> int | None:
        """Blocks that one request alone could hold, on whichever engine it comes to."""
        return self.kv_blocks if self.kv_blocks_of_one is None else self.kv_blocks_of_one

    @property
    def charged_kv_groups(self) -> int:
        return self.kv_groups or 1

    @property
    def charges(self) -> tuple[KvCharge, ...]:
        return self.kv_charges or (KvCharge(self.charged_kv_groups, self.kv_block_tokens),)

    @property
    def has_windows(self) -> bool:
        """Some groups hold only the end of a sequence."""
        for charge in self.kv_charges:  # noqa: SIM110  for each request, and a generator is slow
            if charge.most_blocks is not None:
                return True
        return False

    @property
    def admission_kv_blocks(self) -> int | None:
        """Blocks that may be reserved: a twentieth of the pool stays free for answers that outgrow theirs."""
        return None if self.kv_blocks is None else self.kv_blocks - growth_room_blocks(self.kv_blocks)


class Uncertainty(StrEnum):
    """Why it is not known what the images of a request cost, but only what between."""

    UNKNOWN_FAMILY = "unknown_family"
    DOUBTED_FAMILY = "doubted_family"
    """The server counts pictures otherwise than the family that was named."""
    MORE_THAN_SIZE = "more_than_size"


class VisualBounds(NamedTuple):
    """Prompt tokens of all images of a request. Its place is kept for the upper, nothing is refused for more than the
    lower.
    """

    lower: int
    upper: int
    why: Uncertainty

    def __str__(self) -> str:
        return f"lower={self.lower}; upper={self.upper}; why={self.why}"


class ImageCost(NamedTuple):
    """One image as it will be sent. `prompt_tokens` include the markers around it; both counts are upper bounds, and
    `least_encoder_tokens` are sure to come.
    """

    param: str
    size: Size
    prompt_tokens: int
    encoder_tokens: int
    least_encoder_tokens: int


class RequestCost(NamedTuple):
    """All that admission and `estimate` need to know.

    `prompt_tokens` = text + images + media + ids over all `prompts`, after vLLM has truncated them where the client
    asks for that (those beside it are before; of `visual_tokens` some may not come, and what comes of `media` is not
    known before); `output_tokens` are reserved for each of the `answers` (prompts x n). `amounts` is what the request
    will hold, of which `prefill_kv_blocks` only until its prompts are computed; `body_bytes` what it holds while it
    waits. `prompt_param` is the path that errors about the whole prompt name. Without `needs_engine` nothing is held of
    the engine and nothing is too large for it.
    """

    prompt_tokens: Bounds
    text_tokens: Bounds
    visual_tokens: int
    output_tokens: int
    prompts: int
    answers: int
    amounts: Amounts
    growth: OutputGrowth
    images: tuple[ImageCost, ...] = ()
    body_bytes: int = 0
    prompt_param: str | None = None
    needs_engine: bool = True
    uncertain_visual_tokens: int = 0
    prefill_kv_blocks: int = 0
    media: tuple[MediaCost, ...] = ()

    @property
    def media_tokens(self) -> int:
        """Reserved for videos and audio: an upper bound."""
        return sum(each.prompt_tokens for each in self.media)

    @property
    def uncertain_media_tokens(self) -> int:
        """Those of them that may never come."""
        return self.media_tokens - LEAST_TOKENS * len(self.media)

    @property
    def largest_image_encoder_tokens(self) -> int:
        """Those that are sure to come."""
        return max((image.least_encoder_tokens for image in self.images), default=0)

    @property
    def least_tokens(self) -> int:
        """Lower bound of what the longest single sequence needs: its prompt and, where it answers, one token.

        With several prompts only their sum is known, and the longest is at least their mean.
        """
        return ceil_div(self.prompt_tokens.lower, self.prompts) + min(1, self.output_tokens)


def kv_blocks_needed(
    prompt_tokens: int,
    output_tokens: int,
    limits: EngineLimits,
    *,
    prompts: int = 1,
    n: int = 1,
    is_later: bool = False,
) -> int:
    """Blocks for `prompts` prompts of `prompt_tokens` in all, each with `n` answers of `output_tokens`.

    `is_later`: once the prompts are computed, and what lies before the windows of groups that have one is gone.
    """
    charges = limits.charges
    if len(charges) == 1 and charges[0].most_blocks is None:  # of nearly all models
        only = charges[0]
        return only.groups * _whole_blocks(prompt_tokens, output_tokens, limits, prompts, n, only.block_tokens)
    blocks = 0
    for charge in charges:
        whole = _whole_blocks(prompt_tokens, output_tokens, limits, prompts, n, charge.block_tokens)
        blocks += charge.within(whole, prompts * n, is_later=is_later)
    return blocks


def _whole_blocks(
    prompt_tokens: int, output_tokens: int, limits: EngineLimits, prompts: int, n: int, block_tokens: int
) -> int:
    """Of one group that keeps every token.

    A single answer goes on in the last block of its prompt. With prefix caching n answers share their prompt, all but
    its last, partly filled block: hence the one block more for each answer. Without it each holds the whole
    (vllm/v1/core/kv_cache_manager.py).
    """
    if n == 1:
        return (prompt_tokens + prompts * (output_tokens + block_tokens - 1)) // block_tokens
    # The sum of each prompt's rounded-up blocks is at most this; for one prompt it is exact.
    prompt_blocks = (prompt_tokens + prompts * (block_tokens - 1)) // block_tokens
    answer_blocks = ceil_div(output_tokens, block_tokens) + 1 if output_tokens else 0
    copies = 1 if limits.prefix_caching else n
    return copies * prompt_blocks + prompts * n * answer_blocks


def estimate(
    request: VisionRequest,
    plans: Sequence[ImagePlan],
    image_tokens: Sequence[ImageTokens],
    *,
    text: Bounds,
    output_tokens: int,
    limits: EngineLimits,
    body_bytes: int = 0,
    media: Sequence[MediaCost] = (),
) -> RequestCost:
    """The cost of `request` with its images as planned (`image_tokens` beside `plans`, at their target size)."""
    # Most requests have no image, and even empty loops are half of this function's time then.
    images = _image_costs(request, plans, image_tokens) if plans else ()
    visual_tokens = sum(image.prompt_tokens for image in images) if images else 0
    whole = text + (visual_tokens + request.prompt_token_ids)
    uncertain = sum(tokens.prompt - tokens.least_prompt for tokens in image_tokens) if images else 0
    if uncertain:
        whole = whole._replace(lower=whole.lower - uncertain)
    bounded: tuple[MediaCost, ...] = ()
    media_tokens = 0
    if media:
        bounded = tuple(_servable(each, limits) for each in media)
        whole = _with_media(whole, bounded, output_tokens, limits)
        media_tokens = sum(each.prompt_tokens for each in bounded)
    prompt_tokens = _truncated(whole, visual_tokens + media_tokens, request, limits)
    # Nothing longer than the context is ever served, so no more need be kept for what may be shorter.
    kept = _within_context(prompt_tokens, request, limits) if uncertain else prompt_tokens.expected
    answers = request.prompts * request.n
    amounts = _amounts(request, kept, output_tokens, images, bounded, limits)
    return RequestCost(
        prompt_tokens=prompt_tokens,
        text_tokens=text,
        visual_tokens=visual_tokens,
        output_tokens=output_tokens,
        prompts=request.prompts,
        answers=answers,
        amounts=amounts,
        growth=_growth(request, kept, output_tokens, limits),
        images=images,
        body_bytes=body_bytes,
        prompt_param=request.prompt_name if request.messages else None,
        needs_engine=request.needs_engine,
        uncertain_visual_tokens=uncertain,
        prefill_kv_blocks=_prefill_kv_blocks(request, kept, output_tokens, amounts, limits),
        media=bounded,
    )


def _growth(request: VisionRequest, prompt_tokens: int, output_tokens: int, limits: EngineLimits) -> OutputGrowth:
    prompts, n, block_tokens = request.prompts, request.n, limits.kv_block_tokens
    answers = prompts * n
    tokens = prompt_tokens + answers * output_tokens
    growing = unfolding = 0
    for charge in limits.charges:
        is_alike = charge.block_tokens == block_tokens  # longer blocks are needed less often than it would be taken to
        if charge.later_blocks is None:
            growing += charge.groups
            unfolding += charge.groups if is_alike else 0
            continue
        if charge.has_room(ceil_div(tokens, charge.block_tokens), answers):
            growing += charge.groups
        if is_alike and charge.keeps_all(
            _whole_blocks(prompt_tokens, output_tokens, limits, prompts, n, block_tokens), answers
        ):
            unfolding += charge.groups
    return OutputGrowth(
        output_tokens * answers,
        block_tokens,
        growing,
        answers,
        most_output_tokens(request, prompt_tokens // prompts, limits.max_model_len),
        -tokens % block_tokens if answers == 1 else 0,
        unfolding,
    )


def _servable(media: MediaCost, limits: EngineLimits) -> MediaCost:
    """What vLLM refuses before it holds anything need not be reserved: items longer than the context, and such as its
    encoder cannot take at once.
    """
    context = media.prompt_tokens if limits.max_model_len is None else limits.max_model_len
    budget = media.encoder_tokens if limits.encoder_budget_tokens is None else limits.encoder_budget_tokens
    return media._replace(
        prompt_tokens=min(media.prompt_tokens, context), encoder_tokens=min(media.encoder_tokens, budget, context)
    )


def _with_media(whole: Bounds, media: Sequence[MediaCost], output_tokens: int, limits: EngineLimits) -> Bounds:
    """The whole prompt with its videos and audio, of which the most is reserved that vLLM would serve."""
    most = sum(each.prompt_tokens for each in media)
    lower, expected, upper = whole + Bounds(LEAST_TOKENS * len(media), most, most)
    if limits.max_model_len is not None:
        upper = max(lower, min(upper, limits.max_model_len))
        expected = max(lower, min(expected, limits.max_model_len - output_tokens))
    return Bounds(lower, expected, upper)


def _image_costs(
    request: VisionRequest, plans: Sequence[ImagePlan], image_tokens: Sequence[ImageTokens]
) -> tuple[ImageCost, ...]:
    return tuple(
        ImageCost(request.images[plan.ordinal].param, plan.target, tokens.prompt, tokens.encoder, tokens.least_encoder)
        for plan, tokens in zip(plans, image_tokens, strict=True)
    )


def _truncated(whole: Bounds, visual_tokens: int, request: VisionRequest, limits: EngineLimits) -> Bounds:
    """What vLLM leaves of the prompt; it never cuts images (vllm/renderers/params.py `max_truncation_tokens`)."""
    if request.pads_prompts and limits.max_model_len is not None:
        padded = limits.max_model_len * request.prompts
        whole = Bounds(max(whole.lower, padded), max(whole.expected, padded), max(whole.upper, padded))
    most = request.truncate_prompt_tokens
    if most == -1 and limits.max_model_len is not None:
        most = limits.max_model_len - request.wants_output
    if most is None or most < 0:
        return whole
    most = max(most * request.prompts, visual_tokens)
    return Bounds(min(whole.lower, most), min(whole.expected, most), min(whole.upper, most))


def _within_context(prompt_tokens: Bounds, request: VisionRequest, limits: EngineLimits) -> int:
    if limits.max_model_len is None:
        return prompt_tokens.expected
    return max(prompt_tokens.lower, min(prompt_tokens.expected, limits.max_model_len * request.prompts))


def _amounts(
    request: VisionRequest,
    prompt_tokens: int,
    output_tokens: int,
    images: Sequence[ImageCost],
    media: Sequence[MediaCost],
    limits: EngineLimits,
) -> Amounts:
    if not request.needs_engine:
        return Amounts(preprocess_pixels=sum(image.size.pixels for image in images)) if images else Amounts()
    kv_blocks = kv_blocks_needed(prompt_tokens, output_tokens, limits, prompts=request.prompts, n=request.n)
    sequences = request.prompts * request.n
    amounts = Amounts(kv_blocks, sequences)
    return _with_items(amounts, images, media) if images or media else amounts


def _prefill_kv_blocks(
    request: VisionRequest, prompt_tokens: int, output_tokens: int, amounts: Amounts, limits: EngineLimits
) -> int:
    """What lies before the windows of a computed prompt."""
    if not amounts.kv_blocks or not limits.has_windows:
        return 0
    later = kv_blocks_needed(prompt_tokens, output_tokens, limits, prompts=request.prompts, n=request.n, is_later=True)
    return amounts.kv_blocks - later


def _with_items(amounts: Amounts, images: Iterable[ImageCost], media: Iterable[MediaCost]) -> Amounts:
    encoder_tokens, pixels = sum(each.encoder_tokens for each in media), 0
    for image in images:
        encoder_tokens += image.encoder_tokens
        pixels += image.size.pixels
    return amounts._replace(encoder_tokens=encoder_tokens, preprocess_pixels=pixels)


def spare_served(cost: RequestCost, is_served: Sequence[bool]) -> RequestCost:
    """The cost without the decoding and encoding of images that this engine has lately encoded (`is_served` beside
    `images`): its caches spare it these, never their place in the prompt.
    """
    fresh = (image for image, served in zip(cost.images, is_served, strict=True) if not served)
    return cost._replace(amounts=_with_items(cost.amounts, fresh, cost.media)) if cost.needs_engine else cost
