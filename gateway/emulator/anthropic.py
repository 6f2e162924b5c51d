"""POST /v1/messages and the count of its tokens: Anthropic's messages made a chat, the answer made Anthropic's again.

Follows `entrypoints/anthropic/serving.py`. What vLLM's schema refuses comes in OpenAI's shape, all else in Anthropic's.
"""

import json
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from gateway.emulator.answers import Choice, Usage, dump
from gateway.emulator.errors import AnthropicApiError, ApiError
from gateway.emulator.exchange import Exchange
from gateway.emulator.generation import answer_chat, chat_prompt
from gateway.emulator.schema import ChatRequest, Request, parse_request
from gateway.emulator.server_state import ServerState

_TYPES = Literal[
    "text", "image", "tool_use", "tool_result", "tool_reference", "thinking", "redacted_thinking", "tool_addition",
    "tool_removal",
]  # fmt: skip


class _Block(Request):
    type: _TYPES
    text: str | None = None
    source: dict[str, Any] | None = None
    id: str | None = None
    tool_use_id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    content: str | list[dict[str, Any]] | None = None
    thinking: str | None = None


class _Message(Request):
    role: Literal["user", "assistant", "system"]
    content: str | list[_Block]


class CountRequest(Request):
    has_chat_messages: ClassVar[bool] = False

    model: str
    messages: list[_Message]
    system: str | list[_Block] | None = None


class MessagesRequest(CountRequest):
    max_tokens: int = Field(gt=0)
    stream: bool | None = False
    temperature: float | None = None
    top_p: float | None = None
    emulator_output_tokens: int | None = None


async def messages(state: ServerState, exchange: Exchange, data: Any, body: bytes) -> None:
    """POST /v1/messages. Raises ApiError."""
    request = parse_request(MessagesRequest, data)
    try:
        await answer_chat(state, exchange, _chat(request), body, MessagesForm)
    except ApiError as problem:
        raise AnthropicApiError(problem.status, problem.type, problem.message) from problem


async def count_tokens(state: ServerState, exchange: Exchange, data: Any, _body: bytes) -> None:
    """POST /v1/messages/count_tokens: the images are decoded for it. Raises ApiError."""
    request = parse_request(CountRequest, data)
    try:
        state.check_model(request.model)
        prompt = await chat_prompt(state, _chat(request))
    except ApiError as problem:
        raise AnthropicApiError(problem.status, problem.type, problem.message) from problem
    tokens = len(prompt.tokens)
    await exchange.respond_json(200, {"input_tokens": tokens, "context_management": {"original_input_tokens": tokens}})


