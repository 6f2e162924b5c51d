"""Head and body of an answer in one write where both are there: half the system calls, half the packets.

Uvicorn writes the head by itself, and uvloop sends each write at once. On a small answer that second write costs as
much as all else that the server does for it (measured).
"""

import asyncio
from typing import Any

_HEAD = b"HTTP/1.1 "
_MOST_COPIED_BYTES = 64 << 10


class JoinedWrites:
    """A transport that keeps a response head back until the next write, at the longest until the loop's next turn.

    Everything else is the transport's own.
    """

    __slots__ = ("_call_soon", "_flush_call", "_head", "_transport", "_write", "is_closing")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._write = transport.write
        self._call_soon = loop.call_soon
        self._head = b""
        self._flush_call: asyncio.Handle | None = None
        self.is_closing = transport.is_closing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if self._head and len(data) <= _MOST_COPIED_BYTES:
            self._write(self._taken() + data)
        elif data.startswith(_HEAD):
            self._flush()
            self._head = data
            self._flush_call = self._call_soon(self._flush)
        else:
            self._flush()
            self._write(data)

    def write_eof(self) -> None:
        self._flush()
        self._transport.write_eof()

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        head = self._taken()
        if head and not self.is_closing():
            self._write(head)

    def _taken(self) -> bytes:
        head, self._head = self._head, b""
        if self._flush_call is not None:
            self._flush_call.cancel()
            self._flush_call = None
        return head
