"""Anthropic's messages, as the chat that vLLM makes of them.

Follows vLLM 0.32 (entrypoints/anthropic/serving.py `to_chat_completion_request`), so that what is counted of the chat
is what vLLM counts of the messages. What of them admission needs is told in dialects/anthropic.py.

What vLLM takes and this module refuses, always with 400: `tool_addition` and `tool_removal` blocks, image blocks
without a source (vLLM drops them), results of tools in an assistant's message unless they are text (vLLM prints them
as Python would), and media types that are none.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from gateway.domain.errors import Code, GatewayError
from gateway.domain.request import Path
from gateway.wire import read
from gateway.wire.read import ABSENT, bad_part
from gateway.wire.watched import Watched

_ROLES = ("user", "assistant", "system")
_EFFORTS = ("low", "medium", "high", "xhigh", "max")
_THINKING = ("enabled", "disabled", "adaptive")
_SKIPPED = ("redacted_thinking", "tool_reference")
_CHOICES = ("auto", "any", "tool", "none")
_MEDIA_TYPE = re.compile(rb'"[A-Za-z0-9.+-]{1,64}(?:/|\\/)[A-Za-z0-9.+-]{1,64}"')  # a slash may be escaped
# One client puts such a line, new with every request, at the head of its system prompt; vLLM leaves the block out.
_BILLING_HEADER = "x-anthropic-billing-header"


class Source(msgspec.Struct, gc=False):
    """Of an image. vLLM reads `url` where `type` says so, and `data` everywhere else."""

    type: Any = None
    media_type: msgspec.Raw = ABSENT
    data: msgspec.Raw = ABSENT
    url: msgspec.Raw = ABSENT


class _Item(msgspec.Struct, gc=False):
    """A part of a tool's result; of types that are not read here vLLM takes nothing."""

    type: Any = None
    text: str = ""
    source: Source | None = None
    tool_name: str | None = None
    name: str | None = None


class _Block(msgspec.Struct):
    type: Any = None
    text: str | None = None
    source: Source | None = None
    id: str | None = None
    tool_use_id: str | None = None
    name: str | None = None
    input: dict[str, msgspec.Raw] | None = None
    content: str | list[_Item] | None = None
    thinking: str | None = None


class _Message(msgspec.Struct):
    content: str | list[_Block]
    role: Any = None


class _Tool(msgspec.Struct):
    name: str
    input_schema: dict[str, msgspec.Raw]
    description: str | None = None
    strict: bool | None = None
    defer_loading: bool | None = None


class _ToolChoice(msgspec.Struct, gc=False):
    type: Any = None
    name: str | None = None


class _Thinking(msgspec.Struct, gc=False):
    type: Any = None


class _OutputConfig(msgspec.Struct, gc=False):
    effort: Any = None
    format: msgspec.Raw = ABSENT


class Body(Watched):
    """What of a body costs something; all else is vLLM's business. A count ignores what is about the answer."""

    messages: list[_Message]
    model: str
    system: str | list[_Block] | None = None
    tools: list[_Tool] | None = None
    tool_choice: _ToolChoice | None = None
    thinking: _Thinking | None = None
    output_config: _OutputConfig | None = None
    max_tokens: Any = None
    stream: Any = None


_decoder = msgspec.json.Decoder(Body)


class Rendering(NamedTuple):
    """What vLLM found out of the model's chat template, on which the conversion depends.

    `merges_inline_system`: the template takes a system message only at its head, so those in between go there.
    `disabled_thinking_effort` is the `reasoning_effort` that stands for thinking that is switched off.
    """

    merges_inline_system: bool = True
    disabled_thinking_effort: str = "none"


class SeenImage(NamedTuple):
    """An image of the chat; `part` leads to its block in the messages, `path` says so in errors."""

    source: Source
    part: Path
    path: str


_Part = str | SeenImage | dict[str, str]


class SeenMessage(NamedTuple):
    """A message of the chat: texts, images and references to tools, and what stands `beside` them."""

    role: str
    parts: Sequence[_Part]
    beside: Mapping[str, Any]


def read_messages(body: bytes | bytearray) -> Body:
    """Raises GatewayError invalid_json, invalid_request or invalid_content_part."""
    parsed = read.decode_body(_decoder, body)
    if not parsed.model:
        raise GatewayError(Code.INVALID_REQUEST, "`model` is empty.", param="model")
    return parsed


