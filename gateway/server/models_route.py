"""`GET /v1/models` and `/v1/models/{id}`: the upstream's own list, and one entry of it, which vLLM does not serve."""

import asyncio
from http import HTTPStatus

import msgspec

from gateway.domain.errors import Code, GatewayError
from gateway.pipeline import settle
from gateway.pipeline.exchange import Exchange, Parts
from gateway.pipeline.story import as_gateway_error
from gateway.server.answers import Send, send_whole
from gateway.upstream.client import Answer
from gateway.upstream.errors import UpstreamError, UpstreamTimeoutError

# A list is small and costs nothing: a server that is silent for so long will not give it.
_LIST_SECONDS = 10.0


class _Entry(msgspec.Struct):
    id: str


class _List(msgspec.Struct):
    data: list[msgspec.Raw]


async def answer_models(parts: Parts, exchange: Exchange, send: Send) -> None:
    """Raises GatewayError 404 for an id that the upstream does not list, 502 to 504 where it gives no list."""
    answer, body = await _asked(parts, exchange)
    model_id = exchange.route.model_id
    if model_id is None or answer.status != HTTPStatus.OK:
        settle.answered(parts, exchange)
        await send_whole(answer.status, answer.headers, body, exchange, send)
    else:
        entry = _entry(body, model_id)
        settle.answered(parts, exchange)
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(entry))]
        await send_whole(answer.status, headers, entry, exchange, send)


async def _asked(parts: Parts, exchange: Exchange) -> tuple[Answer, bytes]:
    """The upstream's whole answer; the connection has been given back."""
    try:
        async with asyncio.timeout(_LIST_SECONDS):
            answer = await parts.upstream.send(
                "GET", "/v1/models", exchange.headers, None, request_id=exchange.request_id
            )
            try:
                settle.head_arrived(exchange, answer)
                return answer, await _read_all(answer)
            finally:
                answer.finish()
    except TimeoutError:
        silence = UpstreamTimeoutError(f"no list of models within {_LIST_SECONDS:.0f} s")
        raise as_gateway_error(silence, parts.models.engine) from None
    except UpstreamError as error:
        raise as_gateway_error(error, parts.models.engine) from error


async def _read_all(answer: Answer) -> bytes:
    pieces = []
    while piece := await answer.read():
        pieces.append(piece)
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
