"""Which route a body is for, where the path does not tell: by the one field that each route must have."""

import msgspec

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
