"""The errors vLLM answers with: status, type, param and message as captured from a live 0.32.0."""

import json
from dataclasses import dataclass
from typing import NoReturn


@dataclass(slots=True)
class ApiError(Exception):
    """One error answer in vLLM's shape."""

    status: int
    type: str
    message: str
    param: str | None = None

    def as_json(self) -> dict[str, object]:
        error = {"message": self.message, "type": self.type, "param": self.param, "code": self.status}
        return {"error": error}

    def as_event(self) -> bytes:
        """The error inside a stream's 200. vLLM writes it with json.dumps, so with spaces."""
        return b"data: " + json.dumps(self.as_json()).encode() + b"\n\n"


@dataclass(slots=True)
class AnthropicApiError(ApiError):
    """The same in the shape of Anthropic's routes; vLLM keeps its own names of the types."""

    def as_json(self) -> dict[str, object]:
        return {"type": "error", "error": {"type": self.type, "message": self.message}}


@dataclass(slots=True)
class DetailError(Exception):
    """An answer in the web framework's own shape, `{"detail": …}`; without detail the body is empty."""

    status: int
    detail: str | None
    headers: tuple[tuple[bytes, bytes], ...] = ()


def bad_request(message: str, param: str | None = None, *, value: object = None) -> ApiError:
    """A 400 found after the schema check. vLLM appends the parameter and, where it has one, the value."""
    if param is not None:
        shown = "" if value is None else f", value={value}"
        message = f"{message} (parameter={param}{shown})"
    return ApiError(400, "BadRequestError", message, param)


def internal_error(message: str) -> ApiError:
    return ApiError(500, "InternalServerError", message)


def unknown_model(name: str, served: str) -> ApiError:
    return ApiError(404, "NotFoundError", f"The model `{name}` does not exist. Valid aliases: {served}.", "model")


def engine_dead() -> ApiError:
    return internal_error("EngineCore encountered an issue. See stack trace (above) for the root cause.")


def queue_full() -> ApiError:
    return _unavailable("The engine is currently busy and cannot accept new requests.")


def token_backlog_full() -> ApiError:
    return _unavailable("The engine has reached its prefill token backlog limit.")


def _unavailable(what: str) -> ApiError:
    message = f"{what} Please try again later or on a different instance."
    return ApiError(503, "Service Unavailable", message)


def text_too_long(max_model_len: int, tokens: int, *, at_least: bool) -> NoReturn:
    raise bad_request(
        f"This model's maximum context length is {max_model_len} tokens. However, your prompt contains "
        f"{'at least ' if at_least else ''}{tokens} input tokens, which exceeds this limit even without any output "
        "tokens. Please reduce the length of the input prompt.",
        "input_tokens",
        value=tokens,
    )


def item_over_encoder_cache(embeddings: int, cache_tokens: int) -> ApiError:
    return bad_request(
        f"The decoder prompt contains a(n) image item with {embeddings} embedding tokens, which exceeds the "
        f"pre-allocated encoder cache size {cache_tokens}. Please reduce the input size or increase the encoder cache "
        "size by setting --limit-mm-per-prompt at startup."
    )


def too_many(modality: str, limit: int) -> ApiError:
    return bad_request(f"At most {limit} {modality}(s) may be provided in one prompt.", modality)
