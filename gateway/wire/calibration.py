"""What calibration asks of a server, and what it reads in the answers: how many tokens a prompt has, images expanded.

The prompt with a picture and the one without differ by that picture alone. The text stands first, for a picture that
follows the template's own line break may melt into it.
"""

from typing import Annotated, Any

import msgspec
import pybase64

from gateway.wire.usage import usage_of

TOKENIZE_PATH = "/tokenize"
COMPLETION_PATH = "/v1/chat/completions"
LOWEST_PRIORITY = 1_000_000
"""For vLLM's `priority`: the lower, the sooner."""

_TEXT = "What is this?"
_LONGEST_MESSAGE = 200


class _Count(msgspec.Struct):
    count: Annotated[int, msgspec.Meta(ge=0, le=2**31)]


class _Error(msgspec.Struct):
    message: str = ""


class _Refusal(msgspec.Struct):
    error: _Error


_count_decoder = msgspec.json.Decoder(_Count)
_refusal_decoder = msgspec.json.Decoder(_Refusal)


def tokenize_question(model: str, picture: bytes | None) -> bytes:
    """The body for TOKENIZE_PATH; `picture` is a PNG file."""
    return msgspec.json.encode(_prompt(model, picture))


def completion_question(model: str, picture: bytes | None, priority: int | None) -> bytes:
    """The body for COMPLETION_PATH: an answer of one token, whose usage tells what the prompt had."""
    own = {} if priority is None else {"priority": priority}
    return msgspec.json.encode(_prompt(model, picture) | {"max_tokens": 1, "temperature": 0} | own)


def _prompt(model: str, picture: bytes | None) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [{"type": "text", "text": _TEXT}]
    if picture is not None:
        url = f"data:image/png;base64,{pybase64.b64encode(picture).decode('ascii')}"
        parts.append({"type": "image_url", "image_url": {"url": url}})
    return {"model": model, "messages": [{"role": "user", "content": parts}]}


def tokenize_count(body: bytes) -> int | None:
    """Tokens of the prompt, None where the answer does not tell."""
    try:
        return _count_decoder.decode(body).count
    except msgspec.DecodeError:
        return None


def completion_count(body: bytes) -> int | None:
    """The same."""
    usage = usage_of(body)
    return None if usage is None else usage.prompt_tokens


def refusal_message(body: bytes) -> str:
    """The server's own words, in one line; empty where there are none."""
    try:
        message = _refusal_decoder.decode(body).error.message
    except (msgspec.DecodeError, RecursionError):
        return ""
    return " ".join(message.split())[:_LONGEST_MESSAGE]
