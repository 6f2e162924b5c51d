"""The items of a Responses body: what each is in the chat that vLLM makes of them, and where images stand in it.

Images come in messages of the user, the system and the developer, and in what tools gave. In both a part goes by its
`type`, unless it has a `uuid`: then vLLM goes by its keys.

vLLM checks some fields late, and takes an item that fits its type only so far for a message of a chat, if it has a
`role`, with all of its parts. So no other item may have one, no part of an assistant's message or thoughts a `uuid`,
and all of their text counts, though in an item that fits it is the first part's alone.
"""

from typing import Any, Final

import msgspec

from gateway.domain.request import MessageOutline, Path
from gateway.wire import read
from gateway.wire.images import Images
from gateway.wire.read import ABSENT, bad_part

_ROLES = ("user", "assistant", "system", "developer")
_CALLS = ("function_call", "custom_tool_call")
_OUTPUTS = ("function_call_output", "custom_tool_call_output")
_TEXT_TYPES = ("input_text", "output_text")
_ITEMS = "Send messages, function_call, function_call_output, custom_tool_call, custom_tool_call_output or reasoning."
_IMAGE = 'Send images as {"type": "input_image", "image_url": "data:image/png;base64,..."}.'


class Part(msgspec.Struct):
    """The keys of a part that decide what it is. The URL stays a view of the body."""

    type: Any = None
    text: Any = None
    refusal: Any = None
    image_url: msgspec.Raw = ABSENT
    detail: Any = None
    uuid: Any = None


Content = list[Part] | str | dict[str, msgspec.Raw] | None


class Item(msgspec.Struct):
    """The keys of an item that cost something or decide what it is."""

    type: Any = msgspec.UNSET
    role: Any = msgspec.UNSET
    content: Content = None
    output: Content = None
    summary: Content = None
    name: Any = None
    namespace: Any = None
    arguments: Any = None
    input: Any = None
    tools: msgspec.Raw = ABSENT


class Turns:
    """The messages of the chat, as they come; an assistant's thoughts, words and calls join into one as in vLLM."""

    def __init__(self) -> None:
        self.messages: list[MessageOutline] = []
        self._said: set[str] = set()

    def add(self, role: str, text_bytes: int, images: tuple[int, ...] = (), uncertain_bytes: int = 0) -> None:
        self.messages.append(MessageOutline(role, text_bytes, images, uncertain_bytes))
        self._said.clear()

    def add_said(self, what: str, text_bytes: int) -> None:
        """`what` an assistant has once in a message, but for calls. Templates may leave any of it out."""
        if not self.messages or self.messages[-1].role != "assistant" or (what in self._said and what != "calls"):
            self.add("assistant", text_bytes, (), text_bytes)
        else:
            last = self.messages[-1]
            total, uncertain = last.text_bytes + text_bytes, last.uncertain_text_bytes + text_bytes
            self.messages[-1] = MessageOutline("assistant", total, (), uncertain)
        self._said.add(what)


def add_item(turns: Turns, item: Item, place: Path, path: str, images: Images) -> None:
    """`place` leads to the item in the body, and `path` says so in errors. Raises GatewayError."""
    kind = "message" if item.type is msgspec.UNSET else item.type
    if kind != "message" and item.role is not msgspec.UNSET:
        raise bad_part(path, "Only messages have a `role`: vLLM could take the item for one. Take it out.")
    if kind in _CALLS:
        turns.add_said("calls", sum(map(read.rendered_bytes, (item.name, item.namespace, item.arguments, item.input))))
    elif kind in _OUTPUTS:
        text_bytes, found = _read_content(item.output, (*place, "output"), f"{path}.output", images)
        turns.add("tool", text_bytes, found)
    elif kind == "reasoning":
        thoughts = _said_text(item.content, f"{path}.content") + _said_text(item.summary, f"{path}.summary")
        turns.add_said("reasoning", thoughts)
    elif kind != "message":
        raise bad_part(path, f"Items of its type are not supported. {_ITEMS}")
    elif item.role == "assistant":
        turns.add_said("content", _said_text(item.content, f"{path}.content"))
    elif item.role in _ROLES:
        text_bytes, found = _read_content(item.content, (*place, "content"), f"{path}.content", images)
        side_bytes = _side_text_bytes(item)
        turns.add(item.role, text_bytes + side_bytes, found, side_bytes)
    else:
        raise bad_part(f"{path}.role", f"It must be one of {', '.join(_ROLES)}.")


def _read_content(content: Content, place: Path, path: str, images: Images) -> tuple[int, tuple[int, ...]]:
    """UTF-8 bytes of its text, ordinals of its images."""
    if isinstance(content, str):
        return read.utf8_bytes(content), ()
    if not isinstance(content, list):
        raise bad_part(path, "It must be a string or a list of parts.")
    text_bytes = 0
    ordinals = []
    for index, part in enumerate(content):
        at = f"{path}[{index}]"
        if part.type == "input_image":
            ordinals.append(_add_image(part, (*place, index), at, images))
        else:
            text_bytes += _text_of(part, at)
    return text_bytes, tuple(ordinals)


def _add_image(part: Part, place: Path, path: str, images: Images) -> int:
    if bytes(memoryview(part.image_url)[:1]) != b'"':
        why = (
            "it is known only by its `uuid`, and its cost is not" if part.uuid is not None else "it has no `image_url`"
        )
        raise bad_part(path, f"The image cannot be taken: {why}. {_IMAGE}")
    detail = part.detail if isinstance(part.detail, str) else None
    return images.add(place, f"{path}.image_url", part.image_url, detail, has_uuid=part.uuid is not None)


def _text_of(part: Part, path: str) -> int:
    if part.uuid is not None:
        raise bad_part(path, "With a `uuid`, vLLM goes by the other keys of a part, not by its type. Take it out.")
    if part.type == "refusal":
        return read.rendered_bytes(part.refusal)
    if part.type not in _TEXT_TYPES:
        raise bad_part(path, f"Parts of its type are not supported. Send text as `input_text`. {_IMAGE}")
    if not isinstance(part.text, str):
        raise bad_part(path, "`text` must be a string.")
    return read.utf8_bytes(part.text)


_THOUGHTS: Final = ("reasoning_text", "summary_text")


def _said_text(content: Content, path: str) -> int:
    """Of an assistant, in words or thoughts."""
    if isinstance(content, dict):
        raise bad_part(path, "It must be a string or a list of parts.")
    if not isinstance(content, list):
        return read.rendered_bytes(content)
    return sum(_said_part(part, f"{path}[{index}]") for index, part in enumerate(content))


def _said_part(part: Part, path: str) -> int:
    if part.type == "input_image" or memoryview(part.image_url):
        raise bad_part(path, "Of what an assistant said vLLM takes only text. Send the image in a message of the user.")
    if part.type in _THOUGHTS and part.uuid is None:
        return read.rendered_bytes(part.text)
    return _text_of(part, path)


def _side_text_bytes(item: Item) -> int:
    """Text beside the content that templates render: the speaker's name, a developer's tools."""
    tools = read.json_bytes(item.tools) if item.role == "developer" else 0
    return tools + (read.rendered_bytes(item.name) if isinstance(item.name, str) else 0)
