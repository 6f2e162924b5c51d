"""`POST /v1/chat/completions`: what admission needs of the body, in one pass that copies no picture.

URLs of images stay raw views (a 20 MB body costs no memory here); everything that is not read is left to vLLM.
Fields that would change an image's cost or put another prompt in place of the counted one are refused. How JSON is
read is told in read.py, what counts as media in content.py.
"""

from typing import Any

import msgspec

from gateway.domain.errors import Code, GatewayError
from gateway.domain.media import MediaRef
from gateway.domain.request import ImageRef, MessageOutline, VisionRequest
from gateway.wire import read
from gateway.wire.content import ImagePart, MediaPart, Part, read_part
from gateway.wire.data_url import is_remote
from gateway.wire.media_url import MediaUrl, read_media_url
from gateway.wire.parts import RawParts
from gateway.wire.read import ABSENT
from gateway.wire.spans import SpanFinder


class _Function(msgspec.Struct, gc=False):
    name: Any = None
    arguments: Any = None


class _ToolCall(msgspec.Struct, gc=False):
    function: _Function | None = None


class _Message(msgspec.Struct):
    role: Any = None
    content: list[Part | str] | str | None = None
    name: Any = None
    tool_calls: list[_ToolCall] | None = None
    reasoning: Any = None
    reasoning_content: Any = None
    tools: msgspec.Raw = ABSENT


class _Body(msgspec.Struct):
    messages: list[_Message]
    model: Any = None
    stream: Any = None
    stream_options: read.StreamOptions | msgspec.UnsetType | None = msgspec.UNSET
    max_tokens: Any = None
    max_completion_tokens: Any = None
    n: Any = None
    priority: Any = None
    use_beam_search: Any = None
    mm_processor_kwargs: Any = None
    media_io_kwargs: Any = None
    chat_template: Any = None
    truncate_prompt_tokens: Any = None
    kv_transfer_params: dict[str, msgspec.Raw] | None = None
    tools: msgspec.Raw = ABSENT
    tool_choice: msgspec.Raw = ABSENT
    response_format: msgspec.Raw = ABSENT
    structured_outputs: msgspec.Raw = ABSENT
    documents: msgspec.Raw = ABSENT
    chat_template_kwargs: msgspec.Raw = ABSENT


_decoder = msgspec.json.Decoder(_Body)

# Those that are left out of the history are among them. A body of 32 MiB has so many if each is of 8 KB.
_MOST_IMAGES = 4096

_HIDES_COST = {
    "mm_processor_kwargs": "would change what an image costs after it was counted",
    "media_io_kwargs": "would change how images are read after they were counted",
    "chat_template": "would render another prompt than the one that was counted",
}


def parse_chat(body: bytes | bytearray) -> VisionRequest:
    """The request as admission sees it; `images` in the order in which the model sees them.

    Raises GatewayError: invalid_json, invalid_request, invalid_content_part (also for media that is not supported
    yet, and addresses of videos and audio that are not plain), invalid_image_url (neither a data URL nor an http(s)
    address). `param` names the field or the part.
    """
    parsed = read.decode_body(_decoder, body)
    _refuse_what_hides_cost(parsed)
    if not parsed.messages:
        raise GatewayError(Code.INVALID_REQUEST, "`messages` is empty. Send at least one message.", param="messages")
    images = _Images(body)
    outlines = tuple(_outline(message, index, images) for index, message in enumerate(parsed.messages))
    extra_text_bytes = _extra_text_bytes(parsed)
    return VisionRequest(
        model=read.string(parsed.model, "model"),
        stream=read.boolean(parsed.stream, "stream"),
        include_usage=read.include_usage(parsed.stream_options),
        has_stream_options=parsed.stream_options is not msgspec.UNSET,
        max_tokens=_max_tokens(parsed),
        n=read.answers(parsed.n),
        extra_text_bytes=extra_text_bytes,
        uncertain_extra_bytes=extra_text_bytes,
        truncate_prompt_tokens=read.truncation(parsed.truncate_prompt_tokens),
        priority=read.priority(parsed.priority),
        messages=outlines,
        images=tuple(images.found),
        media=tuple(images.media),
    )