def seen_messages(parsed: Body, rendering: Rendering) -> list[SeenMessage]:
    """The messages of the chat. Raises GatewayError 400 with the client's own path."""
    chat = _Chat()
    _add_system(chat, parsed, rendering)
    for index, message in enumerate(parsed.messages):
        _add_message(chat, message, ("messages", index), f"messages[{index}]", rendering)
    return chat.messages


def chat_of_messages(body: bytes | bytearray, rendering: Rendering) -> bytes:
    """The chat body of a messages body, its pictures left out. Raises GatewayError 400."""
    parsed = read_messages(body)
    chat = {
        "model": parsed.model,
        **chat_settings(parsed, rendering),
        "messages": [_written(message) for message in seen_messages(parsed, rendering)],
    }
    return msgspec.json.encode(chat)


def _written(message: SeenMessage) -> dict[str, Any]:
    """A single text stands by itself; without parts there is no content."""
    said: dict[str, Any] = {"role": message.role, **message.beside}
    if len(message.parts) == 1 and isinstance(message.parts[0], str):
        said["content"] = message.parts[0]
    elif message.parts:
        said["content"] = [_written_part(part) for part in message.parts]
    return said


def _written_part(part: _Part) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    return {"type": "image_url", "image_url": {"url": ""}} if isinstance(part, SeenImage) else part


class _Chat:
    def __init__(self) -> None:
        self.messages: list[SeenMessage] = []

    def add(self, role: str, parts: Sequence[_Part], **beside: object) -> None:
        self.messages.append(SeenMessage(role, parts, beside))


def _add_system(chat: _Chat, parsed: Body, rendering: Rendering) -> None:
    texts = [] if parsed.system is None else [_system_text(parsed.system)]
    if rendering.merges_inline_system:
        texts += [_inline_system_text(message) for message in parsed.messages if message.role == "system"]
    text = "".join(texts)
    if text:
        chat.add("system", [text])


def _system_text(content: str | list[_Block]) -> str:
    if isinstance(content, str):
        return content
    texts = [block.text for block in content if block.type == "text" and block.text]
    return "".join(text for text in texts if not text.startswith(_BILLING_HEADER))


def _inline_system_text(message: _Message) -> str:
    content = message.content
    if isinstance(content, str):
        return "" if content.startswith(_BILLING_HEADER) else content
    return _system_text(content)


def _add_message(chat: _Chat, message: _Message, at: Path, path: str, rendering: Rendering) -> None:
    role = message.role
    if role not in _ROLES:
        raise _misfit(f"{path}.role", _ROLES)
    if role == "system":
        text = _inline_system_text(message)
        if text and not rendering.merges_inline_system:
            chat.add(role, [text])
    elif isinstance(message.content, str):
        chat.add(role, [message.content])
    else:
        turn = _Turn(chat, role)
        for place, block in enumerate(message.content):
            turn.read(block, (*at, "content", place), f"{path}.content[{place}]")
        turn.end()


class _Turn:
    """The blocks of one message. Results of tools become messages of their own, before what else the user says."""

    def __init__(self, chat: _Chat, role: str) -> None:
        self._chat = chat
        self._role = role
        self._parts: list[_Part] = []
        self._calls: list[dict[str, Any]] = []
        self._thoughts: list[str] = []

    def read(self, block: _Block, at: Path, path: str) -> None:
        kind = block.type
        if kind == "text":
            self._parts += [block.text] if block.text else []
        elif kind == "image":
            self._parts.append(_image(block.source, at, path))
        elif kind == "thinking":
            self._thoughts.append(block.thinking or "")
        elif kind == "tool_use":
            self._calls.append(_call(block))
        elif kind == "tool_result":
            self._read_result(block, at, path)
        elif kind not in _SKIPPED:
            raise bad_part(path, "Blocks of its type are not supported. Send text, images, and calls of tools.")

    def end(self) -> None:
        if self._role == "user" and not self._parts:
            return
        thoughts = {"reasoning": "".join(self._thoughts)} if self._thoughts else {}
        calls = {"tool_calls": self._calls} if self._calls else {}
        self._chat.add(self._role, self._parts, **thoughts, **calls)

    def _read_result(self, block: _Block, at: Path, path: str) -> None:
        if self._role == "user":
            self._add_result(block, at, path)
        elif isinstance(block.content, list) and block.content:
            raise bad_part(path, "In an assistant's message the result of a tool must be text.")
        else:
            self._parts.append(f"Tool result: {block.content or ''}")

    def _add_result(self, block: _Block, at: Path, path: str) -> None:
        items = block.content if isinstance(block.content, list) else []
        text = block.content if isinstance(block.content, str) else "\n".join(i.text for i in items if i.type == "text")
        call_id = block.tool_use_id or ""
        images = [
            _image(item.source, (*at, "content", place), f"{path}.content[{place}]")
            for place, item in enumerate(items)
            if item.type == "image"
        ]
        names = [item.tool_name or item.name for item in items if item.type == "tool_reference"]
        self._chat.add("tool", [text], tool_call_id=call_id)
        if images:
            self._chat.add("user", images)
        if any(names):
            references = [{"type": "tool_reference", "name": name} for name in names if name]
            self._chat.add("tool", references, tool_call_id=call_id)


