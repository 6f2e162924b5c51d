"""One request under way: what it sends, which connection of aiohttp's pool serves it, and what its failing means."""

import asyncio
import re
import ssl
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from weakref import WeakSet

import aiohttp
from aiohttp import hdrs
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ClientRequest
from aiohttp.connector import Connection
from aiohttp.tracing import Trace
from aiohttp.typedefs import LooseHeaders
from multidict import CIMultiDict

from gateway.upstream.errors import UpstreamBrokenError, UpstreamDownError, UpstreamError, UpstreamTimeoutError
from gateway.upstream.tls import certificate_trouble
from gateway.upstream.watchdog import Deadline

_KEEP_ALIVE_SECONDS = 4.0  # below vLLM's own 5 s, so that it is seldom vLLM who closes an idle connection
FAILURES = (aiohttp.ClientError, OSError)  # all that aiohttp raises when a connection fails; time-outs are OSErrors


class Call:
    """The connection that a request got, and its deadline. `headers` are all that it sends but Host; `short_body` is
    what goes out with them, None where there is no body or aiohttp sends a long one in pieces.
    """

    __slots__ = ("_connection", "_protocol", "_verdict", "deadline", "headers", "is_reused", "short_body")

    def __init__(
        self, deadline: Deadline, headers: Sequence[tuple[str, str]] = (), short_body: bytes | None = None
    ) -> None:
        self.headers = headers
        self.short_body = short_body
        self._connection: Connection | None = None
        self._protocol: ResponseHandler | None = None
        self._verdict: str | None = None
        self.deadline = deadline
        self.is_reused = False

    def connected(self, connection: Connection, protocol: ResponseHandler, *, is_reused: bool) -> None:
        self._connection = connection
        self._protocol = protocol
        self.is_reused = is_reused

    def may_retry(self, error: aiohttp.ClientError) -> bool:
        """Whether an idle connection turned out to be closed: no time-out, and not a byte of an answer."""
        is_silent = not isinstance(error, aiohttp.ServerDisconnectedError) or isinstance(error.message, str)
        return self.is_reused and is_silent and self._verdict is None

    def time_out(self, verdict: str) -> None:
        self._verdict = verdict
        self.cut()

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

    def failure(self, error: BaseException) -> UpstreamError:
        if self._verdict is not None:
            return UpstreamTimeoutError(self._verdict)
        if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
            return UpstreamDownError(certificate_trouble(error) or "no connection could be made")
        if isinstance(error, aiohttp.ClientResponseError):
            return UpstreamBrokenError(f"what came is not HTTP ({_without_quote(error.message)})")
        return UpstreamBrokenError(f"the connection broke ({type(error).__name__})")


def _without_quote(message: str) -> str:
    """The parser's verdict less the bytes of the answer that it quotes, on the same line or below."""
    return re.split(r":\s|:$", message.strip(), maxsplit=1)[0]


current_call: ContextVar[Call] = ContextVar("current_call")


class _Head(asyncio.Transport):
    """Takes the head of a request in place of its connection, so that its body can go out in the same write."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__()
        self._transport = transport
        self.content = b""

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.content += data


class Request(ClientRequest):
    """Sends the headers of the current call as they are, and its short body in the same write.

    aiohttp copies the headers twice more, and before Python 3.12 it writes every body in a task of its own: a twelfth
    of what a short request costs (sampled), and a turn of the loop.
    """

    _skip_auto_headers = CIMultiDict[None]({hdrs.CONTENT_TYPE: None})

    def update_headers(self, headers: LooseHeaders | None) -> None:  # noqa: ARG002  the call has them
        self.headers = CIMultiDict([(hdrs.HOST, self.url.host_port_subcomponent or ""), *current_call.get().headers])

    def update_auto_headers(self, skip_auto_headers: Iterable[str] | None) -> None:
        """There are none."""

    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        body, protocol = current_call.get().short_body, conn.protocol
        if body is None or protocol is None or protocol.transport is None:
            return await super().send(conn)
        if protocol.writing_paused:
            self.update_body_from_data(body)
            return await super().send(conn)
        transport = protocol.transport
        protocol.transport = head = _Head(transport)
        try:
            response = await super().send(conn)
        finally:
            protocol.transport = transport
        transport.write(head.content + body)
        return response


class Connector(aiohttp.TCPConnector):
    """Tells the current call which connection it got, and whether that one has served before."""

    def __init__(self, *, is_pooling: bool, context: ssl.SSLContext | None = None) -> None:
        super().__init__(
            limit=0,
            force_close=not is_pooling,
            keepalive_timeout=_KEEP_ALIVE_SECONDS if is_pooling else None,
            ssl=True if context is None else context,
        )
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