class _Images:
    """Collects the images of one body in order, and beside them its videos and audio."""

    def __init__(self, body: bytes | bytearray) -> None:
        self.found: list[ImageRef] = []
        self.media: list[MediaRef] = []
        self._body = body
        self._spans: SpanFinder | None = None
        self._raw_parts: RawParts | None = None

    def add(self, image: ImagePart, message_index: int, part_index: int, path: str) -> int:
        """Note the image; returns its ordinal. Raises GatewayError."""
        self._refuse_too_many()
        bare = image.url is None
        url = self._bare_url(message_index, part_index) if image.url is None else image.url
        param = f"{path}.image_url" if bare else f"{path}.image_url.url"
        self._spans = self._spans or SpanFinder(self._body)
        self.found.append(
            ImageRef(
                ordinal=len(self.found),
                message_index=message_index,
                part_index=part_index,
                param=param,
                url=self._spans.span_of(url),
                detail=image.detail,
                is_bare_string=image.is_bare_string,
                has_uuid=image.has_uuid,
                is_remote=is_remote(memoryview(url), param),
            )
        )
        return len(self.found) - 1

    def add_media(self, media: MediaPart, path: str) -> None:
        """Note a video or audio. Raises GatewayError."""
        self._refuse_too_many()
        param = f"{path}.{media.key}"
        host, frames = MediaUrl() if media.is_data else read_media_url(memoryview(media.url), param)
        self.media.append(MediaRef(media.kind, path, param, host, frames))

    def _refuse_too_many(self) -> None:
        if len(self.found) + len(self.media) == _MOST_IMAGES:
            raise GatewayError(
                Code.TOO_MANY_IMAGES,
                f"The request has more than {_MOST_IMAGES} images, those of earlier turns included. Send fewer.",
                param="messages",
            )

    def _bare_url(self, message_index: int, part_index: int) -> msgspec.Raw:
        """A string that stands beside an object in the type is decoded by msgspec; its place needs a second look."""
        self._raw_parts = self._raw_parts or RawParts(self._body)
        return read.decode_body(_bare_decoder, self._raw_parts.part(message_index, part_index)).image_url


class _BarePart(msgspec.Struct):
    image_url: msgspec.Raw


_bare_decoder = msgspec.json.Decoder(_BarePart)


def _outline(message: _Message, index: int, images: _Images) -> MessageOutline:
    if not isinstance(message.role, str):
        path = f"messages[{index}].role"
        raise GatewayError(Code.INVALID_REQUEST, f"`{path}` must be a string.", param=path)
    side_bytes = _side_text_bytes(message)
    text_bytes, ordinals = _content(message.content, index, images)
    # Templates of models that reason cut the reasoning out of answers, wherever it stands in them.
    uncertain_bytes = side_bytes + (text_bytes if message.role == "assistant" else 0)
    return MessageOutline(message.role, side_bytes + text_bytes, ordinals, uncertain_bytes)


def _content(content: list[Part | str] | str | None, index: int, images: _Images) -> tuple[int, tuple[int, ...]]:
    """UTF-8 bytes of its text, ordinals of its images."""
    if not isinstance(content, list):
        return read.rendered_bytes(content), ()
    text_bytes = 0
    ordinals = []
    for part_index, part in enumerate(content):
        if isinstance(part, str):
            text_bytes += read.utf8_bytes(part)
            continue
        path = f"messages[{index}].content[{part_index}]"
        found = read_part(part, path)
        if isinstance(found, int):
            text_bytes += found
        elif isinstance(found, MediaPart):
            images.add_media(found, path)
        else:
            ordinals.append(images.add(found, index, part_index, path))
    return text_bytes, tuple(ordinals)


def _side_text_bytes(message: _Message) -> int:
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


def _refuse_what_hides_cost(parsed: _Body) -> None:
    if parsed.mm_processor_kwargs or parsed.media_io_kwargs or parsed.chat_template:
        name = next(name for name in _HIDES_COST if getattr(parsed, name))
        raise GatewayError(Code.INVALID_REQUEST, f"`{name}` {_HIDES_COST[name]}. Leave it out.", param=name)
    read.refuse_hidden_prompt(parsed.kv_transfer_params)
    read.refuse_beam_search(parsed.use_beam_search)


def _max_tokens(parsed: _Body) -> int | None:
    """`max_completion_tokens` wins; both are checked, as both reach vLLM."""
    older = read.integer(parsed.max_tokens, "max_tokens", minimum=1)
    newer = read.integer(parsed.max_completion_tokens, "max_completion_tokens", minimum=1)
    return older if newer is None else newer


def _extra_text_bytes(parsed: _Body) -> int:
    """As they were sent; templates print some of them, some only in part, and none with its blanks."""
    return read.json_bytes(
        parsed.tools,
        parsed.tool_choice,
        parsed.response_format,
        parsed.structured_outputs,
        parsed.documents,
        parsed.chat_template_kwargs,
    )
