"""What happens on a connection before there is a request: header limits, and errors in the shape that all routes share.

Uvicorn bounds neither the size of headers nor the time they take, and answers malformed requests in plain text.
"""

import random
from asyncio import BaseTransport, TimerHandle
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from gateway.domain.errors import Code, GatewayError
from gateway.server.joined_writes import JoinedWrites
from gateway.wire.errors import error_body, error_headers

MOST_HEADER_BYTES = 64 << 10
HEADER_SECONDS = 30.0
_LINGER_SECONDS = 1.0


class _TooLargeError(Exception):
    """Ends the parser; the refusal is kept beside it."""


class GatewayProtocol(HttpToolsProtocol):
    """Refuses, and then ends the connection: 400 malformed, 408 headers too slow, 431 headers too large."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._header_bytes = 0
        self._is_in_headers = True
        self._header_timer: TimerHandle | None = None
        self._refusal: GatewayError | None = None
        self._is_refused = False

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(JoinedWrites(transport, self.loop))  # type: ignore[arg-type]
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        if self._is_in_headers:
            self._header_bytes += len(data)
        super().data_received(data)
        if self._is_in_headers and self._header_bytes > MOST_HEADER_BYTES and not self._is_refused:
            self._refuse(_too_large())

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_in_headers = True
        self._arm()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_in_headers:
            super().on_header(name, value)
            return
        # A trailer behind a chunked body: nothing here has a use for one, and their number has no other bound.
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > MOST_HEADER_BYTES:
            self._refusal = _too_large()
            raise _TooLargeError

    def on_headers_complete(self) -> None:
        self._disarm()
        self._is_in_headers = False
        if self._header_bytes > MOST_HEADER_BYTES:
            size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size > MOST_HEADER_BYTES:
                self._refusal = _too_large()
                raise _TooLargeError
        self._header_bytes = 0
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse(self._refusal or GatewayError(Code.INVALID_REQUEST, f"{msg} Send HTTP/1.1 as RFC 9112 has it."))

    def _arm(self) -> None:
        self._disarm()
        self._header_timer = self.loop.call_later(HEADER_SECONDS, self._headers_are_late)

    def _disarm(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _headers_are_late(self) -> None:
        self._refuse(
            GatewayError(
                Code.REQUEST_TIMEOUT,
                f"No complete request headers came within {HEADER_SECONDS:.0f} s. Send them again.",
            )
        )

    def _refuse(self, error: GatewayError) -> None:
        body = error_body(error)
        headers = [*error_headers(error, body, random.random()), (b"connection", b"close")]  # noqa: S311 - no secret
        lines = b"".join(b"%s: %s\r\n" % header for header in headers)
        self.transport.write(STATUS_LINE[error.status] + lines + b"\r\n" + body)
        self.transport.write_eof()
        self._is_refused = True
        # Closing over unread bytes would reset the connection before the client has read its answer.
        self._disarm()
        self._header_timer = self.loop.call_later(_LINGER_SECONDS, self.transport.close)


def _too_large() -> GatewayError:
    return GatewayError(
        Code.HEADERS_TOO_LARGE,
        f"The request's headers have more than {MOST_HEADER_BYTES} bytes. Send fewer or shorter ones.",
    )
