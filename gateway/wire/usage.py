"""The `usage` that vLLM reports with an answer: what the request really cost."""

import json
from dataclasses import dataclass

import msgspec


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one answer.

    `cached_tokens` and `image_tokens` (without start and end markers) are None unless vLLM runs with
    `--enable-prompt-tokens-details`.
    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None = None
    image_tokens: int | None = None


class _Details(msgspec.Struct, gc=False):
    cached_tokens: int | None = None
    multimodal_tokens: dict[str, int] | None = None


class WireUsage(msgspec.Struct, gc=False):
    """`usage` as it stands in the JSON; embeddings leave `completion_tokens` out."""

    prompt_tokens: int
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None

    def as_usage(self) -> Usage:
        details = self.prompt_tokens_details or _Details()
        media = details.multimodal_tokens
        return Usage(
            self.prompt_tokens,
            self.completion_tokens or 0,
            details.cached_tokens,
            None if media is None else media.get("image", 0),
        )


_KEY = b'"usage":'
_json_decoder = json.JSONDecoder()


def usage_of(body_tail: bytes) -> Usage | None:
    """Usage of a whole answer, from its last bytes; None where they hold none.

    Exact: inside a JSON string every quote is escaped, so the key cannot be part of an answer's text.
    """
    start = body_tail.rfind(_KEY)
    if start < 0:
        return None
    text = body_tail[start + len(_KEY) :].decode(errors="replace").lstrip()
    try:
        value, _ = _json_decoder.raw_decode(text)
        return msgspec.convert(value, WireUsage).as_usage()
    except (json.JSONDecodeError, msgspec.ValidationError):
        return None
