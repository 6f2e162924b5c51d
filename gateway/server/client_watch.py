"""Notices that a client has gone while its request waits: in the queue, for the upstream, between two events."""

import asyncio
from typing import Any

from gateway.pipeline.exchange import Exchange
from gateway.server.receive import Receive

# Most answers are through by then: a task for each of them would cost more than all decisions together, and at few
# requests a second so would a timer for each.
_BEGIN_SECONDS = 0.1


class ClientWatch:
    """From its making until `stop`: cancels the present task when the client goes, so that nothing outlives it.

    Only for a request whose body has been received; nobody else may call `receive` meanwhile.
    """

    __slots__ = ("_exchange", "_receive", "_task", "_timer", "_watched", "_young", "begin_at_seconds")

    def __init__(
        self, exchange: Exchange, receive: Receive, young: "dict[ClientWatch, None]", begin_at_seconds: float
    ) -> None:
        self._exchange = exchange
        self._receive = receive
        self._young = young
        self._watched = current_task()
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.begin_at_seconds = begin_at_seconds
        young[self] = None

    def begin(self, most_seconds: float) -> None:
        del self._young[self]
        self._task = asyncio.create_task(self._watch())
        self._timer = asyncio.get_running_loop().call_later(most_seconds, self._cancel)

    def stop(self) -> None:
        if self._task is None or self._timer is None:
            del self._young[self]
            return
        self._timer.cancel()
        self._task.cancel()

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        # Once settled only the last piece is on its way, which the server gives up by itself when nobody is there.
        if not self._exchange.is_settled:
            self._cancel()

    def _cancel(self) -> None:
        self._exchange.is_abandoned = True
        self._watched.cancel()


class ClientWatches:
    """All clients that are waited for; one timer serves those whose watch has not begun yet.

    A client that has not taken the whole answer within `most_seconds` counts as gone.
    """

    __slots__ = ("_is_looking", "_most_seconds", "_young")

    def __init__(self, most_seconds: float) -> None:
        self._most_seconds = most_seconds
        self._young: dict[ClientWatch, None] = {}  # in the order in which they begin
        self._is_looking = False

    def over(self, exchange: Exchange, receive: Receive) -> ClientWatch:
        loop = asyncio.get_running_loop()
        if not self._is_looking:
            self._is_looking = True
            loop.call_later(_BEGIN_SECONDS, self._look)
        return ClientWatch(exchange, receive, self._young, loop.time() + _BEGIN_SECONDS)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        while (watch := next(iter(self._young), None)) is not None and watch.begin_at_seconds <= now:
            watch.begin(self._most_seconds)
        self._is_looking = watch is not None
        if watch is not None:
            loop.call_later(watch.begin_at_seconds - now, self._look)


def current_task() -> "asyncio.Task[Any]":
    task = asyncio.current_task()
    assert task is not None, "a coroutine runs in a task"
    return task
