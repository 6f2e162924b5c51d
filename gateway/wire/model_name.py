"""Another model's name, spliced into a body where vLLM looks for it."""

import msgspec

from gateway.domain.request import Span
from gateway.wire.read import ABSENT, decode_body
from gateway.wire.spans import SpanFinder
from gateway.wire.splice import Splice


class _Body(msgspec.Struct):
    model: msgspec.Raw = ABSENT


_decoder = msgspec.json.Decoder(_Body)


def name_model(body: bytes | bytearray, name: str) -> Splice:
    """What makes `body`, a JSON object with members, ask for the model `name`. Raises GatewayError invalid_json."""
    model, value = decode_body(_decoder, body).model, msgspec.json.encode(name)
    if model is not ABSENT:
        return Splice(SpanFinder(body).span_of(model), value)
    # In place of the bracket, for others write behind it and before the last one.
    start = body.index(b"{")
    return Splice(Span(start, start + 1), b'{"model":' + value + b",")
