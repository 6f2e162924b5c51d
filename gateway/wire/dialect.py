"""Which route a body is for, where the path does not tell: by the one field that each route must have."""

import msgspec

from gateway.domain.errors import Code, GatewayError
from gateway.wire import read
from gateway.wire.read import ABSENT
from gateway.wire.routes import Kind


class _Body(msgspec.Struct):
    messages: msgspec.Raw = ABSENT
    prompt: msgspec.Raw = ABSENT
    input: msgspec.Raw = ABSENT


_decoder = msgspec.json.Decoder(_Body)


def dialect_of(body: bytes | bytearray) -> Kind:
    """Without `messages`, `prompt` is for /v1/completions and `input` for /v1/responses; anything else is for
    /v1/chat/completions.

    Raises GatewayError invalid_json, or invalid_request where the body is no object.
    """
    parsed = read.decode_body(_decoder, body)
    if parsed.messages is not ABSENT:
        return Kind.CHAT
    if parsed.prompt is not ABSENT:
        return Kind.COMPLETIONS
    return Kind.CHAT if parsed.input is ABSENT else Kind.RESPONSES


class _Invoked(msgspec.Struct):
    messages: msgspec.Raw = ABSENT
    prompt: msgspec.Raw = ABSENT
    input: msgspec.Raw = ABSENT
    query: msgspec.Raw = ABSENT
    queries: msgspec.Raw = ABSENT
    data_1: msgspec.Raw = ABSENT
    text_1: msgspec.Raw = ABSENT
    data: msgspec.Raw = ABSENT
    request_type: msgspec.Raw = msgspec.field(default=ABSENT, name="requestType")


_invoked_decoder = msgspec.json.Decoder(_Invoked)
_INVOKED = {
    "messages": Kind.CHAT,
    "prompt": Kind.COMPLETIONS,
    "input": Kind.EMBEDDINGS,
    "query": Kind.RERANK,
    "queries": Kind.SCORE,
    "data_1": Kind.SCORE,
    "text_1": Kind.SCORE,
    "data": None,
    "request_type": None,
}


def invoked_kind(body: bytes | bytearray) -> Kind:
    """Of a body to /invocations, where vLLM tries its request models in turn: by the one key that only one of them has.

    Raises GatewayError invalid_json, or invalid_request for a body that could be for several, or for none.
    """
    parsed = read.decode_body(_invoked_decoder, body)
    found = [name for name in _INVOKED if getattr(parsed, name) is not ABSENT]
    kind = _INVOKED[found[0]] if len(found) == 1 else None
    if kind is None:
        names = ", ".join(f"`{name}`" for name, each in _INVOKED.items() if each is not None)
        raise GatewayError(
            Code.INVALID_REQUEST,
            f"Which route the body is for is not clear. Send exactly one of {names}, and neither `data` nor "
            "`requestType`.",
        )
    return kind
