"""Usage asked for on behalf of a client that did not, and kept out of the stream that it gets.

`ask_for_usage` makes the splices that ask; `UsageEventFilter` gives the client what vLLM would have streamed unasked.
Of vLLM 0.32 (entrypoints/openai/*/serving.py) that differs in two places: an event with empty `choices` and the usage
comes before `[DONE]`, and `system_fingerprint` stands in it instead of in the event that ends the answer. So the first
is taken out and the second put back, which makes the last event of an answer wait for the one behind it.
"""

import re
from typing import Final

import msgspec

from gateway.domain.request import Span
from gateway.wire.read import ABSENT, decode_body
from gateway.wire.spans import SpanFinder
from gateway.wire.splice import Splice

_ASKED = b'{"include_usage":true}'


class _Body(msgspec.Struct):
    stream_options: msgspec.Raw


_body_decoder = msgspec.json.Decoder(_Body)
_members_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


def ask_for_usage(body: bytes | bytearray, *, has_stream_options: bool) -> list[Splice]:
    """Splices that make a streamed request of `body` (a JSON object with members) ask for usage at its end.

    None at all where `stream_options` hold a word that only vLLM can judge. `has_stream_options`: `body` has the key,
    be it null; then it is read once more. Running counts, which vLLM only sends beside usage, are declined.
    """
    if not has_stream_options:
        end = body.rfind(b"}")
        return [Splice(Span(end, end), b',"stream_options":' + _ASKED)]
    options = decode_body(_body_decoder, body).stream_options
    spans = SpanFinder(body)
    if bytes(options) == b"null":
        return [Splice(spans.span_of(options), _ASKED)]
    members = decode_body(_members_decoder, options)
    running = bytes(members.get("continuous_usage_stats", ABSENT))
    if running not in {b"", b"null", b"false", b"true"}:
        return []
    splices = [_include(members, spans, spans.span_of(options).end - 1)]
    if running == b"true":
        splices.append(Splice(spans.span_of(members["continuous_usage_stats"]), b"false"))
    return splices


def _include(members: dict[str, msgspec.Raw], spans: SpanFinder, end: int) -> Splice:
    if "include_usage" in members:
        return Splice(spans.span_of(members["include_usage"]), b"true")
    return Splice(Span(end, end), (b"," if members else b"") + b'"include_usage":true')


# An event ends with an empty line, of whichever line ends. Each is found as soon as its last byte is there, so it makes
# no difference where the stream was cut.
_BORDER = re.compile(rb"\n\r?\n|\r\r")
_LONGEST_BORDER_BYTES: Final = 3
_WHOLE_EVENTS = (b"\n\n", b"\n\r\n")
# Inside a JSON string each quote is escaped, so these are keys.
_USAGE = b'"usage"'
_FINISH = b'"finish_reason":"'
_FINGERPRINT = b'"system_fingerprint"'
# Usage takes a few hundred bytes. A longer event is not kept back until its end.
_LONGEST_EVENT_BYTES: Final = 64 * 1024


class _Event(msgspec.Struct, gc=False):
    choices: list[msgspec.Raw] | None = None
    usage: dict[str, msgspec.Raw] | None = None
    system_fingerprint: msgspec.Raw = ABSENT


_event_decoder = msgspec.json.Decoder(_Event)


class UsageEventFilter:
    """Fed with the chunks of one stream in order, however they are cut; gives what the client may have of it by now.

    For requests with one answer. Whole events that are neither the last of the answer nor hold usage pass as they come,
    unread. A server that reports usage in other events too does so unasked, and all of its stream passes.
    """

    __slots__ = ("_finish", "_is_clear", "_is_inside_long", "_is_off", "_partial")

    def __init__(self) -> None:
        self._partial = bytearray()
        self._finish = b""
        self._is_inside_long = False
        self._is_off = False
        self._is_clear = True  # at a border, with nothing kept back

    def feed(self, chunk: bytes) -> bytes:
        """What to send on behind this chunk; often the chunk itself, sometimes nothing."""
        if self._is_clear and chunk.endswith(_WHOLE_EVENTS) and _USAGE not in chunk and _FINISH not in chunk:
            return chunk
        return chunk if self._is_off else self._sifted(chunk)

    def flush(self) -> bytes:
        """What was kept back, at the end of the stream."""
        out = [self._passed(bytes(self._partial)), self._finish]
        self._partial.clear()
        self._finish = b""
        return b"".join(out)

    def _sifted(self, chunk: bytes) -> bytes:
        partial = self._partial
        searched = max(0, len(partial) - _LONGEST_BORDER_BYTES + 1)
        partial += chunk
        out = []
        start = 0
        while (border := _BORDER.search(partial, max(searched, start))) is not None:
            out.append(self._passed(bytes(partial[start : border.end()])))
            start = border.end()
        del partial[:start]
        if self._is_off:
            out.append(self.flush())
        elif self._is_inside_long or len(partial) > _LONGEST_EVENT_BYTES:
            out.append(self._begun_long())
        self._is_clear = not (partial or self._finish or self._is_off)
        return b"".join(out)

    def _passed(self, event: bytes) -> bytes:
        """What goes out in the place of one event."""
        if self._is_inside_long or self._is_off:
            self._is_inside_long = False
            return event
        is_short = len(event) <= _LONGEST_EVENT_BYTES
        if is_short and _USAGE in event:
            parsed = _parsed(event)
            if parsed.choices == [] and parsed.usage is not None:
                return self._with_fingerprint(parsed.system_fingerprint) + _empty_lines_before(event)
            self._is_off = parsed.usage is not None
        finish, self._finish = self._finish, b""
        if is_short and _FINISH in event and _FINGERPRINT not in event and not self._is_off:
            self._finish = event
            return finish
        return finish + event

    def _with_fingerprint(self, fingerprint: msgspec.Raw) -> bytes:
        """The end of the answer, with the fingerprint that vLLM would have written there."""
        finish, self._finish = self._finish, b""
        value = bytes(fingerprint)
        if not finish or value in {b"", b"null"}:
            return finish
        end = finish.rfind(b"}")
        return b"".join((finish[:end], b",", _FINGERPRINT, b":", value, finish[end:]))

    def _begun_long(self) -> bytes:
        """The beginning of an event that is too long to be usage; the start of a border may be at its end."""
        finish, self._finish = self._finish, b""
        kept = _LONGEST_BORDER_BYTES - 1
        begun = finish + self._partial[:-kept]
        del self._partial[:-kept]
        self._is_inside_long = True
        return begun


def _parsed(event: bytes) -> _Event:
    """The JSON of the event's data; what cannot be read as an event of vLLM has nothing in it."""
    data = b"\n".join(line[5:] for line in event.splitlines() if line.startswith(b"data:"))
    try:
        return _event_decoder.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return _Event()


def _empty_lines_before(event: bytes) -> bytes:
    return event[: len(event) - len(event.lstrip(b"\r\n"))]
