"""`GET /v1/models` and `/v1/models/{id}`: the upstream's own list, and one entry of it, which vLLM does not serve."""

import msgspec

from gateway.domain.errors import Code, GatewayError
from gateway.pipeline import settle
from gateway.pipeline.exchange import Exchange, Parts
from gateway.pipeline.story import as_gateway_error
from gateway.server.answers import Send, relay, send_json
from gateway.upstream.client import Answer
from gateway.upstream.errors import UpstreamError


class _Entry(msgspec.Struct):
    id: str


class _List(msgspec.Struct):
    data: list[msgspec.Raw]


async def answer_models(parts: Parts, exchange: Exchange, send: Send) -> None:
    """Raises GatewayError 404 for an id that the upstream does not list, 502 to 504 where it gives no list."""
    try:
        answer = await parts.upstream.send("GET", "/v1/models", exchange.headers, None, request_id=exchange.request_id)
    except UpstreamError as error:
        raise as_gateway_error(error) from error
    try:
        settle.head_arrived(exchange, answer)
        if exchange.route.model_id is None or answer.status != 200:
            await relay(parts, exchange, answer, send)
        else:
            entry = _entry(await _whole(answer), exchange.route.model_id)
            settle.answered(parts, exchange)
            await send_json(entry, exchange, send)
    finally:
        answer.finish()


async def _whole(answer: Answer) -> bytes:
    pieces = []
    try:
        while piece := await answer.read():
            pieces.append(piece)
    except UpstreamError as error:
        raise as_gateway_error(error) from error
    return b"".join(pieces)


def _entry(body: bytes, model_id: str) -> bytes:
    try:
        entries = msgspec.json.decode(body, type=_List).data
        names = {msgspec.json.decode(entry, type=_Entry).id: bytes(entry) for entry in entries}
    except msgspec.DecodeError as error:
        raise GatewayError(Code.UPSTREAM_ERROR, f"The model server's list of models is unreadable: {error}") from None
    if model_id not in names:
        listed = ", ".join(sorted(names)) or "none"
        raise GatewayError(Code.MODEL_NOT_FOUND, f"There is no model {model_id[:200]!r}; there are: {listed}.")
    return names[model_id]
