"""`POST /v1/chat/completions/batch`: several conversations at once, each a prompt of its own with one answer.

vLLM 0.32 (entrypoints/openai/chat_completion/batch_serving.py) renders and serves each by itself, and adds up usage.
It has neither streams nor tools here, and fields of these names would be left to chance: they are refused.
"""

import msgspec

from gateway.domain.errors import Code, GatewayError
from gateway.domain.request import Span, VisionRequest
from gateway.wire import read
from gateway.wire.chat import ChatFields, answer_bound, extra_text_bytes
from gateway.wire.chat_messages import Message, outline_message
from gateway.wire.dialects.record import Dialect, RenderingOf
from gateway.wire.images import Images
from gateway.wire.opening import whole_value
from gateway.wire.watched import find_watched


class _Body(ChatFields, kw_only=True):
    messages: list[list[Message]]


class _Conversations(msgspec.Struct):
    messages: list[msgspec.Raw]


_decoder = msgspec.json.Decoder(_Body)
_conversations_decoder = msgspec.json.Decoder(_Conversations)
_members_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


def parse_batch(body: bytes | bytearray) -> VisionRequest:
    """The request as admission sees it: a prompt for each conversation. Raises GatewayError 400, as for a chat."""
    parsed = read.decode_body(_decoder, body)
    found = find_watched(parsed, body, is_chat=True)
    _refuse_what_batches_lack(parsed)
    images = Images(body)
    outlines = [
        outline_message(message, ("messages", index, place), f"messages[{index}][{place}]", images)
        for index, conversation in enumerate(parsed.messages)
        for place, message in enumerate(conversation)
    ]
    lengths = tuple(map(len, parsed.messages))
    text_bytes = len(lengths) * extra_text_bytes(parsed)
    return VisionRequest(
        model=read.string(parsed.model, "model"),
        max_tokens=answer_bound(parsed),
        n=read.answers(1, len(lengths)),
        prompts=len(lengths),
        extra_text_bytes=text_bytes,
        uncertain_extra_bytes=text_bytes,
        truncate_prompt_tokens=read.truncation(parsed.truncate_prompt_tokens),
        priority=read.priority(read.value(parsed.priority)),
        messages=tuple(outlines),
        images=tuple(images.found),
        media=tuple(images.media),
        conversation_lengths=lengths,
        fields=found.uses,
        salt=found.salt,
    )


def _refuse_what_batches_lack(parsed: _Body) -> None:
    if not parsed.messages or not all(parsed.messages):
        raise _refusal("messages", "must be a list of conversations, none of them empty.")
    if read.boolean(parsed.stream, "stream"):
        raise _refusal("stream", "cannot be true: batches are answered whole.")
    if read.json_bytes(parsed.tools):
        raise _refusal("tools", "cannot be sent: batches have no tools.")
    if (read.integer(read.value(parsed.n), "n", minimum=1) or 1) != 1:
        raise _refusal("n", "must be 1: each conversation of a batch has one answer.")


def _refusal(field: str, sentence: str) -> GatewayError:
    return GatewayError(Code.INVALID_REQUEST, f"`{field}` {sentence}", param=field)


def _opening(body: bytes | bytearray, _request: VisionRequest) -> Span:
    return whole_value("messages", body)


def _chats(slim: bytes, _rendering_of: RenderingOf) -> list[bytes]:
    members = read.decode_body(_members_decoder, slim)
    conversations = read.decode_body(_conversations_decoder, slim).messages
    return [msgspec.json.encode(members | {"messages": conversation}) for conversation in conversations]


BATCH = Dialect(parse=parse_batch, bound_keys=("max_completion_tokens", "max_tokens"), chats=_chats, opening=_opening)
