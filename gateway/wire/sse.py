"""Server-sent events of vLLM: watched as they pass, never parsed one by one.

vLLM writes `data: {json}` and a blank line per event, then `data: [DONE]`. JSON escapes line breaks, so `data:` at
the start of a line is always a new event. Usage and errors stand in one of the last two events, `[DONE]` counted:
only those are parsed, and only when asked for. Routes whose streams look otherwise have an observer of their own,
which says how: an AnthropicObserver follows.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec

from gateway.wire.usage import AnthropicUsage, Usage, WireUsage

_EVENT = b"\ndata:"
_BORDER_BYTES = len(_EVENT) - 1
# Old events are forgotten now and then, not with every chunk: a search per event would cost more than the event.
_TAIL_BYTES = 8192
# Far more than usage or an error takes. A longer event is not kept, so that one without end costs no memory.
_LONGEST_EVENT_BYTES = 64 * 1024
_LAST_BORDER_BYTES = len(b"\n\n")


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


class StreamObserver:
    """Fed with the chunks of one stream in order, however they are cut.

    `events` counts all events but the last, `done`; `is_done` says that it has come. `has_begun` from the first event
    on, with which the first token comes.
    """

    done: ClassVar[bytes] = b"\ndata: [DONE]"
    decoder: ClassVar[msgspec.json.Decoder[Any]] = msgspec.json.Decoder(_Event)
    """Of the data of an event; what it gives has `usage` and `error`."""

    def __init__(self) -> None:
        self._starts = 0
        self._border = b"\n\n"
        self._tail = bytearray(b"\n")
        self._forget_at_bytes = _TAIL_BYTES
        self.has_begun = False

    def feed(self, chunk: bytes) -> None:
        """Look at the next chunk."""
        self.has_begun = True
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
        return self._tail[-len(self.done) - _LAST_BORDER_BYTES :].rstrip().endswith(self.done)

    @property
    def says_end(self) -> bool:
        """The last event has come, however it is spelled; other servers put blanks and line ends elsewhere."""
        return self._tail.rstrip().endswith(b"[DONE]")

    @property
    def is_at_border(self) -> bool:
        """The stream stands between two events, so another one may follow at once."""
        return self._border.endswith((b"\n\n", b"\n\r\n"))

    @property
    def usage(self) -> Usage | None:
        """The last usage reported so far."""
        for event in self._parsed():
            if event.usage is not None:
                usage: Usage = event.usage.as_usage()
                return usage
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
            del self._tail[: -len(self.done) - _LAST_BORDER_BYTES]
        else:
            del self._tail[: last if before < 0 else before]
        # The next search only when the tail has doubled: searching with every chunk would be quadratic.
        self._forget_at_bytes = max(_TAIL_BYTES, 2 * len(self._tail))

    def _parsed(self) -> list[Any]:
        """The last two events, newest first, as far as they are whole JSON."""
        parsed = []
        for event in reversed(self._tail.split(_EVENT)[1:][-2:]):
            try:
                parsed.append(self.decoder.decode(event.partition(b"\nevent:")[0]))
            except (msgspec.DecodeError, RecursionError):
                continue
        return parsed


class _AnthropicEvent(msgspec.Struct, gc=False):
    usage: AnthropicUsage | None = None
    error: _WireError | None = None


class AnthropicObserver(StreamObserver):
    """Of /v1/messages: each event has its name on a line before its data, usage stands in the last but one, and pieces
    of the answer in events of one name, which are all that `events` counts.
    """

    done = b'\ndata: {"type":"message_stop"}'
    decoder = msgspec.json.Decoder(_AnthropicEvent)
    _PIECE: ClassVar[bytes] = b"event: content_block_delta\n"
    _LAST: ClassVar[bytes] = b'"message_stop"'

    def __init__(self) -> None:
        super().__init__()
        self._pieces = 0
        self._cut = b""

    def feed(self, chunk: bytes) -> None:
        super().feed(chunk)
        joined = self._cut + chunk
        self._pieces += joined.count(self._PIECE)
        self._cut = joined[1 - len(self._PIECE) :]

    @property
    def events(self) -> int:
        return self._pieces

    @property
    def says_end(self) -> bool:
        return self.is_at_border and self._LAST in self._tail[self._tail.rfind(_EVENT) :]
