"""What vLLM's request models accept, and its sentences for what they refuse.

The models hold the fields that the emulator acts on or checks; unknown fields are ignored, as in vLLM.
"""

import json
import math
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gateway.emulator.errors import ApiError, DetailError, bad_request

_MAX_REPORTED = 10
_MAX_INPUT_CHARS = 200
_MAX_LOGPROBS = 20
_MAX_SALT_CHARS = 128
_NOT_IN_SALTS = frozenset("@/\\\0")


class StreamOptions(BaseModel):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class Request(BaseModel):
    """Of any route. `has_chat_messages`: what stands in `messages` is looked at as vLLM's chats do."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="ignore", protected_namespaces=())
    has_chat_messages: ClassVar[bool] = True


class NamedRequest(Request):
    model: str | None = None


class GenerationRequest(NamedRequest):
    """The fields that chat and text completions have in common."""

    max_tokens: int | None = None
    min_tokens: int = 0
    ignore_eos: bool = False
    n: int | None = 1
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    priority: int = 0
    cache_salt: str | None = None
    emulator_output_tokens: int | None = None


class ChatRequest(GenerationRequest):
    messages: list[dict[str, Any]]
    max_completion_tokens: int | None = None
    logprobs: bool | None = False
    top_logprobs: int | None = None
    add_generation_prompt: bool = True
    mm_processor_kwargs: dict[str, Any] | None = None
    return_token_ids: bool | None = None


class CompletionRequest(GenerationRequest):
    prompt: str | list[str] | list[int] | list[list[int]] | None = None
    max_tokens: int | None = 16
    return_token_ids: bool | None = None


class ResponsesRequest(GenerationRequest):
    input: str | list[Any]
    n: Any = None
    max_tokens: Any = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    store: bool | None = True
    background: bool | None = False
    previous_response_id: str | None = None
    request_id: str | None = None
    truncation: Literal["auto", "disabled"] | None = "disabled"
    mm_processor_kwargs: dict[str, Any] | None = None


class TokenizeChatRequest(NamedRequest):
    messages: list[dict[str, Any]]
    add_generation_prompt: bool = True
    return_token_strs: bool | None = False
    mm_processor_kwargs: dict[str, Any] | None = None


class TokenizePromptRequest(NamedRequest):
    prompt: str
    return_token_strs: bool | None = False


class DetokenizeRequest(NamedRequest):
    tokens: list[int]


class BatchRequest(ChatRequest):
    """Several conversations. Of streams it knows nothing, and of answers one to each."""

    has_chat_messages: ClassVar[bool] = False

    messages: list[Annotated[list[dict[str, Any]], Field(min_length=1)]] = Field(min_length=1)  # type: ignore[assignment]


Model = TypeVar("Model", bound=Request)


def parse_json(body: bytes, content_type: str) -> Any:
    """The body as vLLM's web framework reads it. Raises ApiError or DetailError."""
    if not body:
        raise _validation_error([_error("missing", (), "Field required", None)])
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise _validation_error(["Unsupported Media Type: Only 'application/json' is allowed"])
    try:
        return json.loads(body)
    except json.JSONDecodeError as problem:
        context = {"error": problem.msg}
        raise _validation_error([_error("json_invalid", (problem.pos,), "JSON decode error", {}, context)]) from None
    except (ValueError, RecursionError):
        raise DetailError(400, "There was an error parsing the body") from None


def parse_request(model: type[Model], data: Any) -> Model:
    """The request as the route's model sees it. Raises ApiError with vLLM's rendering of the schema errors."""
    if isinstance(data, dict):
        if "messages" in data and data["messages"] is None:
            raise bad_request("'NoneType' object is not iterable")
        if model.has_chat_messages:
            for conversation in _conversations(data.get("messages")):
                _check_messages(conversation)
        _check_combinations(data)
    else:
        message = "Input should be a valid dictionary or object to extract fields from"
        raise _validation_error([_error("model_attributes_type", (), message, data)])
    try:
        return model.model_validate(data)
    except ValidationError as problem:
        errors = problem.errors(include_url=False)
        raise _validation_error(
            [_error(e["type"], e["loc"], e["msg"], e["input"], e.get("ctx")) for e in errors]
        ) from None


