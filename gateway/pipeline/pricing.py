"""Steps 3 to 5 of the story: what would be sent, what it costs, and whether one engine could ever serve it.

Needs no engine, as does what goes before: so `vlm-gateway estimate` and `replay` run it too.
"""

from collections.abc import Sequence

from gateway.domain.calibration import CalibrationState
from gateway.domain.cost import RequestCost, Uncertainty, VisualBounds, estimate
from gateway.domain.image import ImagePlan
from gateway.domain.media import MediaCost, price_media
from gateway.domain.never_fits import Misfit, find_misfit
from gateway.domain.quantities import Bounds
from gateway.domain.request import VisionRequest
from gateway.domain.stored_answers import HIDDEN_HISTORY
from gateway.domain.vision.base import BoundedTokens, ImageTokens
from gateway.models.served import ServedModel
from gateway.pipeline.exchange import Exchange, Rules
from gateway.pipeline.planning import NO_IMAGES, Plan, image_cost, likely_image_cost, plan_request
from gateway.pipeline.texts import count_text
from gateway.wire.usage import Usage


async def price(rules: Rules, exchange: Exchange, request: VisionRequest) -> tuple[Plan, RequestCost]:
    """What would be sent, and its whole cost, whether it fits or not. Raises GatewayError 400."""
    model = exchange.model = exchange.models.served(request.model)
    media = media_cost(rules, request, model) if request.media else ()
    if request.previous_id is not None:
        media = (*media, HIDDEN_HISTORY)
    text = await count_text(exchange, request, model)
    plan = await plan_request(rules, exchange, request, model, text) if request.images else NO_IMAGES
    if plan.trimmed:
        text = await count_text(exchange, request, model, plan.trimmed, rules.policies.trim.marker)
    exchange.plans, exchange.trimmed, exchange.trimmed_tokens = plan.plans, plan.trimmed, plan.trimmed_tokens
    exchange.trim_reason = plan.trim_reason
    cost = exchange.cost = cost_of(rules, exchange, request, model, plan, text, media)
    return plan, cost


def media_cost(rules: Rules, request: VisionRequest, model: ServedModel) -> tuple[MediaCost, ...]:
    """What its videos and audio may cost. Raises GatewayError media_not_allowed."""
    family = "(unknown)" if model.is_assumed else model.family.name
    if model.calibration.state is CalibrationState.DISAGREES:
        family = f"{family}, otherwise than which its server counts"
    return price_media(request.media, rules.policies.media, model.video, family)


def misfit_of(exchange: Exchange, cost: RequestCost) -> Misfit | None:
    """The end of step 5: why this engine could not serve the request even when idle, if it could not."""
    model, limits = exchange.model, exchange.limits
    assert model is not None and limits is not None, "it has a price"  # noqa: PT018
    if model.is_assumed:
        return find_misfit(_without_bounds(cost) if cost.images else cost, limits)
    return find_misfit(cost, limits, model.family)


def visual_bounds(model: ServedModel, cost: RequestCost) -> VisualBounds | None:
    """Of images whose cost is not known exactly; None where it is, as it is without any."""
    if not cost.uncertain_visual_tokens:
        return None
    why = Uncertainty.UNKNOWN_FAMILY if model.is_assumed else Uncertainty.MORE_THAN_SIZE
    if model.calibration.state is CalibrationState.DISAGREES:
        why = Uncertainty.DOUBTED_FAMILY
    return VisualBounds(cost.visual_tokens - cost.uncertain_visual_tokens, cost.visual_tokens, why)


def told_visual_tokens(exchange: Exchange, usage: Usage, model: ServedModel) -> int | None:
    """Prompt tokens of the images where the engine tells them apart from the text, with what the template writes around
    them, which it does not.
    """
    if usage.image_tokens is None or not exchange.plans:
        return None
    return usage.image_tokens + sum(image_cost(plan, model.family).markers for plan in exchange.plans)


def _without_bounds(cost: RequestCost) -> RequestCost:
    """What is certain of a request to a model of unknown family: its text, and the lower bounds of its images. To leave
    images out is no advice, for nobody knows what that would save.
    """
    prompt, uncertain = cost.prompt_tokens, cost.uncertain_visual_tokens
    likely, most = (max(prompt.lower, tokens - uncertain) for tokens in (prompt.expected, prompt.upper))
    return cost._replace(
        prompt_tokens=Bounds(prompt.lower, likely, most),
        visual_tokens=cost.visual_tokens - uncertain,
        uncertain_visual_tokens=0,
        images=(),
    )


def _in_prompts(request: VisionRequest, image: ImagePlan, model: ServedModel) -> ImageTokens:
    """In all prompts that it may stand in; encoded it is once."""
    tokens, copies = likely_image_cost(image, model), request.images[image.ordinal].copies
    if copies == 1:
        return tokens
    repeated = (copies - 1) * tokens.prompt
    uncertain = repeated + tokens.prompt - tokens.least_prompt
    return BoundedTokens(
        tokens.placeholder + repeated,
        tokens.markers,
        tokens.encoder,
        tokens.model_size,
        tokens.is_capped,
        uncertain=uncertain,
        uncertain_encoder=tokens.encoder - tokens.least_encoder,
    )


def cost_of(
    rules: Rules,
    exchange: Exchange,
    request: VisionRequest,
    model: ServedModel,
    plan: Plan,
    text: Bounds,
    media: Sequence[MediaCost] = (),
) -> RequestCost:
    """The whole cost, with what the model's answers are known to take."""
    limits = exchange.limits = exchange.models.limits(model)
    image_tokens = [_in_prompts(request, image, model) for image in plan.plans] if plan.plans else []
    prompt_tokens = text.expected + sum(tokens.prompt for tokens in image_tokens) + request.prompt_token_ids
    return estimate(
        request,
        plan.plans,
        image_tokens,
        text=text,
        output_tokens=model.output.tokens(
            request, prompt_tokens // request.prompts, limits.max_model_len, rules.policies.output_reservation
        ),
        limits=limits,
        body_bytes=exchange.body_bytes,
        media=media,
    )
