"""An answer of vLLM while it comes."""

import asyncio
from collections.abc import Callable
from math import inf

import aiohttp

from gateway.upstream.call import FAILURES, Call
from gateway.upstream.errors import UpstreamError
from gateway.upstream.headers import answer_headers


class Pulse:
    """How many pieces of answers a server has sent: as long as it counts on, the server works."""

    __slots__ = ("pieces",)

    def __init__(self) -> None:
        self.pieces = 0


class Answer:
    """An answer as it comes. Its owner reads to the end or aborts, and calls `finish` in every case."""

    __slots__ = (
        "_ahead",
        "_call",
        "_gap_seconds",
        "_on_end",
        "_pulse",
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
        pulse: Pulse,
        on_end: Callable[[Call, UpstreamError | None], None],
    ) -> None:
        self._call = call
        self._pulse = pulse
        self._response = response
        self._readany = response.content.readany
        self._time = loop.time
        self._gap_seconds = gap_seconds
        self._ahead = b""
        self._on_end: Callable[[Call, UpstreamError | None], None] | None = on_end
        self.status = response.status
        self.headers = answer_headers(response.raw_headers)

    @property
    def is_complete(self) -> bool:
        """All of it has been read, as far as is known without waiting."""
        return self._response.content.at_eof() and not self._ahead

    async def peek(self) -> bytes:
        """What `read` will give next; for an answer of which nothing has been read."""
        self._ahead = await self.read()
        return self._ahead

    async def read(self) -> bytes:
        """Whatever has come since the last call, waiting for at least a byte; empty at the end.

        Raises UpstreamTimeoutError or UpstreamBrokenError.
        """
        if self._ahead:
            chunk, self._ahead = self._ahead, b""
            return chunk
        deadline = self._call.deadline
        if deadline.has_begun:
            deadline.wait_until_seconds = self._time() + self._gap_seconds
        try:
            chunk = await self._readany()
        except FAILURES as error:
            failure = self._call.failure(error)
            self._end(failure)
            raise failure from error
        deadline.wait_until_seconds = inf
        deadline.has_begun = True
        self._pulse.pieces += 1
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
            self._on_end(self._call, failure)
            self._on_end = None
