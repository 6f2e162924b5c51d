"""Notices that a client has gone while its request waits: in the queue, for the upstream, between two events."""

import asyncio
from typing import Any

from gateway.pipeline.exchange import Exchange
from gateway.server.receive import Receive

# Most answers are through by then, and a task for each of them would cost more than all decisions together.
_BEGIN_SECONDS = 0.02


class ClientWatch:
    """From its making until `stop`: cancels the present task when the client goes, so that nothing outlives it.

    A client that has not taken the whole answer within `most_seconds` counts as gone. Only for a request whose body
    has been received; nobody else may call `receive` meanwhile.
    """

    __slots__ = ("_exchange", "_most_seconds", "_receive", "_task", "_timer", "_watched")

    def __init__(self, exchange: Exchange, receive: Receive, most_seconds: float) -> None:
        self._exchange = exchange
        self._receive = receive
        self._most_seconds = most_seconds
        self._watched = current_task()
        self._task: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(_BEGIN_SECONDS, self._begin)

    def stop(self) -> None:
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def _begin(self) -> None:
        self._task = asyncio.create_task(self._watch())
        self._timer = asyncio.get_running_loop().call_later(self._most_seconds, self._cancel)

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        # Once settled only the last piece is on its way, which the server gives up by itself when nobody is there.
        if not self._exchange.is_settled:
            self._cancel()

    def _cancel(self) -> None:
        self._exchange.is_abandoned = True
        self._watched.cancel()


def current_task() -> "asyncio.Task[Any]":
    task = asyncio.current_task()
    assert task is not None, "a coroutine runs in a task"
    return task
