"""How the gateway itself speaks on a route: the shape of its errors, and how it says them inside of a stream.

By path and not by what is served there, for what is refused there speaks so too.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from gateway.domain.errors import GatewayError
from gateway.wire.errors import anthropic_error_body, anthropic_type, error_body, openai_type


@dataclass(frozen=True, slots=True)
class Voice:
    """`body` is the JSON of an error, and `words` that of one which has only a status and a sentence; `event` makes the
    last event of a stream of either. `waiting` goes out while a stream waits. `shape` is that of errors as the route's
    clients know them.
    """

    body: Callable[[GatewayError], bytes]
    words: Callable[[int, str], bytes]
    event: Callable[[bytes], bytes]
    waiting: bytes
    shape: msgspec.json.Decoder[Any]

    def last_event(self, error: GatewayError, *, is_at_border: bool = False) -> bytes:
        """An error for a stream whose 200 is out, ended as vLLM ends such streams.

        Where the stream may have been cut inside an event, that event is closed first, or it would swallow the error;
        an empty line too many means nothing.
        """
        event = self.event(self.body(error))
        return event if is_at_border else b"\n\n" + event


class _Error(msgspec.Struct):
    message: str


class _OpenAIError(msgspec.Struct):
    error: _Error


class _AnthropicError(msgspec.Struct):
    type: Literal["error"]
    error: _Error


def _openai_words(status: int, message: str) -> bytes:
    error = {"message": message, "type": openai_type(status), "param": None, "code": status}
    return msgspec.json.encode({"error": error})


def _openai_event(body: bytes) -> bytes:
    return b"data: " + body + b"\n\ndata: [DONE]\n\n"


def _anthropic_words(status: int, message: str) -> bytes:
    return msgspec.json.encode({"type": "error", "error": {"type": anthropic_type(status), "message": message}})


def _anthropic_event(body: bytes) -> bytes:
    """Nothing follows: an error is the end."""
    return b"event: error\ndata: " + body + b"\n\n"


# A comment (a line that begins with a colon) means nothing to any reader of server-sent events.
OPENAI = Voice(error_body, _openai_words, _openai_event, b": waiting\n\n", msgspec.json.Decoder(_OpenAIError))
ANTHROPIC = Voice(
    anthropic_error_body,
    _anthropic_words,
    _anthropic_event,
    b'event: ping\ndata: {"type": "ping"}\n\n',
    msgspec.json.Decoder(_AnthropicError),
)

_BY_PREFIX = {"/v1/messages": ANTHROPIC}


def voice_of(path: str) -> Voice:
    """That of the route at `path`, and of all below it."""
    return next(
        (voice for prefix, voice in _BY_PREFIX.items() if path == prefix or path.startswith(f"{prefix}/")), OPENAI
    )
