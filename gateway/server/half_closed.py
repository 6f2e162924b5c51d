"""A client that has stopped sending: it waits for its answer with a half-closed connection, or it has gone.

Both look the same until something is written: then a client that has gone answers with a reset.
"""

import asyncio
import socket
from collections.abc import Callable

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_LOOK_SECONDS = 0.25


class HalfClosed:
    """Cuts the connection when the client turns out to have gone, until `stop`.

    Whatever is sent to it asks. An answer that comes at once needs no other question; later that is an interim
    response, which every client of HTTP/1.1 has to expect at any time before its answer (RFC 9110 §15.2): `may_ask`
    says no once an answer is under way, and for a client of HTTP/1.0, which knows none.
    """

    __slots__ = ("_has_asked", "_loop", "_may_ask", "_timer", "_transport")

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        *,
        may_ask: Callable[[], bool],
    ) -> None:
        self._transport = transport
        self._loop = loop
        self._may_ask = may_ask
        self._has_asked = False
        self._timer = loop.call_later(_LOOK_SECONDS, self._look)

    def stop(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        connection: socket.socket = self._transport.get_extra_info("socket")
        if connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._transport.abort()
            return
        if self._may_ask() and not self._has_asked:
            self._has_asked = True
            self._transport.write(CONTINUE)
        self._timer = self._loop.call_later(_LOOK_SECONDS, self._look)