def _call(block: _Block) -> dict[str, Any]:
    arguments = msgspec.json.encode(block.input or {}).decode()
    return {"id": block.id or "", "type": "function", "function": {"name": block.name or "", "arguments": arguments}}


def _image(source: Source | None, at: Path, path: str) -> SeenImage:
    if source is None:
        raise bad_part(path, "The image has no `source`.")
    if source.type == "url":
        _check_string(source.url, f"{path}.source.url")
    else:
        _check_string(source.data, f"{path}.source.data")
        _check_media_type(source.media_type, f"{path}.source.media_type")
    return SeenImage(source, at, path)


def _check_media_type(value: msgspec.Raw, path: str) -> None:
    if memoryview(value) and not _MEDIA_TYPE.fullmatch(memoryview(value)):
        raise GatewayError(
            Code.UNSUPPORTED_IMAGE_MEDIA_TYPE, f"`{path}` must be a media type, e.g. image/png.", param=path
        )


def _check_string(value: msgspec.Raw, path: str) -> None:
    if bytes(memoryview(value)[:1]) != b'"':
        raise bad_part(path, "must be a string.")


def chat_settings(parsed: Body, rendering: Rendering) -> dict[str, Any]:
    """What stands beside the messages in the chat. Raises GatewayError invalid_request."""
    effort = _effort(parsed, rendering)
    _check_choice(parsed.tool_choice)
    found: dict[str, Any] = {} if effort is None else {"reasoning_effort": effort}
    if parsed.tools is not None:
        found["tools"] = [{"type": "function", "function": _function(tool)} for tool in parsed.tools]
    if memoryview(parsed.chat_template_kwargs):
        found["chat_template_kwargs"] = parsed.chat_template_kwargs
    return found


def _effort(parsed: Body, rendering: Rendering) -> str | None:
    effort = None if parsed.output_config is None else parsed.output_config.effort
    if effort is not None and effort not in _EFFORTS:
        raise _misfit("output_config.effort", _EFFORTS)
    if parsed.thinking is None:
        return effort
    if parsed.thinking.type not in _THINKING:
        raise _misfit("thinking.type", _THINKING)
    return rendering.disabled_thinking_effort if parsed.thinking.type == "disabled" else effort


def _check_choice(choice: _ToolChoice | None) -> None:
    if choice is None:
        return
    if choice.type not in _CHOICES:
        raise _misfit("tool_choice.type", _CHOICES)
    if choice.type == "tool" and not choice.name:
        raise GatewayError(Code.INVALID_REQUEST, "`tool_choice.name` is missing.", param="tool_choice.name")


def _function(tool: _Tool) -> dict[str, Any]:
    schema: dict[str, Any] = dict(tool.input_schema)
    schema.setdefault("type", "object")
    more = {"strict": tool.strict, "defer_loading": tool.defer_loading}
    shown = {"name": tool.name, "description": tool.description, "parameters": schema}
    return shown | {name: value for name, value in more.items() if value is not None}


def _misfit(path: str, words: Sequence[str]) -> GatewayError:
    """What stands there is the client's own text, and sentences are logged: it is not repeated."""
    return GatewayError(Code.INVALID_REQUEST, f"`{path}` must be one of {', '.join(words)}.", param=path)
