"""A picture is tried: what it costs each family, what would be sent of it, and what would become of it now.

It stands for the smallest chat request that there is, and goes the way of one up to admission, which is only asked.
Then it is checked and made smaller as it would be after that. Nothing is sent, nothing of the engine is held.
"""

from urllib.parse import parse_qs

from gateway.domain.errors import GatewayError
from gateway.domain.image import ImageInfo, Why
from gateway.domain.request import ImageRef, Span
from gateway.domain.resize import ResizePolicy, plan_images
from gateway.domain.vision.base import UnservableImageError
from gateway.domain.vision.registry import FAMILIES, family_for
from gateway.pipeline.beside import ONE_THREAD, in_thread
from gateway.pipeline.exchange import Exchange, Parts
from gateway.pipeline.planning import Plan, resize_policy
from gateway.pipeline.preflight import look_ahead
from gateway.pipeline.story import transform
from gateway.wire.encoded_file import EncodedFile
from gateway.wire.try_picture import FamilyReport, FoundReport, SentReport, TryReport, as_json_string, chat_about

PARAM = "body"
"""The picture is the whole body, so that is what errors are about."""

_PICTURE = ImageRef(0, (), PARAM, Span(0, 0))
_INLINE_BYTES = 64 << 10
_THE_CLIENTS_FAULT = 400


async def try_picture(parts: Parts, exchange: Exchange) -> TryReport:
    """The body is the file; `?model=` names one of several. Raises GatewayError 400 for a file that no request could
    bring in, and 429 or 503 where it could not even be looked at now.
    """
    file = await _as_chat(exchange)
    info = await parts.looker.look(file, parts.policies.images, PARAM)
    resize = resize_policy(parts, exchange)
    report, plan = await look_ahead(parts, exchange)
    answer = TryReport(
        found=_found(info),
        families=await in_thread(ONE_THREAD, _priced_by_all, info, resize),
        verdict=report.verdict,
        estimate=report.estimate,
    )
    if plan is not None:
        await _make(parts, exchange, plan, answer)
    return answer


async def _as_chat(exchange: Exchange) -> EncodedFile:
    """The exchange has the body of that request from now on; the picture in it."""
    model = parse_qs(exchange.query.decode("latin-1")).get("model", [None])[0]
    if len(exchange.body) <= _INLINE_BYTES:
        body, payload = chat_about(exchange.body, model)
    else:
        body, payload = await in_thread(ONE_THREAD, chat_about, exchange.body, model)
    exchange.hold_beside(len(body))
    exchange.body, exchange.body_bytes = body, len(body)
    return EncodedFile(memoryview(body)[payload.start : payload.end], PARAM)


async def _make(parts: Parts, exchange: Exchange, plan: Plan, answer: TryReport) -> None:
    """What would be sent, or why it cannot be made just now. Raises GatewayError 400 for a damaged picture."""
    try:
        prepared = (await transform(parts, exchange, plan)).get(0)
    except GatewayError as error:
        if error.status == _THE_CLIENTS_FAULT:
            raise GatewayError(error.code, error.message, param=PARAM) from error
        answer.trouble = error.message
        return
    [image] = plan.plans
    if prepared is None:
        answer.sent = SentReport(f"image/{image.info.format}", str(image.info.size), image.info.file_bytes, [])
        return
    reasons = [image.resize_reason] if image.resize_reason else []
    answer.sent = SentReport(
        prepared.media_type,
        str(image.target),
        prepared.file_bytes,
        [*reasons, *sorted(prepared.why - {Why.RESIZE})],
        as_json_string(prepared.base64),
    )


def _found(info: ImageInfo) -> FoundReport:
    return FoundReport(
        info.format, str(info.size), str(info.stored), info.file_bytes, info.frames, [*map(str, sorted(info.why))]
    )


def _priced_by_all(info: ImageInfo, resize: ResizePolicy) -> list[FamilyReport]:
    return [_priced(name, info, resize) for name in FAMILIES]


def _priced(name: str, info: ImageInfo, resize: ResizePolicy) -> FamilyReport:
    family = family_for(name, None)
    answer = FamilyReport(name)
    try:
        tokens = family.tokens(info.size)
        answer.prompt_tokens, answer.model_size = tokens.prompt, str(tokens.model_size)
        [plan] = plan_images([info], [_PICTURE], resize, family)
        answer.sent_tokens, answer.sent_size = family.tokens(plan.target).prompt, str(plan.target)
    except UnservableImageError as error:
        answer.trouble = f"{error}."
    except GatewayError as error:
        answer.trouble = error.message
    return answer
