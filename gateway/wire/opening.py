"""Where the beginning of a conversation stands in a body: the bytes that stay the same while its history grows."""

import msgspec

from gateway.domain.request import Span, VisionRequest
from gateway.wire.read import decode_body
from gateway.wire.spans import SpanFinder

_object_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_list_decoder = msgspec.json.Decoder(list[msgspec.Raw])


def opening_span(body: bytes | bytearray, messages: int, key: str = "messages") -> Span:
    """All of the first `messages` under `key`, of which there is at least one. Raises GatewayError invalid_json."""
    raws = decode_body(_list_decoder, decode_body(_object_decoder, body)[key])
    spans = SpanFinder(body)
    return Span(spans.span_of(raws[0]).start, spans.span_of(raws[messages - 1]).end)


def chat_opening(body: bytes | bytearray, request: VisionRequest) -> Span:
    """Of a chat: all messages before the first answer, or that one where it is the first."""
    roles = [message.role for message in request.messages]
    return opening_span(body, max(1, roles.index("assistant") if "assistant" in roles else len(roles)))


def whole_value(key: str, body: bytes | bytearray) -> Span:
    """Of what has no history that grows: all of what stands under `key`."""
    return SpanFinder(body).span_of(decode_body(_object_decoder, body)[key])
