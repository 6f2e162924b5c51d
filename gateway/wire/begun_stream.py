"""What is still to be said when the 200 of a stream is out already, because it waited: framing only.

Comments (lines that begin with a colon) mean nothing to any reader of server-sent events: they carry what other answers
say in headers. A refusal becomes the last event, as vLLM ends streams of that route: voices.py has the words.
"""

from collections.abc import Sequence
from http import HTTPStatus

import msgspec

from gateway.domain.errors import Code, GatewayError
from gateway.wire.voices import Voice

HEAD = ((b"content-type", b"text/event-stream; charset=utf-8"),)
"""As vLLM sends it."""

_TOLD = (b"x-gateway-", b"retry-after", b"x-should-retry")
# Error texts of vLLM are shorter. Of a longer one, and of a page that is no error of that shape, so much is quoted.
_LONGEST_ERROR_BYTES = 64 * 1024
_QUOTED_CHARACTERS = 500


class BegunStream:
    """Takes the answer as it would have gone out (`head`, then `body` in pieces) and gives the bytes to send instead.

    A stream goes on as it is. Anything else is kept until it is whole and then told in one event.
    """

    __slots__ = ("_kept", "_status", "_voice")

    def __init__(self, voice: Voice) -> None:
        self._voice = voice
        self._status = 0
        self._kept: bytearray | None = None

    def head(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
        """Comments of what its headers say."""
        self._status = status
        is_stream = any(name == b"content-type" and value.startswith(b"text/event-stream") for name, value in headers)
        if not is_stream or status >= HTTPStatus.BAD_REQUEST:
            self._kept = bytearray()
        told = [b": %s: %s\n" % header for header in headers if header[0].startswith(_TOLD)]
        return b"".join([*told, b"\n"]) if told else b""

    def body(self, piece: bytes, *, is_last: bool) -> bytes:
        """What to send for the next piece."""
        if self._kept is None:
            return piece
        self._kept += piece[: _LONGEST_ERROR_BYTES - len(self._kept)]
        return _as_event(self._voice, self._status, bytes(self._kept)) if is_last else b""


def _as_event(voice: Voice, status: int, body: bytes) -> bytes:
    """The last event. An error that has the route's shape keeps its words; line ends outside of them would cut it."""
    if status < HTTPStatus.BAD_REQUEST:
        error = "The model server answered without a stream, although one was asked for."
        return voice.last_event(GatewayError(Code.UPSTREAM_ERROR, error), is_at_border=True)
    return voice.event(_one_line(voice, body) or _own_words(voice, status, body))


def _one_line(voice: Voice, body: bytes) -> bytes | None:
    try:
        voice.shape.decode(body)
        return msgspec.json.format(body, indent=-1)
    except (msgspec.DecodeError, RecursionError):
        return None


def _own_words(voice: Voice, status: int, body: bytes) -> bytes:
    shown = body.decode(errors="replace")[:_QUOTED_CHARACTERS]
    return voice.words(status, f"The model server refused the request with status {status}: {shown}")
