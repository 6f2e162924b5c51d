"""Bodies and stream events of successful answers, key for key as captured. Pure: values in, bytes out."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from gateway.emulator.errors import ApiError
from gateway.emulator.tokens import FIRST_SYLLABLE, IM_END, SYLLABLE_TEXTS

FINGERPRINT = "vllm-0.32.0-emulated"
DONE = b"data: [DONE]\n\n"

_SYLLABLES_AS_JSON = [json.dumps(text) for text in SYLLABLE_TEXTS]


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one request. `details` only with `--enable-prompt-tokens-details`."""

    prompt_tokens: int
    completion_tokens: int
    details: dict[str, Any] | None = None

    def as_body(self) -> dict[str, Any]:
        return {**self._counts(), "prompt_tokens_details": self.details, "completion_tokens_details": None}

    def as_last_event(self) -> dict[str, Any]:
        return {**self._counts(), "prompt_tokens_details": self.details} if self.details else self._counts()

    def as_running_count(self) -> dict[str, Any]:
        return {**self._counts(), "completion_tokens_details": None}

    def _counts(self) -> dict[str, Any]:
        total = self.prompt_tokens + self.completion_tokens
        return {"prompt_tokens": self.prompt_tokens, "total_tokens": total, "completion_tokens": self.completion_tokens}


@dataclass(frozen=True, slots=True)
class Words:
    """The emulated model's words: syllables that follow from a seed, so a request repeats its answer exactly."""

    seed: int

    def token_id(self, choice: int, place: int, finish_reason: str | None) -> int:
        return IM_END if finish_reason == "stop" else FIRST_SYLLABLE + self._pick(choice, place)

    def as_json(self, choice: int, place: int, finish_reason: str | None) -> str:
        """One token's text as a JSON string. The token that stops an answer has none."""
        return '""' if finish_reason == "stop" else _SYLLABLES_AS_JSON[self._pick(choice, place)]

    def text(self, choice: int, tokens: int, finish_reason: str) -> str:
        """A whole answer of so many tokens."""
        spoken = tokens - (finish_reason == "stop")
        return "".join(SYLLABLE_TEXTS[self._pick(choice, place)] for place in range(spoken))

    def _pick(self, choice: int, place: int) -> int:
        return (self.seed + 31 * choice + 97 * place) % len(SYLLABLE_TEXTS)


@dataclass(frozen=True, slots=True)
class Choice:
    """One finished answer of a request."""

    text: str
    finish_reason: str
    token_ids: list[int] | None = None


class Form(Protocol):
    """How a route writes what the engine made."""

    def opening(self, choice: int, usage: Usage | None) -> bytes:
        """The event before the first token, if the route has one."""
        ...

    def token(self, choice: int, text_json: str, finish_reason: str | None, usage: Usage | None) -> bytes: ...

    def closing_usage(self, usage: Usage) -> bytes: ...

    def ending(self, problem: ApiError | None) -> list[bytes]:
        """The last events, those of what went wrong on the way included."""
        ...

    def body(self, choices: Sequence[Choice], usage: Usage) -> bytes: ...


class ChatForm:
    """`/v1/chat/completions`."""

    def __init__(self, request_id: str, created: int, model: str, *, fingerprint_at_end: bool) -> None:
        """`fingerprint_at_end`: no usage event follows, so the last token's event carries the fingerprint."""
        self._id = f"chatcmpl-{request_id}"
        self._created, self._model = created, model
        self._head = _event_head(self._id, "chat.completion.chunk", created, model)
        self._tail = _FINGERPRINT_TAIL if fingerprint_at_end else "}\n\n"

    def opening(self, choice: int, usage: Usage | None) -> bytes:
        delta = '"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]'
        end = ',"prompt_token_ids":null,"prompt_text":null}\n\n'
        return f'{self._head}{{"index":{choice},{delta}{_running(usage)}{end}'.encode()

    def token(self, choice: int, text_json: str, finish_reason: str | None, usage: Usage | None) -> bytes:
        start = f'{self._head}{{"index":{choice},"delta":{{"content":{text_json}}},"logprobs":null,"finish_reason":'
        if finish_reason is None:
            return f'{start}null,"token_ids":null}}]{_running(usage)}}}\n\n'.encode()
        return f'{start}"{finish_reason}","stop_reason":null,"token_ids":null}}]{_running(usage)}{self._tail}'.encode()

    def closing_usage(self, usage: Usage) -> bytes:
        return _usage_event(self._head, usage)

    def ending(self, problem: ApiError | None) -> list[bytes]:
        return _ending(problem)

    def body(self, choices: Sequence[Choice], usage: Usage) -> bytes:
        rest = {"prompt_logprobs": None, "prompt_token_ids": None, "prompt_text": None}
        return _body(self._id, "chat.completion", self._created, self._model, _chat_choices(choices), usage, rest)


