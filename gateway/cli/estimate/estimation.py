"""The gateway's story up to admission, run on one body without a server; and what it cost, as values."""

import asyncio
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gateway.domain.cost import EngineLimits, MemoryView, RequestCost, encoder_memory, host_memory, kv_memory
from gateway.domain.errors import GatewayError
from gateway.domain.image import ImageAction, ImageInfo, ImagePlan, Why
from gateway.domain.outcome import Reason
from gateway.domain.request import VisionRequest
from gateway.imaging.limits import ImageLimits, job_bytes
from gateway.imaging.probe import probe
from gateway.imaging.workers import needs_decode
from gateway.ledger.host_memory import memory_limit_bytes
from gateway.models.configure import configured_model
from gateway.models.processor_config import ModelFiles, read_model_folder
from gateway.models.served import ModelTable, ServedModel
from gateway.pipeline.exchange import Exchange, Policies
from gateway.pipeline.planning import Plan
from gateway.pipeline.reading import read_request
from gateway.pipeline.story import price, refuse_for_good
from gateway.policies import ByteBudgets, body_limits_of, engine_of, models_of, policies_of
from gateway.server.door import Arrival, refuse_length
from gateway.settings import Settings
from gateway.wire.encoded_file import EncodedFile
from gateway.wire.routes import classify

_NEVER_FITS = {
    Reason.NEVER_FITS_CONTEXT,
    Reason.NEVER_FITS_KV,
    Reason.NEVER_FITS_ENCODER,
    Reason.NEVER_FITS_SEQUENCES,
}
_UNNAMED = "(the first model)"


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What a running gateway would have been told by its upstream."""

    model_folder: Path | None = None
    max_model_len: int | None = None
    block_tokens: int = 16
    kv_bytes_per_token: int | None = None
    endpoint: str = "/v1/chat/completions"


class OfflineLooker:
    """Headers are read without workers."""

    async def look(self, file: EncodedFile, limits: ImageLimits, param: str) -> ImageInfo:
        return probe(file, limits, param)


@dataclass(frozen=True, slots=True)
class OfflineRules:
    """What the story's pure steps need."""

    policies: Policies
    models: ModelTable
    looker: OfflineLooker


@dataclass(frozen=True, slots=True)
class ImageLine:
    """One image of the request. What was dropped unseen has neither format nor size."""

    param: str
    action: ImageAction
    why: str = ""
    format: str | None = None
    size: str | None = None
    file_bytes: int | None = None
    sent_size: str | None = None
    model_size: str | None = None
    tokens_before: int | None = None
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Priced:
    """What is known once the request could be read and planned. Memory is None where the bytes a token are not known;
    `kv` counts all ranks together.
    """

    model: ServedModel
    limits: EngineLimits
    cost: RequestCost
    images: tuple[ImageLine, ...]
    kv: MemoryView | None
    encoder: MemoryView | None
    host: MemoryView


@dataclass(frozen=True, slots=True)
class Estimate:
    """`priced` is None for what could not be read; `refusal` None for what would be admitted."""

    priced: Priced | None
    refusal: GatewayError | None

    @property
    def verdict(self) -> str:
        if self.refusal is None:
            return "admit"
        return "never_fits" if self.refusal.reason in _NEVER_FITS else "bad_request"

    def as_json(self) -> dict[str, Any]:
        error = self.refusal
        return {
            "verdict": self.verdict,
            "error": error
            and {
                "status": error.status,
                "code": error.code,
                "reason": error.reason,
                "param": error.param,
                "message": error.message,
            },
            **(_as_json(self.priced) if self.priced else {}),
        }


def estimate_request(body: bytes, settings: Settings, assumed: Assumptions) -> Estimate:
    """Raises ModelSettingsError or ModelFilesError for a model that cannot be used, nothing for what is refused."""
    budgets = ByteBudgets.of(settings.budget, memory_limit_bytes())
    exchange = Exchange("offline", "POST", assumed.endpoint, b"", (), 0.0, body=body, body_bytes=len(body))
    exchange.route = classify("POST", assumed.endpoint)
    priced = None
    try:
        if exchange.route.refusal is not None:
            raise exchange.route.refusal
        refuse_length(Arrival(content_length=len(body)), body_limits_of(settings, budgets).max_bytes)
        request = asyncio.run(read_request(exchange))
        rules = OfflineRules(policies_of(settings, budgets), _models(settings, assumed, request.model), OfflineLooker())
        plan, cost = asyncio.run(price(rules, exchange, request))
        priced = _priced(settings, assumed, rules, request, plan, cost)
        refuse_for_good(exchange, cost)
    except GatewayError as refusal:
        return Estimate(priced, refusal)
    return Estimate(priced, None)


