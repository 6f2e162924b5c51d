"""Which requests an engine could not serve even when idle: refused for good, with the numbers and what would help.

Decided on lower bounds against limits that do not move, so whatever may fit is let through.
"""

from collections.abc import Sequence

from gateway.domain.cost import EngineLimits, ImageCost, RequestCost, ceil_div
from gateway.domain.errors import Code, GatewayError
from gateway.domain.geometry import Size
from gateway.domain.outcome import Reason
from gateway.domain.vision.base import VisionFamily


def refuse_what_never_fits(cost: RequestCost, limits: EngineLimits, family: VisionFamily | None = None) -> None:
    """Raise the 400 of a request that this engine could not serve even when idle.

    Decided on lower bounds against the static limits, so what may fit is let through; `family` lets the message name
    the size that would fit. A `max_tokens` beyond the context is no reason: vLLM cuts it down, or says so itself.
    Raises GatewayError: context_length_exceeded, request_exceeds_budget.
    """
    if not cost.needs_engine:
        return
    least_tokens = cost.least_tokens
    if limits.max_model_len is not None and least_tokens > limits.max_model_len:
        raise _beyond_context(cost, limits.max_model_len, family)
    if cost.images:
        _refuse_encoder(cost, limits, family)
    # One group only: where there are more, all but one may keep no more than a window of the prompt.
    pool_tokens = limits.kv_pool_tokens
    if pool_tokens is not None and least_tokens > pool_tokens:
        raise _beyond_pool(cost, limits, pool_tokens, family)
    if cost.output_tokens and cost.answers > 1:
        _refuse_answers(cost, limits)


def _beyond_context(cost: RequestCost, max_model_len: int, family: VisionFamily | None) -> GatewayError:
    return GatewayError(
        Code.CONTEXT_LENGTH_EXCEEDED,
        f"This model's maximum context length is {max_model_len} tokens. {_describe_need(cost)} "
        f"{_what_would_help(cost, max_model_len, family)}",
        param=cost.prompt_param,
    )


def _refuse_encoder(cost: RequestCost, limits: EngineLimits, family: VisionFamily | None) -> None:
    budget = limits.encoder_budget_tokens
    if budget is None or cost.largest_image_encoder_tokens <= budget:
        return
    image = max(cost.images, key=lambda image: image.encoder_tokens)
    fit = family.shrink(image.size, budget) if family else None
    raise GatewayError(
        Code.REQUEST_EXCEEDS_BUDGET,
        f"The image of {image.size} pixels costs {image.encoder_tokens} encoder tokens, and the engine can encode at "
        f"most {budget} at once. Send a smaller image{f', at most {fit} pixels' if fit else ''}.",
        param=image.param,
        reason=Reason.NEVER_FITS_ENCODER,
    )


def _beyond_pool(
    cost: RequestCost, limits: EngineLimits, pool_tokens: int, family: VisionFamily | None
) -> GatewayError:
    blocks = ceil_div(cost.least_tokens, limits.kv_block_tokens)
    return GatewayError(
        Code.REQUEST_EXCEEDS_BUDGET,
        f"The request needs at least {blocks} KV blocks and the engine has {limits.largest_kv_blocks} in all, which "
        f"hold {pool_tokens} tokens. {_describe_need(cost)} {_what_would_help(cost, pool_tokens, family)}",
        param=cost.prompt_param,
        reason=Reason.NEVER_FITS_KV,
    )


def _refuse_answers(cost: RequestCost, limits: EngineLimits) -> None:
    """Prompts without an answer are worked off in turn; answers of one request grow side by side."""
    asked = f"The request asks for {cost.answers} answers{_of_prompts(cost)}"
    param = "n" if cost.answers > cost.prompts else "prompt"
    if limits.sequences is not None and cost.answers > limits.sequences:
        raise GatewayError(
            Code.REQUEST_EXCEEDS_BUDGET,
            f"{asked}, and at most {limits.sequences} are generated at the same time (budget.sequences). "
            "Ask for fewer at once.",
            param=param,
            reason=Reason.NEVER_FITS_SEQUENCES,
        )
    blocks = _least_kv_blocks(cost, limits)
    if limits.kv_blocks is not None and blocks > limits.kv_blocks:
        raise GatewayError(
            Code.REQUEST_EXCEEDS_BUDGET,
            f"{asked}, which need at least {blocks} KV blocks, and the engine has {limits.kv_blocks} in all. "
            "Ask for fewer at once.",
            param=param,
            reason=Reason.NEVER_FITS_KV,
        )


def _least_kv_blocks(cost: RequestCost, limits: EngineLimits) -> int:
    """At best all prompts begin alike and share what they can: then each answer but one has a block of its own."""
    block = limits.kv_block_tokens
    shared = ceil_div(cost.least_tokens, block) + cost.answers - 1
    if limits.prefix_caching:
        return shared
    return max(shared, cost.answers // cost.prompts * ceil_div(cost.prompt_tokens.lower, block))


def _of_prompts(cost: RequestCost) -> str:
    return "" if cost.prompts == 1 else f" to {cost.prompts} prompts"


def _describe_need(cost: RequestCost) -> str:
    each = "" if cost.prompts == 1 else f" in the longest of its {cost.prompts} prompts"
    images = f" ({cost.visual_tokens} of them for {len(cost.images)} image(s))" if cost.images else ""
    return f"Your request needs at least {cost.least_tokens} tokens{each}{images}, room for an answer included."


def _what_would_help(cost: RequestCost, limit_tokens: int, family: VisionFamily | None) -> str:
    excess = cost.least_tokens - limit_tokens
    if excess > cost.visual_tokens:
        return f"Shorten the text by at least {excess - cost.visual_tokens} tokens{_and_drop_images(cost)}."
    dropped, last_param = _oldest_images_worth(cost.images, excess)
    help_text = f"Leave out at least the {dropped} oldest of its {len(cost.images)} image(s) (up to {last_param})"
    fit = _size_that_fits_all(cost, limit_tokens, family) if family else None
    return f"{help_text}{f', or send none larger than {fit} pixels' if fit else ''}."


def _and_drop_images(cost: RequestCost) -> str:
    return " and leave out all images, for example by dropping the oldest turns" if cost.images else ""


def _oldest_images_worth(images: Sequence[ImageCost], tokens: int) -> tuple[int, str]:
    """How many of the first images cost `tokens` or more, and where the last of these stands."""
    dropped = 0
    while tokens > 0:
        tokens -= images[dropped].prompt_tokens
        dropped += 1
    return dropped, images[dropped - 1].param


def _size_that_fits_all(cost: RequestCost, limit_tokens: int, family: VisionFamily) -> Size | None:
    """The largest image's size at which all images, were they no dearer than it, fit together."""
    largest = max(cost.images, key=lambda image: image.prompt_tokens)
    room = limit_tokens - (cost.least_tokens - cost.visual_tokens)
    markers = family.tokens(largest.size).markers
    share = room // len(cost.images) - markers
    return family.shrink(largest.size, share) if share > 0 else None
