"""Which route a body is for, where the path does not tell: by the one field that each route must have."""

import msgspec

from gateway.wire import read
from gateway.wire.read import ABSENT
from gateway.wire.routes import Kind


class _Body(msgspec.Struct):
    messages: msgspec.Raw = ABSENT
    prompt: msgspec.Raw = ABSENT


_decoder = msgspec.json.Decoder(_Body)


def dialect_of(body: bytes | bytearray) -> Kind:
    """`prompt` without `messages` is for /v1/completions, anything else for /v1/chat/completions.

    Raises GatewayError invalid_json, or invalid_request where the body is no object.
    """
    parsed = read.decode_body(_decoder, body)
    return Kind.COMPLETIONS if parsed.messages is ABSENT and parsed.prompt is not ABSENT else Kind.CHAT
