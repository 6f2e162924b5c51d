"""`POST /v1/chat/completions`: what admission needs of the body, in one pass that copies no picture.

URLs of images stay raw views (a 20 MB body costs no memory here); everything that is not read is left to vLLM.
Fields by which it could cost more than is counted are noted (watched.py). How JSON is read is told in read.py, what a
message holds in chat_messages.py, what counts as media in content.py.
"""

from typing import Any

import msgspec

from gateway.domain.errors import Code, GatewayError
from gateway.domain.request import VisionRequest
from gateway.wire import read
from gateway.wire.chat_messages import Message, outline_message
from gateway.wire.images import Images
from gateway.wire.read import ABSENT
from gateway.wire.watched import Watched, find_watched


class ChatFields(Watched, kw_only=True):
    """What stands beside the messages, of one chat or of several."""

    model: Any = None
    stream: Any = None
    stream_options: read.StreamOptions | msgspec.UnsetType | None = msgspec.UNSET
    max_tokens: Any = None
    max_completion_tokens: Any = None
    truncate_prompt_tokens: Any = None
    tools: msgspec.Raw = ABSENT
    tool_choice: msgspec.Raw = ABSENT
    documents: msgspec.Raw = ABSENT


class _Body(ChatFields, kw_only=True):
    messages: list[Message]


_decoder = msgspec.json.Decoder(_Body)


def parse_chat(body: bytes | bytearray) -> VisionRequest:
    """The request as admission sees it; `images` in the order in which the model sees them.

    Raises GatewayError: invalid_json, invalid_request, invalid_content_part (also for media that is not supported
    yet, and addresses of videos and audio that are not plain), invalid_image_url (neither a data URL nor an http(s)
    address). `param` names the field or the part.
    """
    parsed = read.decode_body(_decoder, body)
    found = find_watched(parsed, body, is_chat=True)
    if not parsed.messages:
        raise GatewayError(Code.INVALID_REQUEST, "`messages` is empty. Send at least one message.", param="messages")
    images = Images(body)
    outlines = tuple(
        outline_message(message, ("messages", index), f"messages[{index}]", images)
        for index, message in enumerate(parsed.messages)
    )
    text_bytes = extra_text_bytes(parsed)
    return VisionRequest(
        model=read.string(parsed.model, "model"),
        stream=read.boolean(parsed.stream, "stream"),
        include_usage=read.include_usage(parsed.stream_options),
        has_stream_options=parsed.stream_options is not msgspec.UNSET,
        max_tokens=answer_bound(parsed),
        n=read.answers(read.value(parsed.n)),
        extra_text_bytes=text_bytes,
        uncertain_extra_bytes=text_bytes,
        truncate_prompt_tokens=read.truncation(parsed.truncate_prompt_tokens),
        priority=read.priority(read.value(parsed.priority)),
        messages=outlines,
        images=tuple(images.found),
        media=tuple(images.media),
        fields=found.uses,
        salt=found.salt,
    )


def answer_bound(parsed: ChatFields) -> int | None:
    """`max_completion_tokens` wins; both are checked, as both reach vLLM."""
    older = read.integer(parsed.max_tokens, "max_tokens", minimum=1)
    newer = read.integer(parsed.max_completion_tokens, "max_completion_tokens", minimum=1)
    return older if newer is None else newer


def extra_text_bytes(parsed: ChatFields) -> int:
    """As they were sent; templates print some of them, some only in part, and none with its blanks."""
    return read.json_bytes(
        parsed.tools,
        parsed.tool_choice,
        parsed.response_format,
        parsed.structured_outputs,
        parsed.documents,
        parsed.chat_template_kwargs,
    )
