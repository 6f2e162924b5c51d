"""What a recorded request would cost under other settings: the story's own steps, on what its line says of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from gateway.domain.cost import RequestCost
from gateway.domain.geometry import Size
from gateway.domain.image import ImageFormat, ImageInfo
from gateway.domain.media import MediaCost, MediaKind
from gateway.domain.priority import Priority
from gateway.domain.request import ImageRef, MessageOutline, Span, VisionRequest
from gateway.domain.tenancy import Tenant
from gateway.imaging.limits import ImageLimits
from gateway.models.served import ModelTable, ServedModel
from gateway.pipeline.exchange import Exchange, Policies
from gateway.pipeline.planning import Plan, drop_by_count, plan_known, trim_policy
from gateway.pipeline.pricing import cost_of, misfit_of
from gateway.pipeline.rewriting import ImageSource
from gateway.pipeline.story import spare_known
from gateway.replay.ladder import LadderReplay
from gateway.replay.lines import Line
from gateway.telemetry.request_log import Picture
from gateway.wire.data_url import DataUrl
from gateway.wire.dialects.table import DIALECTS
from gateway.wire.encoded_file import EncodedFile
from gateway.wire.routes import classify

_NO_URL = DataUrl("", None, None, EncodedFile(b""), needs_respelling=False)
_USUAL = Picture(None, ImageFormat.JPEG, 1000, 1000, 0)
"""Where nothing is known of any picture of a conversation."""


class EngineSettings(NamedTuple):
    """What the operator says of the engine; None: as the log has it."""

    kv_blocks: int | None = None
    sequences: int | None = None
    encoder_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class _Rules:
    """Nothing is looked at any more: the log has it."""

    policies: Policies

    @property
    def looker(self) -> "_Rules":
        return self

    @property
    def remote(self) -> "_Rules":
        return self

    async def fetch(self, _address: str, _param: str, _hold: Callable[[int], None]) -> EncodedFile:
        raise NotImplementedError

    async def look(self, file: EncodedFile, limits: ImageLimits, param: str) -> ImageInfo:
        raise NotImplementedError


class Priced(NamedTuple):
    """A request with its price; `exchange` has the rest."""

    exchange: Exchange
    request: VisionRequest
    plan: Plan
    cost: RequestCost
    model: ServedModel
    pictures: tuple[tuple[bytes, Size], ...]


class Pricer:
    """Prices lines under one configuration; `models` learn as the gateway's would. Without `ladder` pressure changes
    nothing.
    """

    def __init__(
        self, policies: Policies, models: ModelTable, engine: EngineSettings, ladder: LadderReplay | None = None
    ) -> None:
        self.rules = _Rules(policies)
        self._models = models
        self._settings = engine
        self._ladder = ladder

    def price(self, line: Line, tenant: Tenant) -> Priced:
        """Raises GatewayError where these settings refuse it, for good or under pressure."""
        model = self._model(line)
        exchange = _exchange(line, tenant)
        exchange.models, exchange.model = self._models, model
        request, ladder = _request(line), self._ladder
        if ladder is not None:
            request = ladder.meet(exchange, request, line)
        exchange.request = request
        text = line.text_tokens
        assert text is not None, "a line that is priced has it"
        plan = Plan()
        if request.images:
            trim = trim_policy(self.rules, exchange)
            by_count = drop_by_count(self.rules, request, trim)
            sources = _sources(line, request, frozenset(by_count.dropped))
            if ladder is not None:
                ladder.shrink(exchange, request, line, [source.ref.ordinal for source in sources])
            plan = plan_known(self.rules, exchange, request, model, text, trim, by_count, sources)
        cost = exchange.cost = cost_of(self.rules, exchange, request, model, plan, text, _media(line))
        misfit = misfit_of(exchange, cost)
        if misfit is not None:
            raise misfit.error
        pictures = _known_by(line, plan)
        return Priced(exchange, request, plan, spare_known(exchange, cost, pictures), model, pictures)

    def _model(self, line: Line) -> ServedModel:
        """The model with the limits of its engine at that time, less what the settings say of it."""
        limits, settings, engine = line.limits, self._settings, self._models.engine
        assert limits is not None, "a line that is priced has it"
        model = self._models.served(line.model)
        model.max_model_len = limits.max_model_len
        model.kv_groups, model.kv_charges = limits.kv_groups, limits.kv_charges
        engine.kv_block_tokens, engine.prefix_caching = limits.kv_block_tokens, limits.prefix_caching
        engine.kv_blocks, engine.kv_blocks_of_one = limits.kv_blocks, limits.kv_blocks_of_one
        if settings.kv_blocks is not None:
            engine.kv_blocks, engine.kv_blocks_of_one = settings.kv_blocks, None
        if settings.encoder_tokens is None and limits.encoder_budget_tokens is not None:
            engine.encoder_tokens.learn(limits.encoder_budget_tokens)
        return model


def _exchange(line: Line, tenant: Tenant) -> Exchange:
    asked = None if line.asked_priority is None else Priority[line.asked_priority.upper()]
    return Exchange(
        request_id="",
        method="POST",
        path=line.endpoint,
        query=b"",
        headers=(),
        arrived=line.arrived,
        resize_preset=line.asked_resize,
        is_return=line.is_return,
        tenant=tenant,
        priority=tenant.priority_of(asked),
        deadline=None if line.deadline_ms is None else line.arrived + line.deadline_ms / 1000,
        body_bytes=line.body_bytes,
    )


def _request(line: Line) -> VisionRequest:
    return VisionRequest(
        line.model,
        stream=line.is_streaming,
        max_tokens=line.max_tokens,
        n=line.answers // line.prompts,
        prompts=line.prompts,
        prompt_token_ids=line.prompt_token_ids,
        truncate_prompt_tokens=line.truncate_prompt_tokens,
        wants_output=DIALECTS[classify("POST", line.endpoint).kind].has_answers,
        messages=_outlines(line) if line.images else (),
        images=tuple(_ref(line, ordinal) for ordinal in range(line.images)),
    )


def _outlines(line: Line) -> tuple[MessageOutline, ...]:
    """As many messages as there were, with the images where trimming looks for them: before and after the last answer
    of the assistant.
    """
    old = line.images - line.new_images
    last = MessageOutline("user", line.text_bytes, tuple(range(old, line.images)))
    if not old:
        return _padded((last,), line.messages)
    return _padded((MessageOutline("user", 0, tuple(range(old))), MessageOutline("assistant", 0), last), line.messages)


def _media(line: Line) -> tuple[MediaCost, ...]:
    """What was kept for videos and audio is kept again, as one: the line has no more than the sum."""
    tokens = line.media_tokens
    return (MediaCost(MediaKind.VIDEO, "", tokens, tokens),) if tokens else ()


def _padded(outlines: tuple[MessageOutline, ...], messages: int) -> tuple[MessageOutline, ...]:
    return (MessageOutline("system", 0),) * (messages - len(outlines)) + outlines


def _ref(line: Line, ordinal: int) -> ImageRef:
    picture = line.pictures[ordinal] if line.pictures else None
    detail = "low" if picture is not None and picture.is_low_detail else None
    return ImageRef(ordinal, (), f"image {ordinal}", Span(0, 0), detail=detail)


def _sources(line: Line, request: VisionRequest, gone: frozenset[int]) -> list[ImageSource]:
    known: Picture = next((picture for picture in line.pictures if picture is not None), _USUAL)
    pictures = [picture or known for picture in line.pictures]
    return [
        ImageSource(ref, _NO_URL, _info(pictures[ref.ordinal])) for ref in request.images if ref.ordinal not in gone
    ]


def _info(picture: Picture) -> ImageInfo:
    size = Size(picture.width, picture.height)
    return ImageInfo(ImageFormat(picture.format), size, size, orientation=1, frames=1, file_bytes=0, is_lossy=True)


def _known_by(line: Line, plan: Plan) -> tuple[tuple[bytes, Size], ...]:
    """What the engine's caches know each image by; one of which no hash was made is like no other."""
    return tuple((line.digest(image.ordinal), image.target) for image in plan.plans)