def check_sampling(request: GenerationRequest) -> None:
    """What vLLM's SamplingParams refuse, in their order. Raises ApiError."""
    n = 1 if request.n is None else request.n
    if n < 1:
        raise bad_request(f"n must be at least 1, got {n}.")
    _check_number("temperature", request.temperature)
    if request.temperature is not None and request.temperature < 0:
        raise bad_request(
            f"temperature must be non-negative, got {request.temperature}.", "temperature", value=request.temperature
        )
    _check_number("top_p", request.top_p)
    if request.top_p is not None and not 0 < request.top_p <= 1:
        raise bad_request(f"top_p must be in (0, 1], got {request.top_p}.", "top_p", value=request.top_p)
    if request.temperature == 0 and n > 1:
        raise bad_request(f"n must be 1 when using greedy sampling, got {n}.")
    top_logprobs = request.top_logprobs if isinstance(request, ChatRequest) else None
    if top_logprobs is not None and top_logprobs > _MAX_LOGPROBS:
        raise bad_request(
            f"Requested sample logprobs of {top_logprobs}, which is greater than max allowed: {_MAX_LOGPROBS}",
            "logprobs",
            value=top_logprobs,
        )


def _check_number(name: str, value: float | None) -> None:
    if value is not None and not math.isfinite(value):
        raise bad_request(f"{name} must be a finite number, got {value}.", name, value=value)


def _conversations(messages: object) -> list[object]:
    """All of a batch, or the one."""
    return messages if isinstance(messages, list) and messages and isinstance(messages[0], list) else [messages]


def _check_messages(messages: object) -> None:
    """Content of a wrong type. vLLM lists every member of its union of message types; here the first is named."""
    for place, message in enumerate(messages if isinstance(messages, list) else ()):
        if not isinstance(message, dict):
            raise _message_error(place, "", "dict_type", "Input should be a valid dictionary", message)
        if "role" not in message:
            raise _message_error(place, ".role", "missing", "Field required", message)
        content = message.get("content", "")
        if not isinstance(content, str | list) and not (content is None and message["role"] == "assistant"):
            raise _message_error(place, ".content", "string_type", "Input should be a valid string", content)


def _message_error(place: int, field: str, kind: str, message: str, value: object) -> ApiError:
    loc = f"messages.{place}.ChatCompletionDeveloperMessageParam{field}"
    return _validation_error([_error(kind, (loc,), message, value)])


def _check_combinations(data: dict[str, Any]) -> None:
    if data.get("stream_options") and not data.get("stream"):
        raise bad_request("Stream options can only be defined when `stream=True`.", "stream_options")
    if data.get("mm_processor_kwargs") is not None:
        raise bad_request(
            "Per-request mm_processor_kwargs are disabled by default because they can change multimodal preprocessing "
            "resource usage. Start the server with --trust-request-mm-kwargs only when clients are trusted.",
            "mm_processor_kwargs",
        )
    _check_salt(data.get("cache_salt"))


def _check_salt(salt: object) -> None:
    if salt is None:
        return
    if not isinstance(salt, str) or not salt:
        raise bad_request("Parameter 'cache_salt' must be a non-empty string if provided.", "cache_salt")
    if len(salt) > _MAX_SALT_CHARS or _NOT_IN_SALTS.intersection(salt):
        raise bad_request(
            "Parameter 'cache_salt' must be at most 128 characters and must not contain '@', '/', '\\\\', or NUL.",
            "cache_salt",
        )


def _error(kind: str, loc: tuple[int | str, ...], message: str, value: object, context: Any = None) -> dict[str, Any]:
    error = {"type": kind, "loc": _location(loc), "msg": message, "input": _summary(value)}
    return error if context is None else {**error, "ctx": context}


def _location(loc: tuple[int | str, ...]) -> str:
    """Dotted path of a field, without pydantic's names for the members of a union."""
    parts = (str(part) for part in ("body", *loc))
    return ".".join(part for part in parts if not any(mark in part for mark in "[](){}") and part not in _UNION_MEMBERS)


_UNION_MEMBERS = frozenset({"str", "int", "float", "bool", "list", "dict"})


def _summary(value: object) -> str:
    if isinstance(value, list | dict):
        return f"<{type(value).__name__} of {len(value)} items>"
    text = str(value)
    return text if len(text) <= _MAX_INPUT_CHARS else text[:_MAX_INPUT_CHARS] + "...[truncated]"


def _validation_error(errors: list[Any]) -> ApiError:
    label = "error" if len(errors) == 1 else "errors"
    lines = "".join(f"  {error}\n" for error in errors[:_MAX_REPORTED])
    more = f"  ...and {len(errors) - _MAX_REPORTED} more {label}\n" if len(errors) > _MAX_REPORTED else ""
    param = errors[0]["loc"] if isinstance(errors[0], dict) else None
    message = f"{len(errors)} validation {label}:\n{lines}{more}".rstrip()
    return ApiError(400, "Bad Request", message, param)
