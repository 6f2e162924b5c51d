"""Answers of /v1/responses as they pass: the id, the pieces of the answer, usage, and how it ended.

vLLM 0.32 begins a stream before the engine is asked (`response.created`, `response.in_progress`), names each event on a
line before its data, ends with `response.completed`, also where the answer was cut at its bound, and has no `[DONE]`.
What breaks behind the head cuts the connection; other servers tell it in `response.failed` or `error`.
"""

import re
from typing import Any, ClassVar

import msgspec

from gateway.wire.sse import StreamError, StreamObserver
from gateway.wire.usage import ResponsesUsage, Usage, usage_in

_ANSWER_ID = re.compile(rb'"id":\s?"([A-Za-z0-9_-]{1,128})"')
# The id stands before everything that can be long.
_HEAD_BYTES = 1024
# Behind usage only short fields stand; the last event repeats the whole answer, so its end is looked at, not all of it.
_END_BYTES = 8192
_PIECE = b".delta\ndata:"
_LAST = re.compile(rb"event: ?(?:response\.(?:completed|incomplete|failed)|error)\r?\n")
_LONGEST_NAME_BYTES = 64


class AnswerId:
    """Finds the id of the answer in its first bytes, which come in pieces."""

    __slots__ = ("_head", "found", "is_over")

    def __init__(self) -> None:
        self._head = b""
        self.found: str | None = None
        self.is_over = False

    def feed(self, chunk: bytes) -> None:
        self._head = (self._head + chunk)[:_HEAD_BYTES]
        match = _ANSWER_ID.search(self._head)
        if match is not None:
            self.found = match.group(1).decode()
        self.is_over = match is not None or len(self._head) == _HEAD_BYTES


def responses_usage_of(body_tail: bytes) -> Usage | None:
    """Usage of an answer, from its last bytes or from those of its stream; None where they hold none."""
    return usage_in(body_tail, ResponsesUsage)


class _Failure(msgspec.Struct, gc=False):
    message: str = ""
    code: Any = None


class _Failed(msgspec.Struct, gc=False):
    error: _Failure | None = None


class _Event(msgspec.Struct, gc=False):
    """The last: `error` itself, or one inside of `response`; or one whose fields stand at the top."""

    type: str = ""
    message: str = ""
    code: Any = None
    error: _Failure | None = None
    response: _Failed | None = None

    @property
    def failure(self) -> _Failure | None:
        if self.error is not None:
            return self.error
        if self.type == "error":
            return _Failure(self.message, self.code)
        return None if self.response is None else self.response.error


class ResponsesObserver(StreamObserver):
    """`events` are the pieces of the answer; the stream `has_begun` with the first of them."""

    decoder: ClassVar[msgspec.json.Decoder[Any]] = msgspec.json.Decoder(_Event)

    def __init__(self) -> None:
        super().__init__()
        self._pieces = 0
        self._end = b""
        self._has_ended = False

    def feed(self, chunk: bytes) -> None:
        super().feed(chunk)
        joined = self._end[-_LONGEST_NAME_BYTES:] + chunk
        self._pieces += joined.count(_PIECE) - self._end[-_LONGEST_NAME_BYTES:].count(_PIECE)
        self._has_ended = self._has_ended or _LAST.search(joined) is not None
        self._end = (self._end + chunk)[-_END_BYTES:]
        self.has_begun = self._pieces > 0 or self._has_ended

    @property
    def events(self) -> int:
        return self._pieces

    @property
    def is_done(self) -> bool:
        return self._has_ended and self.is_at_border

    @property
    def says_end(self) -> bool:
        return self.is_done

    @property
    def usage(self) -> Usage | None:
        return responses_usage_of(self._end) if self._has_ended else None

    @property
    def error(self) -> StreamError | None:
        for event in self._parsed():
            if event.failure is not None:
                code = event.failure.code
                status = code if isinstance(code, int) and 400 <= code < 600 else None
                return StreamError(event.failure.message, status)
        return None
