"""What a request will cost the engine, before anything is sent. Which requests can never fit: never_fits.py.

Only arithmetic over counts that others made: tokens of images (vision/), of text (a tokenizer or a learned ratio).
What is held of which capacity belongs to holdings.py, what a request is likely to answer to learning.py.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from gateway.domain.geometry import Size
from gateway.domain.image import ImagePlan
from gateway.domain.output import most_output_tokens
from gateway.domain.quantities import Amounts, Bounds
from gateway.domain.request import VisionRequest
from gateway.domain.unfolding import Unfolding
from gateway.domain.vision.base import ImageTokens

LARGEST_TOKEN_BYTES = 128
"""No token of the vocabularies in use stands for more bytes (the longest are runs of 128 blanks)."""

GROWTH_STEP_TOKENS = 64
"""An answer that outgrows its reservation is charged in steps of this many tokens."""

# Tokens that a chat template writes around each message, and once around the conversation (default system prompt,
# opening of the answer, instructions for tools). Lower bounds are 0: a template may write nothing.
_PER_MESSAGE = Bounds(0, 5, 16)
_PER_CONVERSATION = Bounds(0, 8, 512)
_NO_TOKENS = Bounds.exact(0)


def ceil_div(dividend: int, divisor: int) -> int:
    """The quotient, rounded up."""
    return -(-dividend // divisor)


def growth_room_blocks(pool_blocks: int) -> int:
    """Of a pool, what is kept free for answers that outgrow their reservation."""
    return pool_blocks // 20


class EngineLimits(NamedTuple):
    """What one engine can hold. None: unknown, and then neither enforced nor a reason for a 400.

    `kv_blocks` is vLLM's `num_gpu_blocks` less the one block it keeps for itself. `kv_groups` counts the groups of
    layers that each need blocks of their own, and each is charged in full; where it is unknown, one is charged. Of
    several engines (data parallel) `kv_blocks` is the sum and `kv_blocks_of_one` what the smallest of them has: no
    request is spread over two. None there: there is one engine. A server without a KV cache has no `kv_blocks`.
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

    @property
    def kv_pool_tokens(self) -> int | None:
        """Tokens that one request alone could keep, as far as its full-attention group goes."""
        return None if self.largest_kv_blocks is None else self.largest_kv_blocks * self.kv_block_tokens

    @property
    def largest_kv_blocks(self) -> int | None:
        """Blocks that one request alone could hold, on whichever engine it comes to."""
        return self.kv_blocks if self.kv_blocks_of_one is None else self.kv_blocks_of_one

    @property
    def charged_kv_groups(self) -> int:
        return self.kv_groups or 1

    @property
    def admission_kv_blocks(self) -> int | None:
        """Blocks that may be reserved: a twentieth of the pool stays free for answers that outgrow theirs."""
        return None if self.kv_blocks is None else self.kv_blocks - growth_room_blocks(self.kv_blocks)


