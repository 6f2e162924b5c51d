"""A client that does not take its answer is cut off, so that its request does not stay in the house until the end."""

import asyncio

LEAST_BYTES_PER_SECOND = 1024


class SlowReader:
    """Looks at a connection with unsent bytes every `seconds`, between `begin` and `stop`, and aborts it where fewer
    than 1 KiB a second have gone out.
    """

    __slots__ = ("_left_bytes", "_loop", "_seconds", "_timer", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._transport = transport
        self._loop = loop
        self._seconds = seconds
        self._left_bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        if self._timer is None:
            self._left_bytes = self._transport.get_write_buffer_size()
            self._timer = self._loop.call_later(self._seconds, self._look)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        sent_bytes = self._left_bytes - self._transport.get_write_buffer_size()
        if 0 <= sent_bytes < min(self._left_bytes, self._seconds * LEAST_BYTES_PER_SECOND):
            self._transport.abort()
        elif sent_bytes != self._left_bytes:
            self.begin()