def _chat(request: CountRequest) -> ChatRequest:
    fields: dict[str, Any] = {"model": request.model, "messages": _chat_messages(request)}
    if isinstance(request, MessagesRequest):
        fields |= {
            "max_tokens": request.max_tokens,
            "max_completion_tokens": request.max_tokens,
            "temperature": request.temperature,
            "top_p": request.top_p,
            "stream": request.stream,
            "emulator_output_tokens": request.emulator_output_tokens,
        }
        if request.stream:
            fields["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
    return ChatRequest.model_validate(fields)


def _chat_messages(request: CountRequest) -> list[dict[str, Any]]:
    """System messages in between stay in place: the emulated template takes them there."""
    chat: list[dict[str, Any]] = []
    if request.system:
        chat.append({"role": "system", "content": _system_text(request.system)})
    for message in request.messages:
        if message.role == "system":
            text = _system_text(message.content)
            chat += [{"role": "system", "content": text}] if text else []
        elif isinstance(message.content, str):
            chat.append({"role": message.role, "content": message.content})
        else:
            _add_turn(chat, message.role, message.content)
    return chat


def _system_text(content: str | list[_Block]) -> str:
    if isinstance(content, str):
        return content
    return "".join(block.text for block in content if block.type == "text" and block.text)


def _add_turn(chat: list[dict[str, Any]], role: str, blocks: list[_Block]) -> None:
    """Results of tools are messages of their own, before what else the turn says."""
    parts: list[dict[str, Any]] = []
    for block in blocks:
        if block.type == "text" and block.text:
            parts.append({"type": "text", "text": block.text})
        elif block.type == "image" and block.source:
            parts.append(_image(block.source))
        elif block.type == "tool_result" and role == "user":
            _add_result(chat, block)
        elif block.type == "tool_result":
            parts.append({"type": "text", "text": f"Tool result: {block.content or ''}"})
    if parts or role != "user":
        chat.append({"role": role, "content": parts or None})


def _add_result(chat: list[dict[str, Any]], block: _Block) -> None:
    items = block.content if isinstance(block.content, list) else []
    texts = [item.get("text", "") for item in items if item.get("type") == "text"]
    chat.append({"role": "tool", "content": block.content if isinstance(block.content, str) else "\n".join(texts)})
    images = [_image(item.get("source", {})) for item in items if item.get("type") == "image"]
    if images:
        chat.append({"role": "user", "content": images})


def _image(source: dict[str, Any]) -> dict[str, Any]:
    if source.get("type") == "url":
        url = source.get("url", "")
    else:
        url = f"data:{source.get('media_type', 'image/jpeg')};base64,{source.get('data', '')}"
    return {"type": "image_url", "image_url": {"url": url}}


_STOPS = {"length": "max_tokens", "stop": "end_turn"}


class MessagesForm:
    """`/v1/messages`: one answer, whose block begins with its first text and ends before the usage."""

    def __init__(self, request_id: str, created: int, model: str, *, fingerprint_at_end: bool) -> None:  # noqa: ARG002
        self._id, self._model = f"chatcmpl-{request_id}", model
        self._reason: str | None = None
        self._has_block = False

    def opening(self, choice: int, usage: Usage | None) -> bytes:  # noqa: ARG002 - there is one choice
        message: dict[str, Any] = {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "content": [],
            "model": self._model,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": _usage(usage or Usage(0, 0)),
        }
        return _event("message_start", {"message": message})

    def token(self, choice: int, text_json: str, finish_reason: str | None, usage: Usage | None) -> bytes:  # noqa: ARG002
        self._reason = finish_reason or self._reason
        text = json.loads(text_json)
        if not text:
            return b""
        begun = b"" if self._has_block else _event("content_block_start", _BLOCK)
        self._has_block = True
        return begun + _event("content_block_delta", {"index": 0, "delta": {"type": "text_delta", "text": text}})

    def closing_usage(self, usage: Usage) -> bytes:
        ended = _event("content_block_stop", {"index": 0}) if self._has_block else b""
        delta = {"stop_reason": _STOPS.get(self._reason or "stop"), "stop_sequence": None}
        return ended + _event("message_delta", {"delta": delta, "usage": _usage(usage)})

    def ending(self, problem: ApiError | None) -> list[bytes]:
        """VLLM cannot read the chat's own error, and tells of that."""
        if problem is None:
            return [_event("message_stop", {})]
        message = "5 validation errors for ChatCompletionStreamResponse\nid\n  Field required [type=missing]"
        return [_event("error", {"error": {"type": "internal_error", "message": message}})]

    def body(self, choices: Sequence[Choice], usage: Usage) -> bytes:
        [choice] = choices
        return dump(
            {
                "id": self._id,
                "type": "message",
                "role": "assistant",
                "content": [{"type": "text", "text": choice.text}],
                "model": self._model,
                "stop_reason": _STOPS[choice.finish_reason],
                "usage": _usage(usage),
            }
        )


_BLOCK = {"index": 0, "content_block": {"type": "text", "text": ""}}


def _usage(usage: Usage) -> dict[str, int]:
    """What came out of a cache or went into one is told apart, where that is reported."""
    cached = (
        {}
        if usage.details is None
        else {
            "cache_read_input_tokens": usage.details["cached_tokens"],
            "cache_creation_input_tokens": usage.details["created_cache_tokens"],
        }
    )
    fresh = max(0, usage.prompt_tokens - sum(cached.values()))
    return {"input_tokens": fresh, "output_tokens": usage.completion_tokens, **cached}


def _event(name: str, fields: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), dump({"type": name, **fields}))
