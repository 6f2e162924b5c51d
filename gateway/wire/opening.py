"""Where the beginning of a conversation stands in a body: the bytes that stay the same while its history grows."""

import msgspec

from gateway.domain.request import Span
from gateway.wire.read import decode_body
from gateway.wire.spans import SpanFinder


class _Body(msgspec.Struct):
    messages: list[msgspec.Raw]


_decoder = msgspec.json.Decoder(_Body)


def opening_span(body: bytes | bytearray, messages: int) -> Span:
    """All of the first `messages`, of which there is at least one. Raises GatewayError invalid_json."""
    raws = decode_body(_decoder, body).messages
    spans = SpanFinder(body)
    return Span(spans.span_of(raws[0]).start, spans.span_of(raws[messages - 1]).end)
