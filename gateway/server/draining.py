"""How the gateway leaves: told from outside, it is taken out of the rotation first, then refuses, then is gone.

Whoever sends requests here learns of it late (a load balancer asks `/readyz` now and then, a cluster tells its nodes
one after the other), so that for a while there is nothing to tell a client but its answer.
"""

import asyncio
import math
from collections.abc import Iterable

from gateway.domain.errors import Code, GatewayError
from gateway.domain.outcome import Reason
from gateway.ledger.byte_budget import Seats
from gateway.ledger.timing import Timing
from gateway.server.answers import Send
from gateway.server.receive import Message

_CLOSE = (b"connection", b"close")


class Drain:
    """Times are of one monotonic clock, in seconds. For `grace_seconds` requests are still taken, and after
    `limit_seconds` nobody is waited for.
    """

    def __init__(self, grace_seconds: float, limit_seconds: float) -> None:
        self._grace_seconds = grace_seconds
        self._limit_seconds = limit_seconds
        self._begun_at = math.inf
        self._ends_at = math.inf

    @property
    def is_begun(self) -> bool:
        return self._begun_at < math.inf

    def begin(self, now: float) -> None:
        """Without an end: who asked waits for it, and this process stays. Again: as the first time."""
        self._begun_at = min(self._begun_at, now)

    def call_off(self) -> None:
        """All are let in again, unless the process is to end."""
        if self._ends_at == math.inf:
            self._begun_at = math.inf

    def end(self, now: float, *, has_grace: bool = True) -> None:
        """The process is to end, in `limit_seconds` at the latest. Again: as the first time."""
        self.begin(now)
        if not has_grace:
            self._grace_seconds = 0.0
        self._ends_at = min(self._ends_at, now + self._limit_seconds)

    def refuses(self, now: float) -> bool:
        return now >= self._begun_at + self._grace_seconds

    def seconds_of_grace(self, now: float) -> float:
        """How long requests are still taken; infinite where nothing has begun."""
        return max(0.0, self._begun_at + self._grace_seconds - now)

    def is_over(self, now: float, *, is_empty: bool) -> bool:
        """The process ends now: it was told to, and nobody is inside and nobody let in, or it has waited enough."""
        return now >= self._ends_at or (self._ends_at < math.inf and is_empty and self.refuses(now))

    def refuse(self, now: float) -> None:
        """Raises GatewayError once nobody is let in any more."""
        if self.refuses(now):
            raise GatewayError(
                Code.SERVER_IS_OVERLOADED,
                "This gateway is shutting down; send the request again, another one will take it.",
                reason=Reason.DRAINING,
                retry_after_seconds=1.0,
            )


class DrainWatch:
    """Knows when nobody is inside and nobody is let in any more, and wakes who waits for that.

    It asks nobody meanwhile: it is told when the last one leaves and when the drain begins or is called off
    (`look_again`), and by a timer when its grace ends.
    """

    def __init__(self, drain: Drain, seats: Seats, timing: Timing) -> None:
        self._drain, self._seats, self._timing = drain, seats, timing
        self._changed = asyncio.Event()
        seats.on_empty = self._changed.set

    @property
    def is_drained(self) -> bool:
        return self._drain.refuses(self._timing.clock()) and not self._seats.taken

    def look_again(self) -> None:
        self._changed.set()

    async def wait(self) -> None:
        """Until it is so, for ever if it never is: the caller bounds it."""
        while not self.is_drained:
            self._changed.clear()
            grace = self._drain.seconds_of_grace(self._timing.clock())
            timer = self._timing.call_later(grace, self._changed.set) if 0 < grace < math.inf else None
            try:
                await self._changed.wait()
            finally:
                if timer is not None:
                    timer.cancel()


def closing(send: Send) -> Send:
    """`send` for a connection that is closed after this answer, so that the client's next request goes elsewhere."""

    async def send_and_close(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*_without_connection(message.get("headers", ())), _CLOSE]}
        await send(message)

    return send_and_close


def _without_connection(headers: Iterable[tuple[bytes, bytes]]) -> Iterable[tuple[bytes, bytes]]:
    return (header for header in headers if header[0].lower() != b"connection")
