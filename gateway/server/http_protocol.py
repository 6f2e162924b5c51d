"""What happens on a connection outside of its requests: limits of headers and of patience, and errors in the shape
that all routes share.

Uvicorn bounds neither the size of headers nor the time they take, answers malformed requests in plain text, and reads
no body behind an `Upgrade` header.
"""

import random
from asyncio import BaseTransport, TimerHandle
from typing import Any, Protocol

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from gateway.domain.errors import Code, GatewayError
from gateway.server.half_closed import HalfClosed
from gateway.server.joined_writes import JoinedWrites
from gateway.server.slow_reader import SlowReader
from gateway.server.until_close import UntilClose
from gateway.wire.errors import error_body, error_headers

MOST_HEADER_BYTES = 64 << 10
HEADER_SECONDS = 30.0
_LINGER_SECONDS = 1.0
_UPGRADE_TOKENS = {b"upgrade", b"http2-settings"}


class Host(Protocol):
    """The application that uvicorn was started with, as far as connections know it."""

    @property
    def write_timeout_seconds(self) -> float: ...

    def connection_refused(self, error: GatewayError) -> None: ...


class _TooLargeError(Exception):
    """Ends the parser; the refusal is kept beside it."""


class GatewayProtocol(HttpToolsProtocol):
    """Refuses, and then ends the connection: 400 malformed, 408 headers too slow, 431 headers too large.

    Answers go out in the order of the requests: a refusal waits for those that are under way.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._host: Host = self.config.app  # type: ignore[assignment]
        self._header_bytes = 0
        self._is_in_headers = True
        self._header_timer: TimerHandle | None = None
        self._is_upgrade = False
        self._parser_refusal: GatewayError | None = None
        self._waiting_refusal: GatewayError | None = None
        self._is_deaf = False
        self._is_lingering = False
        self._begun: RequestResponseCycle | None = None
        self._half_closed: HalfClosed | None = None
        self._slow_reader: SlowReader | None = None

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(_Transport(transport, self))  # type: ignore[arg-type]
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lingering = True
        self._disarm()
        self._unset_keepalive_if_required()
        if self._slow_reader is not None:
            self._slow_reader.stop()
        if self._half_closed is not None:
            self._half_closed.stop()
        if self._begun is not None and not self._begun.response_complete:
            # Uvicorn tells the newest request only, behind which this one may be the one that is being answered.
            self._begun.disconnected = True
            self._begun.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_deaf:
            return
        self._header_bytes += len(data)
        try:
            self._parse(data)
        except httptools.HttpParserError:
            self._refuse(self._parser_refusal or _malformed())
        else:
            if self._header_bytes > MOST_HEADER_BYTES:
                self._refuse(_too_large())
            elif self._is_in_headers:
                self._mind_the_headers()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Keeps the connection open for the answers to requests that have come whole."""
        cycle = self._newest
        if self._is_deaf or cycle is None or cycle.more_body or cycle.response_started:
            return False
        if not self.transport.can_write_eof():  # over TLS no answer can be sent any more
            return False
        cycle.keep_alive = False
        self._half_closed = HalfClosed(
            self.transport,
            self.loop,
            may_ask=lambda: cycle.scope["http_version"] == "1.1" and not self.pipeline and not cycle.response_started,
        )
        return True

    def pause_writing(self) -> None:
        super().pause_writing()
        self._mind_the_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._slow_reader is not None:
            self._slow_reader.stop()

    def on_message_begin(self) -> None:
        # Here and not with whatever is received: blank lines between requests keep no connection alive.
        self._unset_keepalive_if_required()
        self._disarm()
        super().on_message_begin()
        self._is_in_headers = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_in_headers:  # nothing here has a use for a trailer behind a chunked body
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._disarm()
        if self._header_bytes > MOST_HEADER_BYTES:
            size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size > MOST_HEADER_BYTES:
                self._parser_refusal = _too_large()
                raise _TooLargeError
        self._header_bytes = 0
        self._is_in_headers = False
        self._is_upgrade = self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"
        if not self._is_upgrade:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._header_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        if not self._is_upgrade:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        is_last = not self.pipeline
        super().on_response_complete()
        if self._is_lingering:
            self._unset_keepalive_if_required()
        elif self.transport.is_closing():
            self._leave()
        elif not is_last:
            pass
        elif self._waiting_refusal is not None:
            self._answer(self._waiting_refusal)
        elif self._is_in_headers:
            self._unset_keepalive_if_required()
            self._arm()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._begun = cycle
        if cycle.scope["http_version"] == "1.0":
            cycle.__class__ = UntilClose
        super()._start_asgi_task(cycle, app)

    def timeout_keep_alive_handler(self) -> None:
        self._leave()

    @property
    def _newest(self) -> RequestResponseCycle | None:
        """The request that came last, which may still wait for those before it."""
        return self.cycle

    def _parse(self, data: bytes) -> None:
        while not self._is_deaf:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                data = self._without_upgrade(data[upgrade.args[0] :])
            else:
                return

    def _without_upgrade(self, rest: bytes) -> bytes:
        """The parser takes the `rest` for another protocol. None is spoken here, so the offer is ignored as RFC 9110
        §7.8 allows: returns what is to be parsed instead, the same request without it and the rest.
        """
        if not self._is_upgrade:  # CONNECT: nothing behind it is HTTP
            self._is_deaf = True
            self.cycle.keep_alive = False
            return b""
        self._is_upgrade = False
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        lines = [method + b" " + self.url + b" HTTP/" + version]
        lines += [name + b": " + value for name, value in map(_without_offer, self.headers) if value is not None]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return b"\r\n".join([*lines, b"", rest])

    def _mind_the_headers(self) -> None:
        if self._header_timer is None and (self._newest is None or self._newest.response_complete):
            self._arm()

    def _mind_the_reader(self) -> None:
        if self._slow_reader is None:
            self._slow_reader = SlowReader(self.transport, self.loop, self._host.write_timeout_seconds)
        self._slow_reader.begin()

    def _arm(self) -> None:
        self._header_timer = self.loop.call_later(HEADER_SECONDS, self._headers_are_late)

    def _disarm(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _headers_are_late(self) -> None:
        if self._newest is None and not self._header_bytes:
            # Opened in advance and never used: there is no request to answer.
            self._leave()
        else:
            self._refuse(_late())

    def _refuse(self, error: GatewayError) -> None:
        self._is_deaf = True
        self._disarm()
        self._host.connection_refused(error)
        cycle = self._newest
        if cycle is None or (cycle.response_complete and self._is_in_headers):
            self._answer(error)
        elif self._is_in_headers:
            self._waiting_refusal = error
        elif self.pipeline:
            self.pipeline.popleft()
            self._waiting_refusal = error
        elif cycle.response_started:
            # The answer does without the body, of which no more can be read.
            cycle.keep_alive = False
            self._linger()
        else:
            cycle.disconnected = True
            cycle.message_event.set()
            self._answer(error)

    def _answer(self, error: GatewayError) -> None:
        self._unset_keepalive_if_required()
        body = error_body(error)
        headers = [*error_headers(error, body, random.random()), (b"connection", b"close")]  # noqa: S311 - no secret
        lines = b"".join(b"%s: %s\r\n" % header for header in headers)
        self.transport.write(STATUS_LINE[error.status] + lines + b"\r\n" + body)
        self._linger()

    def linger(self) -> bool:
        """Whether the connection, which is to be closed, stays a moment: part of a body is still on its way."""
        cycle = self._newest
        if self._is_lingering or cycle is None or not cycle.more_body or cycle.disconnected:
            return False
        self._linger()
        return True

    def _linger(self) -> None:
        """Closing over unread bytes would reset the connection before the client has read its answer."""
        self._is_deaf = self._is_lingering = True
        self._disarm()
        self.flow.resume_reading()
        if self.transport.can_write_eof():  # over TLS the connection cannot be half-closed
            self.transport.write_eof()
        self._header_timer = self.loop.call_later(_LINGER_SECONDS, self._leave)

    def _leave(self) -> None:
        """Closing waits for a client that does not take what is still to be sent."""
        if self.transport.get_write_buffer_size():
            self._mind_the_reader()
        self.transport.close()


class _Transport(JoinedWrites):
    """Asks the protocol before it closes."""

    __slots__ = ("_protocol",)

    def __init__(self, transport: BaseTransport, protocol: GatewayProtocol) -> None:
        super().__init__(transport, protocol.loop)  # type: ignore[arg-type]
        self._protocol = protocol

    def close(self) -> None:
        if not self._protocol.linger():
            super().close()


def _without_offer(header: tuple[bytes, bytes]) -> tuple[bytes, bytes | None]:
    """The header less what it says of an upgrade; None where nothing is left."""
    name, value = header
    if name in _UPGRADE_TOKENS:
        return name, None
    if name == b"connection":
        tokens = [token.strip() for token in value.split(b",")]
        return name, b", ".join(token for token in tokens if token.lower() not in _UPGRADE_TOKENS) or None
    return name, value


def _malformed() -> GatewayError:
    return GatewayError(Code.INVALID_REQUEST, "Invalid HTTP request received. Send HTTP/1.1 as RFC 9112 has it.")


def _late() -> GatewayError:
    return GatewayError(
        Code.REQUEST_TIMEOUT, f"No complete request headers came within {HEADER_SECONDS:.0f} s. Send them again."
    )


def _too_large() -> GatewayError:
    return GatewayError(
        Code.HEADERS_TOO_LARGE,
        f"The request's headers have more than {MOST_HEADER_BYTES} bytes. Send fewer or shorter ones.",
    )
