"""The gateway's story up to admission, run on one body without a server."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

from gateway.domain.errors import GatewayError
from gateway.domain.image import ImageInfo
from gateway.domain.preflight import ADMITTED, Foresight, never, refused
from gateway.imaging.limits import ImageLimits
from gateway.imaging.probe import probe
from gateway.ledger.host_memory import memory_limit_bytes
from gateway.models.configure import configured_model
from gateway.models.served import ModelTable
from gateway.pipeline.aliases import under_served_name
from gateway.pipeline.estimation import estimate_report
from gateway.pipeline.exchange import Exchange, Policies
from gateway.pipeline.pricing import misfit_of, price
from gateway.pipeline.reading import read_request
from gateway.pipeline.remote import FetchingRefused
from gateway.policies import ByteBudgets, body_limits_of, engine_of, models_of, policies_of, upstreams_of
from gateway.server.door import Arrival, refuse_length
from gateway.settings import Settings
from gateway.wire.encoded_file import EncodedFile
from gateway.wire.report import EstimateReport, Report, verdict_report
from gateway.wire.routes import classify

_NOTHING_FETCHED = FetchingRefused("this command asks nobody; `--live` asks a gateway that does")
CHAT_PATH = "/v1/chat/completions"
_UNNAMED = "(the first model)"


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What a running gateway would have been told by its upstream."""

    model_folder: Path | None = None
    max_model_len: int | None = None
    block_tokens: int = 16
    kv_bytes_per_token: int | None = None
    endpoint: str = CHAT_PATH


class OfflineLooker:
    """Headers are read without workers."""

    async def look(self, file: EncodedFile, limits: ImageLimits, param: str) -> ImageInfo:
        return probe(file, limits, param)


@dataclass(frozen=True, slots=True)
class OfflineRules:
    """What the story's pure steps need."""

    policies: Policies
    looker: OfflineLooker
    remote: FetchingRefused


def estimate_request(body: bytes, settings: Settings, assumed: Assumptions) -> Report:
    """Raises ModelSettingsError or ModelFilesError for a model that cannot be used, nothing for what is refused."""
    exchange = Exchange("offline", "POST", assumed.endpoint, b"", (), 0.0, body=body, body_bytes=len(body))
    exchange.route = classify("POST", assumed.endpoint)
    try:
        estimate, foresight = _estimated(exchange, settings, assumed)
    except GatewayError as refusal:
        estimate, foresight = None, refused(refusal)
    return Report(verdict_report(foresight, exchange.request, settings.server.overload_status), estimate)


def _estimated(exchange: Exchange, settings: Settings, assumed: Assumptions) -> tuple[EstimateReport, Foresight]:
    if exchange.route.refusal is not None:
        raise exchange.route.refusal
    budgets = ByteBudgets.of(settings.budget, memory_limit_bytes())
    refuse_length(Arrival(content_length=exchange.body_bytes), body_limits_of(settings, budgets).max_bytes)
    rules = OfflineRules(policies_of(settings, budgets), OfflineLooker(), _NOTHING_FETCHED)
    request = under_served_name(rules, exchange, asyncio.run(read_request(rules, exchange)))
    exchange.models = _models(settings, assumed, request.model)
    plan, cost = asyncio.run(price(rules, exchange, request))
    misfit = misfit_of(exchange, cost)
    estimate = estimate_report(rules, exchange, plan, cost)
    return estimate, ADMITTED if misfit is None else never(misfit)


def _models(settings: Settings, assumed: Assumptions, requested: str | None) -> ModelTable:
    """As if the upstream listed the request's model."""
    models = models_of(settings)
    if assumed.model_folder is not None:
        name = requested or assumed.model_folder.name
        own = configured_model(name, family=None, folder=str(assumed.model_folder), processor=None)
        models = [own, *(model for model in models if model.name != name)]
    engine = engine_of(settings, upstreams_of(settings)[0])
    engine.kv_block_tokens = assumed.block_tokens
    table = ModelTable(models, engine)
    table.listed({requested or next(iter(table.names), _UNNAMED): assumed.max_model_len})
    if assumed.kv_bytes_per_token is not None:
        table.served(requested).kv_bytes_per_token = assumed.kv_bytes_per_token
    return table
