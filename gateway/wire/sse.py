"""Server-sent events of vLLM: watched as they pass, never parsed one by one.

vLLM writes `data: {json}` and a blank line per event, then `data: [DONE]`. JSON escapes line breaks, so `data:` at
the start of a line is always a new event. Only the last two events are kept: usage and errors stand in one of them.
"""

from dataclasses import dataclass

import msgspec

from gateway.domain.errors import GatewayError
from gateway.wire.errors import error_body
from gateway.wire.usage import Usage, WireUsage

_EVENT = b"\ndata:"
_BORDER_BYTES = len(_EVENT) - 1
_DONE = b"[DONE]"


@dataclass(frozen=True, slots=True)
class StreamError:
    """An error that upstream wrote into a stream that had begun; `status` is its `code`, None if it is no number."""

    message: str
    status: int | None


class _WireError(msgspec.Struct, gc=False):
    message: str = ""
    code: int | str | None = None


class _Event(msgspec.Struct, gc=False):
    usage: WireUsage | None = None
    error: _WireError | None = None


_decoder = msgspec.json.Decoder(_Event)


class StreamObserver:
    """Fed with the chunks of one stream in order, however they are cut.

    `events` counts all events but `[DONE]`; `is_done` says that `[DONE]` has come.
    """

    def __init__(self) -> None:
        self._starts = 0
        self._border = b"\n"
        self._tail = bytearray(b"\n")

    def feed(self, chunk: bytes) -> None:
        """Look at the next chunk."""
        self._starts += chunk.count(_EVENT) + (self._border + chunk[:_BORDER_BYTES]).count(_EVENT)
        self._border = (self._border + chunk[-_BORDER_BYTES:])[-_BORDER_BYTES:]
        self._tail += chunk
        last = self._tail.rfind(_EVENT)
        before = self._tail.rfind(_EVENT, 0, max(last, 0))
        if before > 0:
            del self._tail[:before]

    @property
    def events(self) -> int:
        return self._starts - self.is_done

    @property
    def is_done(self) -> bool:
        return self._last_events()[-1:] == [_DONE]

    @property
    def has_begun(self) -> bool:
        """The first event is there, or has begun to come."""
        return self._starts > 0

    @property
    def usage(self) -> Usage | None:
        """The last usage reported so far."""
        for event in self._parsed():
            if event.usage is not None:
                return event.usage.as_usage()
        return None

    @property
    def error(self) -> StreamError | None:
        """The error that upstream wrote into the stream, if one is there."""
        for event in self._parsed():
            if event.error is not None:
                code = event.error.code
                return StreamError(event.error.message, code if isinstance(code, int) else None)
        return None

    def _last_events(self) -> list[bytes]:
        return [bytes(event).strip() for event in self._tail.split(_EVENT)[1:]]

    def _parsed(self) -> list[_Event]:
        """The last events that are whole JSON, newest first."""
        parsed = []
        for event in reversed(self._last_events()):
            try:
                parsed.append(_decoder.decode(event))
            except msgspec.DecodeError:
                continue
        return parsed


def error_event(error: GatewayError) -> bytes:
    """An error for a stream whose 200 is out, ended as vLLM ends such streams."""
    return b"data: " + error_body(error) + b"\n\ndata: [DONE]\n\n"
