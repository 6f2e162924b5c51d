"""The shape that `/v1/embeddings`, `/pooling` and `/classify` share: text or ids as `input`, or conversations.

vLLM makes one sequence without an answer of each (entrypoints/pooling/base/protocol.py). A body from which it could
read more than one request is refused, for which of them it takes depends on how many fields each has.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from gateway.domain.errors import Code, GatewayError
from gateway.domain.request import MessageOutline, Path, Span, VisionRequest
from gateway.wire import read
from gateway.wire.chat_messages import Message, outline_message
from gateway.wire.dialects.record import Dialect, RenderingOf
from gateway.wire.images import Images
from gateway.wire.opening import whole_value
from gateway.wire.prompts import Prompts, count_prompts, too_many_prompts
from gateway.wire.read import ABSENT
from gateway.wire.watched import Watched, find_watched

_PADDINGS = (None, "do_not_pad", "max_length")


class PoolingFields(Watched, kw_only=True):
    """What stands beside the prompts, on these routes and on those that score."""

    model: Any = None
    truncate_prompt_tokens: Any = None
    padding: Any = None

    def refuse_odd_padding(self) -> None:
        """Raises GatewayError invalid_request."""
        if self.padding not in _PADDINGS:
            raise GatewayError(Code.INVALID_REQUEST, "`padding` must be max_length or do_not_pad.", param="padding")

    @property
    def pads_prompts(self) -> bool:
        return bool(self.padding == "max_length")


class _Body(PoolingFields, kw_only=True):
    input: str | list[str | int | Message | list[int | Message]] | None = None
    messages: list[Message | list[Message]] | None = None
    data: msgspec.Raw = ABSENT


_decoder = msgspec.json.Decoder(_Body)


def parse_embeddings(body: bytes | bytearray) -> VisionRequest:
    """Of /v1/embeddings, which alone takes messages in `input` and several conversations.

    Raises GatewayError invalid_json, invalid_request, or what is wrong with a part of a message.
    """
    parsed = _read(body)
    if parsed.messages is not None:
        return _conversations(body, parsed, "messages", parsed.messages)
    if isinstance(parsed.input, list) and any(_holds_messages(entry) for entry in parsed.input):
        return _conversations(body, parsed, "input", parsed.input)
    return _texts(body, parsed)


def parse_pooling(body: bytes | bytearray) -> VisionRequest:
    """Of /pooling and /classify. Raises GatewayError likewise."""
    parsed = _read(body)
    if memoryview(parsed.data):
        raise GatewayError(
            Code.INVALID_REQUEST,
            "`data` is for plugins of the model server, and what they make of it cannot be known here. Send `input` "
            "or `messages`.",
            param="data",
        )
    for name, entries in (("messages", parsed.messages), ("input", parsed.input)):
        if isinstance(entries, list) and any(isinstance(entry, list) and _holds_messages(entry) for entry in entries):
            raise GatewayError(
                Code.INVALID_REQUEST, f"Only /v1/embeddings takes several conversations in `{name}`.", param=name
            )
    if parsed.messages is not None:
        return _conversations(body, parsed, "messages", parsed.messages)
    if isinstance(parsed.input, list) and any(isinstance(entry, Message) for entry in parsed.input):
        raise GatewayError(
            Code.INVALID_REQUEST, "Only /v1/embeddings takes messages as `input`. Send `messages`.", param="input"
        )
    return _texts(body, parsed)


def _read(body: bytes | bytearray) -> _Body:
    parsed = read.decode_body(_decoder, body)
    parsed.refuse_odd_padding()
    if parsed.messages is not None and parsed.input is not None:
        raise GatewayError(Code.INVALID_REQUEST, "Send either `input` or `messages`, not both.", param="input")
    if parsed.messages is not None and not parsed.messages:
        raise GatewayError(Code.INVALID_REQUEST, "`messages` is empty. Send at least one message.", param="messages")
    return parsed


def _holds_messages(entry: object) -> bool:
    return isinstance(entry, Message) or (isinstance(entry, list) and any(isinstance(each, Message) for each in entry))


def _texts(body: bytes | bytearray, parsed: _Body) -> VisionRequest:
    if parsed.input is None:
        raise GatewayError(Code.INVALID_REQUEST, "`input` is missing.", param="input")
    # Messages are none of the kinds of prompts, so among others they are refused.
    prompts = count_prompts(parsed.input, "input", read.MOST_SEQUENCES)  # type: ignore[arg-type]
    return pooled_request(body, parsed, prompts=prompts)


def _conversations(body: bytes | bytearray, parsed: _Body, name: str, entries: Sequence[object]) -> VisionRequest:
    """All messages, or all conversations; of `messages`, the keys of the body are read as vLLM does."""
    if all(isinstance(entry, Message) for entry in entries):
        conversations: list[tuple[Path, Sequence[object]]] = [((name,), entries)]
    else:
        conversations = [((name, index), _conversation(entry, name)) for index, entry in enumerate(entries)]
    if len(conversations) > read.MOST_SEQUENCES:
        raise too_many_prompts(len(conversations), name, read.MOST_SEQUENCES)
    images = Images(body, name)
    outlines: list[MessageOutline] = []
    for place, messages in conversations:
        path = name if len(place) == 1 else f"{name}[{place[1]}]"
        for index, message in enumerate(messages):
            if not isinstance(message, Message):
                raise _mixed(name)
            outlines.append(outline_message(message, (*place, index), f"{path}[{index}]", images))
    lengths = tuple(len(messages) for _, messages in conversations)
    return pooled_request(body, parsed, Prompts(len(conversations)), outlines, lengths, images, name=name)


def _conversation(entry: object, name: str) -> list[object]:
    if not isinstance(entry, list) or not entry:
        raise _mixed(name)
    return entry


def _mixed(name: str) -> GatewayError:
    return GatewayError(
        Code.INVALID_REQUEST,
        f"`{name}` must hold messages, or a list of conversations none of which is empty, and nothing else beside.",
        param=name,
    )


def pooled_request(
    body: bytes | bytearray,
    parsed: PoolingFields,
    prompts: Prompts,
    messages: Sequence[MessageOutline] = (),
    conversation_lengths: tuple[int, ...] = (),
    images: Images | None = None,
    uncertain_bytes: int = 0,
    truncation: int | None = None,
    name: str = "messages",
) -> VisionRequest:
    """What admission sees of any request without an answer. Raises GatewayError."""
    found = find_watched(parsed, body, is_chat=True)
    more_bytes = prompts.prompts * read.json_bytes(parsed.chat_template_kwargs)
    return VisionRequest(
        model=read.string(parsed.model, "model"),
        prompts=prompts.prompts,
        prompt_token_ids=prompts.token_ids,
        extra_text_bytes=prompts.text_bytes + more_bytes,
        uncertain_extra_bytes=uncertain_bytes + more_bytes,
        truncate_prompt_tokens=(read.truncation(parsed.truncate_prompt_tokens) if truncation is None else truncation),
        pads_prompts=parsed.pads_prompts,
        wants_output=False,
        priority=read.priority(read.value(parsed.priority)),
        messages=tuple(messages),
        images=tuple(images.found) if images else (),
        media=tuple(images.media) if images else (),
        conversation_lengths=conversation_lengths if prompts.prompts > 1 else (),
        prompt_name=name,
        fields=found.uses,
        salt=found.salt,
    )


def opening_of_pooled(body: bytes | bytearray, request: VisionRequest) -> Span:
    """All that stands under the key that the images came under: there is no history that grows."""
    return whole_value(str(request.images[0].part[0]), body)


_members_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_entries_decoder = msgspec.json.Decoder(list[msgspec.Raw])
_OPENS_ANSWER = {"add_generation_prompt": msgspec.Raw(b"false")}


def _chats(slim: bytes, _rendering_of: RenderingOf) -> list[bytes]:
    """The template opens no answer here, unless it is asked to."""
    members = _OPENS_ANSWER | read.decode_body(_members_decoder, slim)
    messages = members.get("messages", ABSENT)
    if not read.json_bytes(messages):
        messages = members.get("input", ABSENT)
    entries = _entries_of(messages)
    if _starts(entries, b"{"):
        return [msgspec.json.encode(members | {"messages": messages})]
    if entries and _starts(_entries_of(entries[0]), b"{"):
        return [msgspec.json.encode(members | {"messages": each}) for each in entries]
    return [slim]


def _entries_of(value: msgspec.Raw) -> list[msgspec.Raw]:
    """None of what is no list."""
    return read.decode_body(_entries_decoder, value) if bytes(memoryview(value)[:1]) == b"[" else []


def _starts(entries: Sequence[msgspec.Raw], bracket: bytes) -> bool:
    return bool(entries) and bytes(memoryview(entries[0])[:1]) == bracket


EMBEDDINGS = Dialect(parse=parse_embeddings, has_answers=False, chats=_chats, opening=opening_of_pooled)
POOLING = Dialect(parse=parse_pooling, has_answers=False, chats=_chats, opening=opening_of_pooled)
