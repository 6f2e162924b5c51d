"""Answers that are made in the background hold their places, at the engine and among their tenant's requests, until the
server says that they are done.

It is asked every few seconds. What it says nothing of for as long as any answer may take is held to be over.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import msgspec

from gateway.domain.outcome import Ending
from gateway.pipeline.exchange import Exchange
from gateway.upstream.client import Answer
from gateway.upstream.errors import UpstreamError

EVERY_SECONDS = 2.0
_UNFINISHED = ("queued", "in_progress")
_NOT_FOUND = 404
_LONGEST_BYTES = 32 << 20


class _Response(msgspec.Struct, gc=False):
    status: str = ""


_decoder = msgspec.json.Decoder(_Response)


class BackgroundWatch:
    """One task for each. `clock` is that of the exchanges; `most_seconds` is how long an answer may take."""

    def __init__(
        self,
        clock: Callable[[], float],
        most_seconds: float,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._clock = clock
        self._most_seconds = most_seconds
        self._sleep = sleep
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def hold(self, exchange: Exchange) -> None:
        """Its lease is this watch's from now on, and its place among its tenant's requests."""
        task = asyncio.get_running_loop().create_task(self._follow(exchange))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _follow(self, exchange: Exchange) -> None:
        lease, backend = exchange.lease, exchange.backend
        assert lease is not None, "who goes on was admitted"
        until = self._clock() + self._most_seconds
        backend.unseen[exchange.request_id] = exchange
        try:
            while self._clock() < until:
                await self._sleep(EVERY_SECONDS)
                if await _is_over(exchange):
                    return
        finally:
            backend.unseen.pop(exchange.request_id, None)
            lease.close(Ending.IGNORED)
            if exchange.bill is not None:
                exchange.bill.leave()


async def _is_over(exchange: Exchange) -> bool:
    """A server that cannot be asked may still be at it."""
    try:
        answer = await exchange.backend.upstream.send(
            "GET", f"/v1/responses/{exchange.answer_name}", exchange.headers, None, request_id=exchange.request_id
        )
        try:
            body = await _whole(answer)
        finally:
            answer.finish()
    except UpstreamError:
        return False
    if answer.status == _NOT_FOUND:
        return True
    try:
        return answer.status < _NOT_FOUND and _decoder.decode(body).status not in _UNFINISHED
    except msgspec.DecodeError:
        return False


async def _whole(answer: Answer) -> bytes:
    pieces = []
    size = 0
    while size < _LONGEST_BYTES and (piece := await answer.read()):
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)
