"""`POST /v1/embeddings` with text or token ids. Chat messages, which may carry media, are refused.

vLLM also takes `messages`, and messages in `input`, alone or in batches (entrypoints/pooling/embed/protocol.py).
"""

from typing import Any

import msgspec

from gateway.domain.errors import Code, GatewayError
from gateway.domain.request import VisionRequest
from gateway.wire import read
from gateway.wire.prompts import count_prompts

_NO_MESSAGES = "Messages are not yet inspected for media on this route. Send text or token ids as `input`."


class _Message(msgspec.Struct, gc=False):
    """A JSON object, whatever is in it."""


class _Body(msgspec.Struct):
    input: str | list[str | int | list[int | _Message] | _Message] | None = None
    messages: Any = None
    model: Any = None
    truncate_prompt_tokens: Any = None
    priority: Any = None


_decoder = msgspec.json.Decoder(_Body)


def parse_embeddings(body: bytes | bytearray) -> VisionRequest:
    """The request as admission sees it: one sequence per input, no output.

    Raises GatewayError invalid_json or invalid_request.
    """
    parsed = read.decode_body(_decoder, body)
    if parsed.messages is not None:
        raise GatewayError(Code.INVALID_REQUEST, _NO_MESSAGES, param="messages")
    if parsed.input is None:
        raise GatewayError(Code.INVALID_REQUEST, "`input` is missing.", param="input")
    prompts = count_prompts(_without_messages(parsed.input), "input", read.MOST_SEQUENCES)
    return VisionRequest(
        model=read.string(parsed.model, "model"),
        prompts=prompts.prompts,
        prompt_token_ids=prompts.token_ids,
        extra_text_bytes=prompts.text_bytes,
        truncate_prompt_tokens=read.truncation(parsed.truncate_prompt_tokens),
        wants_output=False,
        priority=read.priority(parsed.priority),
    )


def _without_messages(value: str | list[str | int | list[int | _Message] | _Message]) -> str | list[Any]:
    if isinstance(value, list) and any(_holds_message(item) for item in value):
        raise GatewayError(Code.INVALID_REQUEST, _NO_MESSAGES, param="input")
    return value


def _holds_message(item: str | int | list[int | _Message] | _Message) -> bool:
    if isinstance(item, list):
        return any(isinstance(inner, _Message) for inner in item)
    return isinstance(item, _Message)
