"""Server-sent events of vLLM: watched as they pass, never parsed one by one.

vLLM writes `data: {json}` and a blank line per event, then `data: [DONE]`. JSON escapes line breaks, so `data:` at
the start of a line is always a new event. Usage and errors stand in one of the last two events, `[DONE]` counted:
only those are parsed, and only when asked for.
"""

from dataclasses import dataclass

import msgspec

from gateway.domain.errors import GatewayError
from gateway.wire.errors import error_body
from gateway.wire.usage import Usage, WireUsage

_EVENT = b"\ndata:"
_BORDER_BYTES = len(_EVENT) - 1
_DONE = b"\ndata: [DONE]"
ERROR_END = b"\n\ndata: [DONE]\n\n"
"""Behind the JSON of an error, as vLLM ends such streams."""

_DONE_BYTES = len(_DONE) + len(b"\n\n")
# Old events are forgotten now and then, not with every chunk: a search per event would cost more than the event.
_TAIL_BYTES = 8192
# Far more than usage or an error takes. A longer event is not kept, so that one without end costs no memory.
_LONGEST_EVENT_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class StreamError:
    """An error that upstream wrote into a stream that had begun; `status` is its `code`, None if that is no error's."""

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
        self._border = b"\n\n"
        self._tail = bytearray(b"\n")
        self._forget_at_bytes = _TAIL_BYTES

    def feed(self, chunk: bytes) -> None:
        """Look at the next chunk."""
        self._starts += chunk.count(_EVENT) + (self._border + chunk[:_BORDER_BYTES]).count(_EVENT)
        self._border = (self._border + chunk[-_BORDER_BYTES:])[-_BORDER_BYTES:]
        self._tail += chunk
        if len(self._tail) > self._forget_at_bytes:
            self._forget_old_events()

    @property
    def events(self) -> int:
        return self._starts - self.is_done

    @property
    def is_done(self) -> bool:
        return self._tail[-_DONE_BYTES:].rstrip().endswith(_DONE)

    @property
    def is_at_border(self) -> bool:
        """The stream stands between two events, so another one may follow at once."""
        return self._border.endswith((b"\n\n", b"\n\r\n"))

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
                status = code if isinstance(code, int) and 400 <= code < 600 else None
                return StreamError(event.error.message, status)
        return None

    def _forget_old_events(self) -> None:
        """Keep the last two events, as far as they are not too long."""
        last = max(self._tail.rfind(_EVENT), 0)
        before = self._tail.rfind(_EVENT, max(last - _LONGEST_EVENT_BYTES, 0), last)
        if len(self._tail) - last > _LONGEST_EVENT_BYTES:
            del self._tail[:-_DONE_BYTES]
        else:
            del self._tail[: last if before < 0 else before]
        # The next search only when the tail has doubled: searching with every chunk would be quadratic.
        self._forget_at_bytes = max(_TAIL_BYTES, 2 * len(self._tail))

    def _parsed(self) -> list[_Event]:
        """The last two events, newest first, as far as they are whole JSON."""
        parsed = []
        for event in reversed(self._tail.split(_EVENT)[1:][-2:]):
            try:
                parsed.append(_decoder.decode(event))
            except (msgspec.DecodeError, RecursionError):
                continue
        return parsed


def error_event(error: GatewayError, *, is_at_border: bool = False) -> bytes:
    """An error for a stream whose 200 is out, ended as vLLM ends such streams.

    Where the stream may have been cut inside an event, that event is closed first, or it would swallow the error;
    an empty line too many means nothing.
    """
    event = b"data: " + error_body(error) + ERROR_END
    return event if is_at_border else b"\n\n" + event
