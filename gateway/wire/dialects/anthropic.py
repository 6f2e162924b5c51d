"""`POST /v1/messages` and the count of its tokens: what admission needs of the body, which keeps Anthropic's shape.

Prices are those of the chat that vLLM makes of it (messages.py). Pictures stand in blocks, in results of tools too, as
base64 beside their media type or under an address, which may be a data URL.
"""

from typing import Any

import msgspec

from gateway.domain.errors import Code, GatewayError
from gateway.domain.request import MessageOutline, Span, VisionRequest
from gateway.wire import read
from gateway.wire.dialects.record import Dialect, RenderingOf
from gateway.wire.images import Images
from gateway.wire.max_tokens import Members
from gateway.wire.messages import (
    Body,
    Rendering,
    SeenImage,
    SeenMessage,
    chat_of_messages,
    chat_settings,
    read_messages,
    seen_messages,
)
from gateway.wire.opening import opening_span
from gateway.wire.read import ABSENT
from gateway.wire.sse import AnthropicObserver
from gateway.wire.usage import anthropic_usage_of
from gateway.wire.watched import find_watched

_ANY_TEMPLATE = Rendering()


def parse_messages(body: bytes | bytearray) -> VisionRequest:
    """The request as admission sees it. Raises GatewayError 400 with the client's own path."""
    parsed = read_messages(body)
    max_tokens = read.integer(parsed.max_tokens, "max_tokens", minimum=1)
    if max_tokens is None:
        raise GatewayError(Code.INVALID_REQUEST, "`max_tokens` is missing.", param="max_tokens")
    return _outlined(body, parsed)._replace(max_tokens=max_tokens, stream=read.boolean(parsed.stream, "stream"))


def parse_message_tokens(body: bytes | bytearray) -> VisionRequest:
    """Of a count, for which vLLM decodes the images too, and no more. Raises GatewayError 400."""
    return _outlined(body, read_messages(body))._replace(wants_output=False, needs_engine=False)


def _outlined(body: bytes | bytearray, parsed: Body) -> VisionRequest:
    images, settings = Images(body), chat_settings(parsed, _ANY_TEMPLATE)
    found = find_watched(parsed, body, is_chat=True)
    outlines = tuple(_outline(message, images) for message in seen_messages(parsed, _ANY_TEMPLATE))
    if not outlines:
        raise GatewayError(Code.INVALID_REQUEST, "`messages` is empty. Send at least one message.", param="messages")
    schema = ABSENT if parsed.output_config is None else parsed.output_config.format
    text_bytes = read.json_bytes(schema) + (len(msgspec.json.encode(settings)) if settings else 0)
    return VisionRequest(
        model=parsed.model,
        extra_text_bytes=text_bytes,
        uncertain_extra_bytes=text_bytes,
        messages=outlines,
        images=tuple(images.found),
        fields=found.uses,
        salt=found.salt,
    )


def _outline(message: SeenMessage, images: Images) -> MessageOutline:
    text_bytes, ordinals = 0, []
    for part in message.parts:
        if isinstance(part, SeenImage):
            ordinals.append(_add(part, images))
        else:
            text_bytes += read.utf8_bytes(part if isinstance(part, str) else part["name"])
    side_bytes = _side_text_bytes(message)
    uncertain_bytes = side_bytes + (text_bytes if message.role == "assistant" else 0)
    return MessageOutline(message.role, side_bytes + text_bytes, tuple(ordinals), uncertain_bytes)


def _add(image: SeenImage, images: Images) -> int:
    source, param = image.source, f"{image.path}.source"
    if source.type == "url":
        return images.add(image.part, f"{param}.url", source.url)
    return images.add_base64(image.part, f"{param}.data", source.data, source.media_type)


def _side_text_bytes(message: SeenMessage) -> int:
    functions = (call["function"] for call in message.beside.get("tool_calls", ()))
    calls = sum(read.utf8_bytes(function["name"]) + read.utf8_bytes(function["arguments"]) for function in functions)
    return calls + read.utf8_bytes(message.beside.get("reasoning", ""))


class _Said(msgspec.Struct, gc=False):
    role: Any = None


class _Roles(msgspec.Struct):
    messages: list[_Said]


_roles_decoder = msgspec.json.Decoder(_Roles)


def _opening(body: bytes | bytearray, _request: VisionRequest) -> Span:
    """Not by the chat's messages, which are more: results of tools are messages of their own there."""
    roles = [message.role for message in read.decode_body(_roles_decoder, body).messages]
    return opening_span(body, max(1, roles.index("assistant") if "assistant" in roles else len(roles)))


class _Thinking(msgspec.Struct, gc=False):
    budget_tokens: int = 0


_thinking_decoder = msgspec.json.Decoder(_Thinking)


def _least_bound(members: Members) -> int:
    """VLLM wants `max_tokens` to be more than what may be thought."""
    try:
        return _thinking_decoder.decode(members.get("thinking", b"{}")).budget_tokens + 1
    except msgspec.DecodeError:
        return 0


def _chats(slim: bytes, rendering_of: RenderingOf) -> list[bytes]:
    return [chat_of_messages(slim, rendering_of())]


MESSAGES = Dialect(
    parse=parse_messages,
    least_bound=_least_bound,
    chats=_chats,
    opening=_opening,
    observer=AnthropicObserver,
    usage_events=0,
    usage_of=anthropic_usage_of,
)
MESSAGE_TOKENS = Dialect(
    parse=parse_message_tokens, has_answers=False, needs_engine=False, chats=_chats, opening=_opening
)