def _models(settings: Settings, assumed: Assumptions, requested: str | None) -> ModelTable:
    """As if the upstream listed the request's model."""
    models = models_of(settings)
    if assumed.model_folder is not None:
        name = requested or assumed.model_folder.name
        own = configured_model(name, family=None, folder=str(assumed.model_folder), processor=None)
        models = [own, *(model for model in models if model.name != name)]
    engine = engine_of(settings)
    engine.kv_block_tokens = assumed.block_tokens
    table = ModelTable(models, engine)
    table.listed({requested or next(iter(table.names), _UNNAMED): assumed.max_model_len})
    return table


def _priced(
    settings: Settings, assumed: Assumptions, rules: OfflineRules, request: VisionRequest, plan: Plan, cost: RequestCost
) -> Priced:
    model = rules.models.served(request.model)
    limits = rules.models.limits(model)
    files = _files(settings, assumed, model)
    kv_bytes = assumed.kv_bytes_per_token or (files.text.kv_bytes_per_token if files else None)
    verifies_all = settings.images.verify == "full"
    decode_bytes = max((_decode_bytes(image, verifies_all=verifies_all) for image in plan.plans), default=0)
    return Priced(
        model=model,
        limits=limits,
        cost=cost,
        images=_image_lines(request, plan, model),
        kv=None if kv_bytes is None else kv_memory(cost, limits, kv_bytes),
        encoder=None if files is None else encoder_memory(cost, limits, files.embedding_bytes),
        host=host_memory(cost, decode_bytes, memory_limit_bytes()),
    )


def _files(settings: Settings, assumed: Assumptions, model: ServedModel) -> ModelFiles | None:
    folders = {configured.name: Path(configured.folder) for configured in settings.models if configured.folder}
    folder = assumed.model_folder or folders.get(model.name)
    return None if folder is None else read_model_folder(folder)


def _decode_bytes(image: ImagePlan, *, verifies_all: bool) -> int:
    if needs_decode(image.info, image.target):
        return job_bytes(image.info, image.target)
    return job_bytes(image.info, None) if verifies_all else 0


def _image_lines(request: VisionRequest, plan: Plan, model: ServedModel) -> tuple[ImageLine, ...]:
    lines = {ordinal: _trimmed_line(request, ordinal, plan) for ordinal in plan.trimmed}
    lines |= {image.ordinal: _kept_line(request, image, model) for image in plan.plans}
    return tuple(lines[ordinal] for ordinal in sorted(lines))


def _trimmed_line(request: VisionRequest, ordinal: int, plan: Plan) -> ImageLine:
    return ImageLine(request.images[ordinal].param, ImageAction.TRIMMED, str(plan.trim_reason))


def _kept_line(request: VisionRequest, image: ImagePlan, model: ServedModel) -> ImageLine:
    reasons = [image.resize_reason] if image.resize_reason else []
    return ImageLine(
        param=request.images[image.ordinal].param,
        action=_action_of(image),
        why=", ".join([*reasons, *sorted(image.info.why - {Why.RESIZE})]),
        format=image.info.format,
        size=str(image.info.size),
        file_bytes=image.info.file_bytes,
        sent_size=str(image.target),
        model_size=str(model.family.tokens(image.target).model_size),
        tokens_before=image.tokens_before,
        tokens=image.tokens,
    )


def _action_of(image: ImagePlan) -> ImageAction:
    if image.is_resized:
        return ImageAction.RESIZED
    return ImageAction.NORMALISED if image.info.why else ImageAction.KEPT


def _as_json(priced: Priced) -> dict[str, Any]:
    cost = priced.cost
    return {
        "model": {
            "name": priced.model.name,
            "family": priced.model.family.name,
            "family_source": priced.model.family_source.value,
            "max_model_len": priced.limits.max_model_len,
        },
        "images": [asdict(image) for image in priced.images],
        "tokens": {
            "text": cost.text_tokens._asdict(),
            "visual": cost.visual_tokens,
            "prompt": cost.prompt_tokens._asdict(),
            "output_reserved": cost.output_tokens * cost.answers,
        },
        "amounts": cost.amounts._asdict(),
        "kv_blocks_pool": priced.limits.kv_blocks,
        "memory": {
            name: view and {"bytes": view.bytes, "share": view.share}
            for name, view in (("kv", priced.kv), ("encoder", priced.encoder), ("host", priced.host))
        },
    }
