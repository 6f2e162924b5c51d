"""The messages of a chat, as every route has them that takes chats: what of each is text, and where its images are."""

from typing import Any

import msgspec

from gateway.domain.errors import Code, GatewayError
from gateway.domain.request import MessageOutline, Path
from gateway.wire import read
from gateway.wire.content import MediaPart, Part, read_part
from gateway.wire.images import Images
from gateway.wire.read import ABSENT


class _Function(msgspec.Struct, gc=False):
    name: Any = None
    arguments: Any = None


class _ToolCall(msgspec.Struct, gc=False):
    function: _Function | None = None


Content = list[Part | str] | str | None


class Message(msgspec.Struct):
    """The keys of a message that cost something; all others are vLLM's business."""

    role: Any = None
    content: Content = None
    name: Any = None
    tool_calls: list[_ToolCall] | None = None
    reasoning: Any = None
    reasoning_content: Any = None
    tools: msgspec.Raw = ABSENT


def outline_message(message: Message, place: Path, path: str, images: Images) -> MessageOutline:
    """`place` leads to the message in the body, and `path` says so in errors. Raises GatewayError."""
    if not isinstance(message.role, str):
        path = f"{path}.role"
        raise GatewayError(Code.INVALID_REQUEST, f"`{path}` must be a string.", param=path)
    side_bytes = _side_text_bytes(message)
    text_bytes, ordinals = read_content(message.content, place, path, images)
    # Templates of models that reason cut the reasoning out of answers, wherever it stands in them.
    uncertain_bytes = side_bytes + (text_bytes if message.role == "assistant" else 0)
    return MessageOutline(message.role, side_bytes + text_bytes, ordinals, uncertain_bytes)


def read_content(content: Content, place: Path, path: str, images: Images) -> tuple[int, tuple[int, ...]]:
    """UTF-8 bytes of its text, ordinals of its images, which stand in the `content` of what `place` leads to."""
    if not isinstance(content, list):
        return read.rendered_bytes(content), ()
    text_bytes = 0
    ordinals = []
    for index, part in enumerate(content):
        if isinstance(part, str):
            text_bytes += read.utf8_bytes(part)
            continue
        at = f"{path}.content[{index}]"
        found = read_part(part, at)
        if isinstance(found, int):
            text_bytes += found
        elif isinstance(found, MediaPart):
            images.add_media(found, at)
        else:
            ordinals.append(images.add_part(found, (*place, "content", index), at))
    return text_bytes, tuple(ordinals)


def _side_text_bytes(message: Message) -> int:
    """Text beside the content that templates render: tool calls, reasoning, the speaker's name, a developer's tools.

    vLLM hands on `reasoning`, or else the deprecated `reasoning_content`, never both.
    """
    reasoning = message.reasoning_content if message.reasoning is None else message.reasoning
    total = 0
    if message.name is not None or reasoning is not None:
        total = read.rendered_bytes(message.name) + read.rendered_bytes(reasoning)
    for call in message.tool_calls or ():
        if call.function is not None:
            total += read.rendered_bytes(call.function.name) + read.rendered_bytes(call.function.arguments)
    return total + (read.json_bytes(message.tools) if message.role == "developer" else 0)
