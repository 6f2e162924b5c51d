"""A stream that waits for its turn is begun before it: proxies and clients between do not take silence for death.

The price is the status: whatever comes of the request then stands inside of a 200. Wording and framing are
wire/begun_stream.py's; here is when, and that nothing is sent by two at once.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from gateway.ledger.timing import CallLater, Timer
from gateway.pipeline.exchange import Exchange
from gateway.server.answers import Send, echoed_id
from gateway.wire.begun_stream import HEAD, BegunStream
from gateway.wire.voices import voice_of


class KeepAlive:
    """The rule, of which every request gets its `over`; `begun` counts the streams that it began.

    A stream begins after `after_seconds` without the upstream's head; a comment follows every `every_seconds`.
    """

    def __init__(
        self,
        after_seconds: float,
        every_seconds: float,
        *,
        call_later: CallLater,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.after_seconds = after_seconds
        self.every_seconds = every_seconds
        self.call_later = call_later
        self.sleep = sleep
        self.begun = 0

    def over(self, exchange: Exchange, send: Send) -> "KeptAlive":
        return KeptAlive(self, exchange, send)


class KeptAlive:
    """The `send` of one request. Once the stream is begun, what is sent is said in it."""

    __slots__ = ("_comments", "_exchange", "_rule", "_send", "_stream", "_timer")

    def __init__(self, rule: KeepAlive, exchange: Exchange, send: Send) -> None:
        self._rule = rule
        self._exchange = exchange
        self._send = send
        self._stream: BegunStream | None = None
        self._timer: Timer | None = None
        self._comments: asyncio.Task[None] | None = None

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        if self._stream is None:
            await self._send(message)
        elif message["type"] == "http.response.start":
            await self._say(self._stream.head(message["status"], message["headers"]), more_body=True)
        else:
            more_body = message.get("more_body", False)
            await self._say(self._stream.body(message["body"], is_last=not more_body), more_body=more_body)

    async def __aenter__(self) -> None:
        """Comments are sent from now on, until the block is left; after it only the caller sends.

        Leaving it may take a moment, in which the caller may be cancelled: what the block got is its own by then.
        """
        self._arm()

    async def __aexit__(self, *_: object) -> None:
        """Raises what sending failed with."""
        if self._timer is not None:
            self._timer.cancel()
        if self._comments is not None:
            await _stopped(self._comments)

    def _arm(self) -> None:
        self._timer = self._rule.call_later(self._rule.after_seconds, self._look)

    def _look(self) -> None:
        request = self._exchange.request
        if request is None:  # it is still being read
            self._arm()
        elif request.stream:
            self._comments = asyncio.get_running_loop().create_task(self._comment())

    async def _comment(self) -> None:
        headers = [*HEAD, (b"x-request-id", echoed_id(self._exchange))]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        voice = voice_of(self._exchange.path)
        self._stream = BegunStream(voice)
        self._exchange.is_kept_alive = True
        self._rule.begun += 1
        while True:
            await self._say(voice.waiting, more_body=True)
            await self._rule.sleep(self._rule.every_seconds)

    async def _say(self, words: bytes, *, more_body: bool) -> None:
        if words or not more_body:
            await self._send({"type": "http.response.body", "body": words, "more_body": more_body})


async def _stopped(task: "asyncio.Task[None]") -> None:
    """Raises what the task failed with."""
    task.cancel()
    await asyncio.wait([task])
    with contextlib.suppress(asyncio.CancelledError):
        task.result()
