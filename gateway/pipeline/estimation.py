"""What is known of a request once it was priced, as preflight and `vlm-gateway estimate` tell it."""

import msgspec

from gateway.domain.cost import RequestCost
from gateway.domain.image import ImageAction, ImagePlan, Why
from gateway.domain.memory_view import MemoryView, encoder_memory, host_memory, kv_memory
from gateway.domain.quantities import Bounds
from gateway.domain.request import VisionRequest
from gateway.imaging.limits import job_bytes
from gateway.imaging.workers import needs_decode
from gateway.models.served import ServedModel
from gateway.pipeline.exchange import Exchange, Rules
from gateway.pipeline.planning import Plan, image_cost
from gateway.wire.declare import planned_action
from gateway.wire.report import (
    AmountsReport,
    BoundsReport,
    EstimateReport,
    ImageReport,
    MemoriesReport,
    MemoryReport,
    ModelReport,
    TokensReport,
)


def estimate_report(rules: Rules, exchange: Exchange, plan: Plan, cost: RequestCost) -> EstimateReport:
    """Of an exchange that has a price."""
    request, model, limits = exchange.request, exchange.model, exchange.limits
    assert request is not None and model is not None and limits is not None, "it has a price"  # noqa: PT018
    return EstimateReport(
        model=ModelReport(model.name, model.family.name, model.family_source.value, limits.max_model_len),
        images=_images(request, plan, model),
        tokens=TokensReport(
            text=_bounds(cost.text_tokens),
            visual=cost.visual_tokens,
            prompt=_bounds(cost.prompt_tokens),
            output_reserved=cost.output_tokens * cost.answers,
            media=cost.media_tokens,
        ),
        amounts=msgspec.convert(cost.amounts._asdict(), AmountsReport),
        kv_block_tokens=limits.kv_block_tokens,
        kv_blocks_pool=limits.kv_blocks,
        memory=_memories(rules, exchange, plan, cost),
    )


def _memories(rules: Rules, exchange: Exchange, plan: Plan, cost: RequestCost) -> MemoriesReport:
    model, limits = exchange.model, exchange.limits
    assert model is not None and limits is not None, "it has a price"  # noqa: PT018
    kv_bytes, embedding_bytes = model.kv_bytes_per_token, model.embedding_bytes
    verifies_all = rules.policies.verifies_all
    decode_bytes = max((_decode_bytes(image, verifies_all=verifies_all) for image in plan.plans), default=0)
    return MemoriesReport(
        kv=None if kv_bytes is None else _memory(kv_memory(cost, limits, kv_bytes)),
        encoder=None if embedding_bytes is None else _memory(encoder_memory(cost, limits, embedding_bytes)),
        host=_memory(host_memory(cost, decode_bytes, rules.policies.memory_limit_bytes)),
    )


def _memory(view: MemoryView) -> MemoryReport:
    return MemoryReport(view.bytes, view.share)


def _bounds(bounds: Bounds) -> BoundsReport:
    return BoundsReport(*bounds)


def _decode_bytes(image: ImagePlan, *, verifies_all: bool) -> int:
    if needs_decode(image.info, image.target):
        return job_bytes(image.info, image.target)
    return job_bytes(image.info, None) if verifies_all else 0


def _images(request: VisionRequest, plan: Plan, model: ServedModel) -> list[ImageReport]:
    lines = {ordinal: _trimmed(request, ordinal, plan) for ordinal in plan.trimmed}
    lines |= {image.ordinal: _kept(request, image, model) for image in plan.plans}
    return [lines[ordinal] for ordinal in sorted(lines)]


def _trimmed(request: VisionRequest, ordinal: int, plan: Plan) -> ImageReport:
    return ImageReport(request.images[ordinal].param, ImageAction.TRIMMED, str(plan.trim_reason))


def _kept(request: VisionRequest, image: ImagePlan, model: ServedModel) -> ImageReport:
    reasons = [image.resize_reason] if image.resize_reason else []
    tokens = image_cost(image, model.family)
    return ImageReport(
        param=request.images[image.ordinal].param,
        action=planned_action(image),
        why=", ".join([*reasons, *sorted(image.info.why - {Why.RESIZE})]),
        format=image.info.format,
        size=str(image.info.size),
        file_bytes=image.info.file_bytes,
        sent_size=str(image.target),
        model_size=str(tokens.model_size),
        tokens_before=image.tokens_before,
        tokens=image.tokens,
        prompt_tokens=tokens.prompt,
        encoder_tokens=tokens.encoder,
    )
