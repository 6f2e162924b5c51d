"""`POST /v1/responses`: what admission needs of the body, in one pass that copies no picture.

Follows vLLM 0.32 (entrypoints/openai/responses/protocol.py and utils.py), which makes chat messages of the items of
`input`: an item goes by its `type`, and one without a type, or of type `message`, by its `role`. Of an assistant's
message vLLM hands only the first part to the model. What vLLM takes and this module refuses, always with 400:

- items of any other type that carry a `role`: vLLM reads their `content` as a chat's, unchecked;
- images in an assistant's message, and parts that say text and carry a `uuid` (vLLM goes by their other keys);
- `request_id`: the id of the answer, under which vLLM would overwrite another client's stored answer;
- what fields with rules ask for (watched.py): as in a chat.

How JSON is read is told in read.py.
"""

from typing import Any

import msgspec

from gateway.domain.errors import Code, GatewayError
from gateway.domain.request import FieldUse, MessageOutline, Path, Span, VisionRequest
from gateway.wire import read
from gateway.wire.dialects.record import Dialect, RenderingOf
from gateway.wire.images import Images
from gateway.wire.max_tokens import Members
from gateway.wire.opening import opening_span, whole_value
from gateway.wire.read import ABSENT
from gateway.wire.response_chat import chat_of_responses
from gateway.wire.response_items import Item, Turns, add_item
from gateway.wire.response_stream import ResponsesObserver, responses_usage_of
from gateway.wire.watched import Watched, find_watched

INPUT = "input"
"""The key under which the conversation stands."""


class _Body(Watched, kw_only=True):
    input: list[Item] | str
    model: Any = None
    instructions: Any = None
    stream: Any = None
    store: Any = None
    background: Any = None
    previous_response_id: Any = None
    max_output_tokens: Any = None
    truncation: Any = "disabled"
    request_id: Any = None
    tools: msgspec.Raw = ABSENT
    tool_choice: msgspec.Raw = ABSENT
    text: msgspec.Raw = ABSENT
    reasoning: msgspec.Raw = ABSENT
    previous_input_messages: msgspec.Raw = ABSENT


_decoder = msgspec.json.Decoder(_Body)


def parse_responses(body: bytes | bytearray) -> VisionRequest:
    """The request as admission sees it; `images` in the order in which the model sees them.

    Raises GatewayError: invalid_json, invalid_request, invalid_content_part, invalid_image_url. `param` names the field
    or the part.
    """
    parsed = read.decode_body(_decoder, body)
    _refuse_own_name(parsed)
    found = find_watched(parsed, body, is_chat=True)
    images = Images(body, INPUT)
    text_bytes = _extra_text_bytes(parsed)
    return VisionRequest(
        model=read.string(parsed.model, "model"),
        stream=read.boolean(parsed.stream, "stream"),
        include_usage=True,  # vLLM tells it at the end of every stream of this route
        max_tokens=read.integer(parsed.max_output_tokens, "max_output_tokens", minimum=1),
        extra_text_bytes=text_bytes,
        uncertain_extra_bytes=text_bytes,
        truncate_prompt_tokens=None if parsed.truncation == "disabled" else -1,
        priority=read.priority(read.value(parsed.priority)),
        messages=_outlines(parsed, images),
        images=tuple(images.found),
        is_stored=parsed.store is None or read.boolean(parsed.store, "store"),
        is_background=read.boolean(parsed.background, "background"),
        previous_id=read.string(parsed.previous_response_id, "previous_response_id"),
        fields=(*found.uses, *_schema(parsed)),
        salt=found.salt,
    )


def _outlines(parsed: _Body, images: Images) -> tuple[MessageOutline, ...]:
    turns = Turns()
    instructions = read.string(parsed.instructions, "instructions")
    if instructions:
        turns.add("system", read.utf8_bytes(instructions))
    if isinstance(parsed.input, str):
        turns.add("user", read.utf8_bytes(parsed.input))
    else:
        for index, item in enumerate(parsed.input):
            place: Path = (INPUT, index)
            add_item(turns, item, place, f"{INPUT}[{index}]", images)
    if not turns.messages:
        raise GatewayError(Code.INVALID_REQUEST, "`input` is empty. Send at least one item.", param=INPUT)
    return tuple(turns.messages)


def _refuse_own_name(parsed: _Body) -> None:
    if parsed.request_id is not None:
        raise GatewayError(
            Code.INVALID_REQUEST,
            "`request_id` would name the answer, and could overwrite one that is stored. The model server names it. "
            "Leave it out.",
            param="request_id",
        )


def _schema(parsed: _Body) -> tuple[FieldUse, ...]:
    """What is `response_format` in a chat stands in `text` here."""
    size = read.json_bytes(parsed.text)
    return (FieldUse("response_format", size, asked_by="text"),) if size else ()


def _extra_text_bytes(parsed: _Body) -> int:
    """As they were sent; templates print some of them, some only in part, and none with its blanks."""
    return read.json_bytes(
        parsed.tools,
        parsed.tool_choice,
        parsed.text,
        parsed.reasoning,
        parsed.structured_outputs,
        parsed.chat_template_kwargs,
        parsed.previous_input_messages,
    )


class _Said(msgspec.Struct, gc=False):
    type: Any = "message"
    role: Any = None


class _Inputs(msgspec.Struct):
    input: list[_Said] | str


_inputs_decoder = msgspec.json.Decoder(_Inputs)
_BY_ASSISTANT = ("reasoning", "function_call", "custom_tool_call")


def _opening(body: bytes | bytearray, _request: VisionRequest) -> Span:
    """Of the items, not of the chat's messages: several of an assistant's are one there."""
    items = read.decode_body(_inputs_decoder, body).input
    if isinstance(items, str):
        return whole_value(INPUT, body)
    is_said = [item.role == "assistant" or item.type in _BY_ASSISTANT for item in items]
    return opening_span(body, max(1, is_said.index(True) if True in is_said else len(items)), INPUT)


def _chats(slim: bytes, _rendering_of: RenderingOf) -> list[bytes]:
    try:
        return [chat_of_responses(slim)]
    except (LookupError, TypeError, AttributeError, RecursionError, msgspec.DecodeError):
        return [b""]  # nothing that could be counted: what vLLM cannot read either is for vLLM to judge


def _least_bound(_members: Members) -> int:
    """The route has no `min_tokens`."""
    return 1


RESPONSES = Dialect(
    parse=parse_responses,
    text_type="input_text",
    bound_keys=("max_output_tokens",),
    least_bound=_least_bound,
    chats=_chats,
    opening=_opening,
    observer=ResponsesObserver,
    usage_events=0,
    usage_of=responses_usage_of,
)
