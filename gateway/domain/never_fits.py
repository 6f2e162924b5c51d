"""Which requests an engine could not serve even when idle: refused for good, with the numbers and what would help.

Decided on lower bounds against limits that do not move, so whatever may fit is let through.
"""

from typing import NamedTuple

from gateway.domain.cost import EngineLimits, RequestCost, kv_blocks_needed
from gateway.domain.errors import Code, GatewayError
from gateway.domain.outcome import Reason
from gateway.domain.quantities import Resource, ceil_div
from gateway.domain.remedies import CONTEXT, Remedies, Shortage, save_prompt_tokens, within_encoder
from gateway.domain.vision.base import VisionFamily


class Misfit(NamedTuple):
    """Why a request can never be served: the 400 that says so, what is short, and what would help."""

    error: GatewayError
    shortage: Shortage
    remedies: Remedies


def find_misfit(cost: RequestCost, limits: EngineLimits, family: VisionFamily | None = None) -> Misfit | None:
    """Why this engine could not serve the request even when idle; None for what may fit.

    Decided on lower bounds against the static limits; `family` lets the advice name the sizes that would fit. A
    `max_tokens` beyond the context is no reason: vLLM cuts it down, or says so itself.
    """
    if not cost.needs_engine:
        return None
    least_tokens = cost.least_tokens
    if limits.max_model_len is not None and least_tokens > limits.max_model_len:
        return _beyond_context(cost, limits.max_model_len, family)
    budget = limits.encoder_budget_tokens
    if budget is not None and cost.images and cost.largest_image_encoder_tokens > budget:
        return _beyond_encoder(cost, budget, family)
    # Where the groups are not known all but one may keep no more than a window of the prompt.
    pool_tokens = limits.kv_pool_tokens
    if pool_tokens is not None and least_tokens > pool_tokens:
        return _beyond_pool(cost, limits, pool_tokens, family)
    if cost.output_tokens and cost.answers > 1:
        return _too_many_answers(cost, limits)
    return None


def _beyond_context(cost: RequestCost, max_model_len: int, family: VisionFamily | None) -> Misfit:
    remedies = save_prompt_tokens(cost, _likely_tokens(cost) - max_model_len, family)
    error = GatewayError(
        Code.CONTEXT_LENGTH_EXCEEDED,
        f"This model's maximum context length is {max_model_len} tokens. {_describe_need(cost)} "
        f"{_what_would_help(cost, remedies)}",
        param=cost.prompt_param,
    )
    return Misfit(
        error, Shortage(CONTEXT, cost.least_tokens, max_model_len, max_model_len, cost.prompt_param), remedies
    )


def _likely_tokens(cost: RequestCost) -> int:
    """As `least_tokens`, were the text as long as it probably is: who follows the advice should get in."""
    prompt_tokens = max(cost.prompt_tokens.lower, cost.prompt_tokens.expected - cost.uncertain_media_tokens)
    return ceil_div(prompt_tokens, cost.prompts) + min(1, cost.output_tokens)


def _beyond_encoder(cost: RequestCost, budget: int, family: VisionFamily | None) -> Misfit:
    image = max(cost.images, key=lambda image: image.least_encoder_tokens)
    need = image.least_encoder_tokens
    remedies = within_encoder(cost, budget, family)
    fit = dict(remedies.sizes).get(image.param)
    error = GatewayError(
        Code.REQUEST_EXCEEDS_BUDGET,
        f"The image of {image.size} pixels costs {need} encoder tokens, and the engine can encode at "
        f"most {budget} at once. Send a smaller image{f', at most {fit} pixels' if fit else ''}.",
        param=image.param,
        reason=Reason.NEVER_FITS_ENCODER,
    )
    shortage = Shortage(Resource.ENCODER_TOKENS.label, need, budget, budget, image.param)
    return Misfit(error, shortage, remedies)


def _beyond_pool(cost: RequestCost, limits: EngineLimits, pool_tokens: int, family: VisionFamily | None) -> Misfit:
    charged = limits if limits.kv_charges else limits._replace(kv_groups=None)
    blocks, most = kv_blocks_needed(cost.least_tokens, 0, charged), limits.largest_kv_blocks or 0
    remedies = save_prompt_tokens(cost, _likely_tokens(cost) - pool_tokens, family)
    error = GatewayError(
        Code.REQUEST_EXCEEDS_BUDGET,
        f"The request needs at least {blocks} KV blocks and the engine has {most} in all, which "
        f"hold {pool_tokens} tokens. {_describe_need(cost)} {_what_would_help(cost, remedies)}",
        param=cost.prompt_param,
        reason=Reason.NEVER_FITS_KV,
    )
    return Misfit(error, Shortage(Resource.KV_BLOCKS.label, blocks, most, most, cost.prompt_param), remedies)


def _too_many_answers(cost: RequestCost, limits: EngineLimits) -> Misfit | None:
    """Prompts without an answer are worked off in turn; answers of one request grow side by side."""
    asked = f"The request asks for {cost.answers} answers{_of_prompts(cost)}"
    param = "n" if cost.answers > cost.prompts else cost.prompt_param or "prompt"
    if limits.sequences is not None and cost.answers > limits.sequences:
        error = GatewayError(
            Code.REQUEST_EXCEEDS_BUDGET,
            f"{asked}, and at most {limits.sequences} are generated at the same time (budget.sequences). "
            "Ask for fewer at once.",
            param=param,
            reason=Reason.NEVER_FITS_SEQUENCES,
        )
        most = limits.sequences
        shortage = Shortage(Resource.SEQUENCES.label, cost.answers, most, most, param)
        return Misfit(error, shortage, Remedies(n=most // cost.prompts or None))
    blocks = _least_kv_blocks(cost, limits)
    if limits.kv_blocks is None or blocks <= limits.kv_blocks:
        return None
    error = GatewayError(
        Code.REQUEST_EXCEEDS_BUDGET,
        f"{asked}, which need at least {blocks} KV blocks, and the engine has {limits.kv_blocks} in all. "
        "Ask for fewer at once.",
        param=param,
        reason=Reason.NEVER_FITS_KV,
    )
    shortage = Shortage(Resource.KV_BLOCKS.label, blocks, limits.kv_blocks, limits.kv_blocks, param)
    return Misfit(error, shortage, Remedies())


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
    visual_tokens = cost.visual_tokens - cost.uncertain_visual_tokens
    images = f" ({visual_tokens} of them for {len(cost.images)} image(s))" if cost.images else ""
    return f"Your request needs at least {cost.least_tokens} tokens{each}{images}, room for an answer included."


def _what_would_help(cost: RequestCost, remedies: Remedies) -> str:
    if remedies.text_tokens:
        return f"Shorten the text by at least {remedies.text_tokens} tokens{_and_drop_images(cost)}."
    images = len(cost.images)
    help_text = (
        f"Leave out at least the {remedies.oldest_images} oldest of its {images} image(s) (up to {remedies.last_param})"
    )
    largest = max(cost.images, key=lambda image: image.prompt_tokens)
    fit = dict(remedies.sizes).get(largest.param)
    return f"{help_text}{f', or send none larger than {fit} pixels' if fit else ''}."


def _and_drop_images(cost: RequestCost) -> str:
    return " and leave out all images, for example by dropping the oldest turns" if cost.images else ""
