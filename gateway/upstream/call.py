"""One request under way on aiohttp: the connection that serves it, the deadlines over it, the answer read from it."""

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from math import inf
from weakref import WeakSet

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ClientRequest
from aiohttp.connector import Connection
from aiohttp.tracing import Trace

from gateway.upstream.errors import UpstreamBrokenError, UpstreamDownError, UpstreamError, UpstreamTimeoutError
from gateway.upstream.headers import answer_headers
from gateway.upstream.watchdog import UpstreamTimeouts, Watchdog

_KEEP_ALIVE_SECONDS = 4.0  # below vLLM's own 5 s, so that it is seldom vLLM who closes an idle connection
FAILURES = (aiohttp.ClientError, OSError)  # all that aiohttp raises when a connection fails; time-outs are OSErrors


class Call:
    """The connection that a request got, and the deadlines that began with it."""

    __slots__ = ("_connection", "_loop", "_protocol", "_timeouts", "is_reused", "is_streaming", "watchdog")

    def __init__(self, loop: asyncio.AbstractEventLoop, timeouts: UpstreamTimeouts, *, is_streaming: bool) -> None:
        self._loop = loop
        self._timeouts = timeouts
        self._connection: Connection | None = None
        self._protocol: ResponseHandler | None = None
        self.is_streaming = is_streaming
        self.is_reused = False
        self.watchdog: Watchdog | None = None

    def connected(self, connection: Connection, protocol: ResponseHandler, *, is_reused: bool) -> None:
        self._connection = connection
        self._protocol = protocol
        self.is_reused = is_reused
        if self.watchdog is None:
            self.watchdog = Watchdog(self._loop, self._timeouts, is_streaming=self.is_streaming, cut=self.cut)

    def may_retry(self, error: aiohttp.ClientError) -> bool:
        """Whether an idle connection turned out to be closed: no time-out, and not a byte of an answer."""
        is_silent = not isinstance(error, aiohttp.ServerDisconnectedError) or isinstance(error.message, str)
        return self.is_reused and is_silent and (self.watchdog is None or self.watchdog.verdict is None)

    def cut(self) -> None:
        """Close the connection at once, unsent bytes and all; whoever reads from it is told by an exception.

        Does nothing once the answer is complete, for then the connection may serve another request.
        """
        transport = self._connection and self._connection.transport
        if transport is not None:
            transport.abort()

    def forbid_reuse(self, response: aiohttp.ClientResponse) -> None:
        """To be called as soon as the head is there: if the body came with it, the connection is in the pool by now."""
        assert self._protocol is not None
        self._protocol.force_close()
        if response.connection is None:
            self._protocol.close()

    def end(self) -> None:
        if self.watchdog is not None:
            self.watchdog.stop()

    def failure(self, error: BaseException) -> UpstreamError:
        if self.watchdog is not None and self.watchdog.verdict is not None:
            return UpstreamTimeoutError(self.watchdog.verdict)
        if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
            return UpstreamDownError("no connection could be made")
        return UpstreamBrokenError(f"the connection broke ({type(error).__name__})")


current_call: ContextVar[Call] = ContextVar("current_call")


class Connector(aiohttp.TCPConnector):
    """Tells the current call which connection it got, and whether that one has served before."""

    def __init__(self, *, is_pooling: bool) -> None:
        keep_alive_seconds = _KEEP_ALIVE_SECONDS if is_pooling else None
        super().__init__(limit=0, force_close=not is_pooling, keepalive_timeout=keep_alive_seconds)
        self._known: WeakSet[ResponseHandler] = WeakSet()

    async def connect(
        self,
        req: ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109  the signature is aiohttp's
    ) -> Connection:
        connection = await super().connect(req, traces, timeout)
        protocol = connection.protocol
        assert protocol is not None
        is_reused = protocol in self._known
        if not is_reused:
            self._known.add(protocol)
        current_call.get().connected(connection, protocol, is_reused=is_reused)
        return connection


class Answer:
    """An answer as it comes. Its owner reads to the end or aborts, and calls `finish` in every case."""

    __slots__ = (
        "_call",
        "_gap_seconds",
        "_has_begun",
        "_on_end",
        "_readany",
        "_response",
        "_time",
        "headers",
        "status",
    )

    def __init__(
        self,
        call: Call,
        response: aiohttp.ClientResponse,
        *,
        loop: asyncio.AbstractEventLoop,
        gap_seconds: float,
        on_end: Callable[[UpstreamError | None], None],
    ) -> None:
        self._call = call
        self._response = response
        self._readany = response.content.readany
        self._time = loop.time
        self._gap_seconds = gap_seconds
        self._has_begun = not call.is_streaming
        self._on_end: Callable[[UpstreamError | None], None] | None = on_end
        self.status = response.status
        self.headers = answer_headers(response.raw_headers)

    @property
    def is_reused(self) -> bool:
        """Whether the connection had served another request before."""
        return self._call.is_reused

    async def read(self) -> bytes:
        """Whatever has come since the last call, waiting for at least a byte; empty at the end.

        Raises UpstreamTimeoutError or UpstreamBrokenError.
        """
        watchdog = self._call.watchdog
        assert watchdog is not None
        if self._has_begun:
            watchdog.wait_until_seconds = self._time() + self._gap_seconds
        try:
            chunk = await self._readany()
        except FAILURES as error:
            failure = self._call.failure(error)
            self._end(failure)
            raise failure from error
        watchdog.wait_until_seconds = inf
        self._has_begun = True
        return chunk

    def abort(self) -> None:
        """Close the connection now, which makes vLLM drop the request."""
        self._call.cut()
        self._response.close()
        self._end(None)

    def finish(self) -> None:
        """Give the connection back if the answer was complete, close it otherwise. May be called again."""
        if self._response.closed:
            self._end(None)
        else:
            self.abort()

    def _end(self, failure: UpstreamError | None) -> None:
        if self._on_end is not None:
            self._call.end()
            self._on_end(failure)
            self._on_end = None