class OutputGrowth(NamedTuple):
    """How the answers to a request grow into `reserved_tokens` (over all `answers`), and blocks with them beyond that.

    `most_tokens` are all that each can have (None: nothing bounds it). `spare_tokens` are free in the last block of a
    single answer at its full length.
    """

    reserved_tokens: int = 0
    block_tokens: int = 16
    groups: int = 1
    answers: int = 1
    most_tokens: int | None = None
    spare_tokens: int = 0

    def from_now(
        self, blocks: int, generated_tokens: int = 0, likely_tokens: int = 0, grown_blocks: int = 0
    ) -> Unfolding:
        """What is to come of answers that hold `blocks`, `grown_blocks` of them beyond the reservation, and have
        `generated_tokens` (over all of them).

        `likely_tokens`: what one that is so long probably becomes; that may be more than is reserved.
        """
        reserved = self.reserved_tokens // self.answers
        whole = max(reserved, likely_tokens if self.most_tokens is None else min(likely_tokens, self.most_tokens))
        more_blocks = ceil_div(max(0, whole - reserved - self.spare_tokens), self.block_tokens)
        copies = self.groups * self.answers
        return Unfolding(
            held_blocks=blocks,
            whole_blocks=max(blocks, blocks - grown_blocks + copies * more_blocks),
            left_tokens=max(0, whole - generated_tokens // self.answers),
            block_tokens=self.block_tokens,
            copies=copies,
            spare_tokens=self.spare_tokens + more_blocks * self.block_tokens - (whole - reserved),
            may_outgrow=self.most_tokens is None or whole < self.most_tokens,
        )

    @property
    def may_outgrow(self) -> bool:
        return self.most_tokens is None or self.reserved_tokens < self.most_tokens * self.answers

    def blocks(self, generated_tokens: int) -> int:
        """Blocks to hold beyond those reserved, once `generated_tokens` have been generated."""
        excess = generated_tokens - self.reserved_tokens
        if excess <= 0:
            return 0
        charged = ceil_div(excess, GROWTH_STEP_TOKENS) * GROWTH_STEP_TOKENS
        return self.groups * ceil_div(charged, self.block_tokens)


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

    `prompt_tokens` = text + images + ids over all `prompts`, after vLLM has truncated them where the client asks for
    that (the three beside it are before; of `visual_tokens` some may not come); `output_tokens` are reserved for each
    of the `answers` (prompts x n). `amounts` is what the request will hold; `body_bytes` what it holds while it waits.
    `prompt_param` is the path that errors about the whole prompt name. Without `needs_engine` nothing is held of the
    engine and nothing is too large for it.
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


def text_bounds(text_bytes: int, message_count: int, bytes_per_token: float, *, uncertain_bytes: int = 0) -> Bounds:
    """Tokens of text that no tokenizer counted: `text_bytes` of UTF-8 in `message_count` messages (0: plain prompts).

    At most one token a byte (byte-level vocabularies) plus what the template writes; at least the bytes that are sure
    to be rendered (all but `uncertain_bytes`) divided by the longest token; expected by the learned ratio.
    """
    expected = int(text_bytes / min(max(bytes_per_token, 1.0), LARGEST_TOKEN_BYTES) + 0.5)
    written = template_tokens(message_count)
    lower = (text_bytes - uncertain_bytes) // LARGEST_TOKEN_BYTES
    return Bounds(lower, expected + written.expected, text_bytes + written.upper)


@lru_cache(maxsize=256)
def template_tokens(message_count: int) -> Bounds:
    """Tokens that the chat template adds to `message_count` messages; none to plain prompts."""
    if not message_count:
        return _NO_TOKENS
    each, once = _PER_MESSAGE, _PER_CONVERSATION
    return Bounds(
        once.lower + message_count * each.lower,
        once.expected + message_count * each.expected,
        once.upper + message_count * each.upper,
    )


def kv_blocks_needed(
    prompt_tokens: int, output_tokens: int, limits: EngineLimits, *, prompts: int = 1, n: int = 1
) -> int:
    """Blocks for `prompts` prompts of `prompt_tokens` in all, each with `n` answers of `output_tokens`.

    A single answer goes on in the last block of its prompt. With prefix caching n answers share their prompt, all but
    its last, partly filled block: hence the one block more for each answer. Without it each holds the whole
    (vllm/v1/core/kv_cache_manager.py).
    """
    block = limits.kv_block_tokens
    if n == 1:
        return limits.charged_kv_groups * ((prompt_tokens + prompts * (output_tokens + block - 1)) // block)
    # The sum of each prompt's rounded-up blocks is at most this; for one prompt it is exact.
    prompt_blocks = (prompt_tokens + prompts * (block - 1)) // block
    answer_blocks = ceil_div(output_tokens, block) + 1 if output_tokens else 0
    copies = 1 if limits.prefix_caching else n
    return limits.charged_kv_groups * (copies * prompt_blocks + prompts * n * answer_blocks)


def estimate(
    request: VisionRequest,
    plans: Sequence[ImagePlan],
    image_tokens: Sequence[ImageTokens],
    *,
    text: Bounds,
    output_tokens: int,
    limits: EngineLimits,
    body_bytes: int = 0,
) -> RequestCost:
    """The cost of `request` with its images as planned (`image_tokens` beside `plans`, at their target size)."""
    # Most requests have no image, and even empty loops are half of this function's time then.
    images = _image_costs(request, plans, image_tokens) if plans else ()
    visual_tokens = sum(image.prompt_tokens for image in images) if images else 0
    whole = text + (visual_tokens + request.prompt_token_ids)
    uncertain = sum(tokens.prompt - tokens.least_prompt for tokens in image_tokens) if images else 0
    if uncertain:
        whole = whole._replace(lower=whole.lower - uncertain)
    prompt_tokens = _truncated(whole, visual_tokens, request, limits)
    answers = request.prompts * request.n
    amounts = _amounts(request, prompt_tokens.expected, output_tokens, images, limits)
    return RequestCost(
        prompt_tokens=prompt_tokens,
        text_tokens=text,
        visual_tokens=visual_tokens,
        output_tokens=output_tokens,
        prompts=request.prompts,
        answers=answers,
        amounts=amounts,
        growth=_growth(request, prompt_tokens.expected, output_tokens, amounts.kv_blocks, limits),
        images=images,
        body_bytes=body_bytes,
        prompt_param="messages" if request.messages else None,
        needs_engine=request.needs_engine,
        uncertain_visual_tokens=uncertain,
    )


def _growth(
    request: VisionRequest, prompt_tokens: int, output_tokens: int, kv_blocks: int, limits: EngineLimits
) -> OutputGrowth:
    answers, held_tokens = request.prompts * request.n, kv_blocks // limits.charged_kv_groups * limits.kv_block_tokens
    return OutputGrowth(
        output_tokens * answers,
        limits.kv_block_tokens,
        limits.charged_kv_groups,
        answers,
        most_output_tokens(request, prompt_tokens // request.prompts, limits.max_model_len),
        held_tokens - prompt_tokens - output_tokens if answers == 1 and held_tokens else 0,
    )


def _image_costs(
    request: VisionRequest, plans: Sequence[ImagePlan], image_tokens: Sequence[ImageTokens]
) -> tuple[ImageCost, ...]:
    return tuple(
        ImageCost(request.images[plan.ordinal].param, plan.target, tokens.prompt, tokens.encoder, tokens.least_encoder)
        for plan, tokens in zip(plans, image_tokens, strict=True)
    )


def _truncated(whole: Bounds, visual_tokens: int, request: VisionRequest, limits: EngineLimits) -> Bounds:
    """What vLLM leaves of the prompt; it never cuts images (vllm/renderers/params.py `max_truncation_tokens`)."""
    most = request.truncate_prompt_tokens
    if most == -1 and limits.max_model_len is not None:
        most = limits.max_model_len - request.wants_output
    if most is None or most < 0:
        return whole
    most = max(most * request.prompts, visual_tokens)
    return Bounds(min(whole.lower, most), min(whole.expected, most), min(whole.upper, most))


def _amounts(
    request: VisionRequest, prompt_tokens: int, output_tokens: int, images: Sequence[ImageCost], limits: EngineLimits
) -> Amounts:
    if not request.needs_engine:
        return Amounts()
    kv_blocks = kv_blocks_needed(prompt_tokens, output_tokens, limits, prompts=request.prompts, n=request.n)
    sequences = request.prompts * request.n
    return _with_images(Amounts(kv_blocks, sequences), images) if images else Amounts(kv_blocks, sequences)


def _with_images(amounts: Amounts, images: Iterable[ImageCost]) -> Amounts:
    encoder_tokens = pixels = 0
    for image in images:
        encoder_tokens += image.encoder_tokens
        pixels += image.size.pixels
    return amounts._replace(encoder_tokens=encoder_tokens, preprocess_pixels=pixels)


def spare_served(cost: RequestCost, is_served: Sequence[bool]) -> RequestCost:
    """The cost without the decoding and encoding of images that this engine has lately encoded (`is_served` beside
    `images`): its caches spare it these, never their place in the prompt.
    """
    fresh = (image for image, served in zip(cost.images, is_served, strict=True) if not served)
    return cost._replace(amounts=_with_images(cost.amounts, fresh)) if cost.needs_engine else cost


class MemoryView(NamedTuple):
    """Bytes, and their share of what there is (None where that is unknown)."""

    bytes: int
    share: float | None

    @property
    def mebibytes(self) -> float:
        return self.bytes / 2**20


def kv_memory(cost: RequestCost, limits: EngineLimits, kv_bytes_per_token: int) -> MemoryView:
    """KV cache of the request; `kv_bytes_per_token` counts all layers of one rank (models/ knows it)."""
    blocks = cost.amounts.kv_blocks
    held = blocks * limits.kv_block_tokens * kv_bytes_per_token // limits.charged_kv_groups
    return MemoryView(held, blocks / limits.kv_blocks if limits.kv_blocks else None)


def encoder_memory(cost: RequestCost, limits: EngineLimits, embedding_bytes: int) -> MemoryView:
    """Encoder output of all its images; `embedding_bytes` is one embedding: width x bytes per number."""
    tokens = sum(image.encoder_tokens for image in cost.images)
    budget = limits.encoder_budget_tokens
    return MemoryView(tokens * embedding_bytes, tokens / budget if budget else None)


def host_memory(cost: RequestCost, decode_bytes: int, limit_bytes: int) -> MemoryView:
    """Memory of the gateway: the body and the largest single image decoded (`decode_bytes`) of `limit_bytes`."""
    held = cost.body_bytes + decode_bytes
    return MemoryView(held, held / limit_bytes)