class CompletionForm:
    """`/v1/completions`."""

    def __init__(self, request_id: str, created: int, model: str, *, fingerprint_at_end: bool) -> None:
        self._id = f"cmpl-{request_id}"
        self._created, self._model = created, model
        self._head = _event_head(self._id, "text_completion", created, model)
        self._tail = _FINGERPRINT_TAIL if fingerprint_at_end else "}\n\n"

    def opening(self, choice: int, usage: Usage | None) -> bytes:  # noqa: ARG002 - this route has no opening event
        return b""

    def token(self, choice: int, text_json: str, finish_reason: str | None, usage: Usage | None) -> bytes:
        reason, tail = ("null", "}\n\n") if finish_reason is None else (f'"{finish_reason}"', self._tail)
        rest = '"stop_reason":null,"prompt_token_ids":null,"token_ids":null}]'
        start = f'{self._head}{{"index":{choice},"text":{text_json},"logprobs":null,"finish_reason":{reason},{rest}'
        return f"{start}{_running(usage)}{tail}".encode()

    def closing_usage(self, usage: Usage) -> bytes:
        return _usage_event(self._head, usage)

    def ending(self, problem: ApiError | None) -> list[bytes]:
        return _ending(problem)

    def body(self, choices: Sequence[Choice], usage: Usage) -> bytes:
        return _body(self._id, "text_completion", self._created, self._model, _text_choices(choices), usage, {})


def _ending(problem: ApiError | None) -> list[bytes]:
    return [DONE] if problem is None else [problem.as_event(), DONE]


_FINGERPRINT_TAIL = f',"system_fingerprint":"{FINGERPRINT}"}}\n\n'


def _event_head(request_id: str, kind: str, created: int, model: str) -> str:
    named = dump({"id": request_id, "object": kind, "created": created, "model": model}).decode()
    return f'data: {named[:-1]},"choices":['


def _running(usage: Usage | None) -> str:
    return "" if usage is None else f',"usage":{dump(usage.as_running_count()).decode()}'


def _usage_event(head: str, usage: Usage) -> bytes:
    return f'{head}],"usage":{dump(usage.as_last_event()).decode()}{_FINGERPRINT_TAIL}'.encode()


def _chat_choices(choices: Sequence[Choice]) -> list[dict[str, Any]]:
    return [
        {
            "index": index,
            "message": {
                "role": "assistant",
                "content": choice.text,
                "refusal": None,
                "annotations": None,
                "audio": None,
                "function_call": None,
                "reasoning": None,
            },
            "logprobs": None,
            "finish_reason": choice.finish_reason,
            "stop_reason": None,
            "token_ids": choice.token_ids,
            "routed_experts": None,
        }
        for index, choice in enumerate(choices)
    ]


def _text_choices(choices: Sequence[Choice]) -> list[dict[str, Any]]:
    return [
        {
            "index": index,
            "text": choice.text,
            "logprobs": None,
            "finish_reason": choice.finish_reason,
            "stop_reason": None,
            "token_ids": choice.token_ids,
            "prompt_logprobs": None,
            "prompt_token_ids": None,
            "routed_experts": None,
        }
        for index, choice in enumerate(choices)
    ]


def _body(
    request_id: str, kind: str, created: int, model: str, choices: list[dict[str, Any]], usage: Usage, rest: Any
) -> bytes:
    return dump(
        {
            "id": request_id,
            "object": kind,
            "created": created,
            "model": model,
            "choices": choices,
            "service_tier": None,
            "system_fingerprint": FINGERPRINT,
            "usage": usage.as_body(),
            **rest,
            "kv_transfer_params": None,
            "ec_transfer_params": None,
            "metrics": None,
        }
    )


def dump(value: object) -> bytes:
    """JSON as the web framework writes it: compact, non-ASCII unescaped."""
    return msgspec.json.encode(value)
