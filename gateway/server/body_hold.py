"""The bytes that one request's body holds of the budget, from before its first byte to the upstream's answer.

A body that is here at once takes its length. Any other begins with a little and asks for more before it reads on: all
that is left while it comes fast, a step at a time while it comes slowly. So who sends slowly holds about what he has
sent, whatever he announced.
"""

import asyncio
from collections.abc import Awaitable

from gateway.domain.ticket import SMALL_BODY_BYTES
from gateway.ledger.byte_budget import ByteBudget, Share, share_of
from gateway.server.door import Arrival
from gateway.server.receive import BodyLimits

FIRST_BYTES = 16 << 10
MOST_STEP_BYTES = 256 << 10


class BodyHold:
    """Bytes of up to three shares; `release` gives all of them back and may be called on every path.

    Whatever takes bytes raises GatewayError 429 host_memory where they do not come free in time: one request waits no
    longer than `wait_seconds` in all.
    """

    __slots__ = ("_announced", "_budget", "_decoded_bytes", "_large", "_limit", "_patience", "_slow", "_small")

    def __init__(self, budget: ByteBudget, arrival: Arrival, limits: BodyLimits, wait_seconds: float) -> None:
        self._budget = budget
        self._announced = arrival.content_length
        self._limit = limits.max_bytes
        # A coded body is held as it came and decoded.
        self._decoded_bytes = limits.max_decoded_bytes if arrival.is_coded else 0
        self._patience = wait_seconds
        self._small = self._large = self._slow = 0

    @property
    def byte_count(self) -> int:
        return self._small + self._large + self._slow

    @property
    def is_ahead(self) -> bool:
        """More is held than has to be for what comes slowly: the body must go on coming fast, or give it up."""
        return self._large > 0 or self._small > FIRST_BYTES

    def take_at_once(self, byte_count: int) -> bool:
        """The whole body's bytes, where they are free just now."""
        share = share_of(byte_count)
        if not self._budget.try_acquire(byte_count, share):
            return False
        if share is Share.SMALL:
            self._small = byte_count
        else:
            self._large = byte_count
        return True

    async def begin(self, *, is_here: bool) -> None:
        """Before the first byte is asked for; `is_here`: the server has the whole body already."""
        if is_here and self._announced is not None:
            await self.cover(self._announced)
        else:
            await self.cover(FIRST_BYTES if self._announced is None else min(self._announced, FIRST_BYTES))

    def has_room(self, come_bytes: int) -> bool:
        """The next bytes may be asked for. What a single read of the socket brings beyond that is the server's."""
        return come_bytes < self.byte_count or come_bytes == self._announced

    async def grow(self, come_bytes: int, *, is_fast: bool) -> None:
        """Make room for what comes next."""
        if is_fast:
            await self.cover(self._whole(come_bytes))
            return
        held = self.byte_count
        step = self._goal(come_bytes) - held
        if step > 0:
            await self._wait(self._budget.acquire_step(step, self._slow, self._patience))
            self._slow += step

    def fall_back(self, come_bytes: int) -> None:
        """The body no longer comes fast: hold only what has come and a step. Raises GatewayError 429 host_memory."""
        first = min(self._small, FIRST_BYTES)
        more = max(0, min(self._goal(come_bytes), self.byte_count) - first - self._slow)
        self._budget.slow_down(self._slow, small=first - self._small, large=-self._large, slow=more)
        self._small, self._large, self._slow = first, 0, self._slow + more

    async def cover(self, byte_count: int) -> None:
        """Hold at least so many bytes."""
        missing = byte_count - self.byte_count
        if missing <= 0:
            return
        share = share_of(byte_count)
        if not self._budget.try_acquire(missing, share):
            await self._wait(self._budget.acquire(missing, self._patience, share))
        if share is Share.SMALL:
            self._small += missing
        else:
            self._large += missing

    async def make_room_to_decode(self, come_bytes: int) -> None:
        await self.cover(come_bytes + self._decoded_bytes)

    def settle(self, byte_count: int) -> None:
        """The body is complete and only so long; how it came no longer matters."""
        small, large = (byte_count, 0) if byte_count <= SMALL_BODY_BYTES else (0, byte_count)
        if (small, large, 0) != (self._small, self._large, self._slow):
            self._budget.change(small=small - self._small, large=large - self._large, slow=-self._slow)
            self._small, self._large, self._slow = small, large, 0

    def hold_beside(self, byte_count: int) -> None:
        """What was made of the body and is kept with it: images that were spelled anew or encoded anew."""
        self._budget.overdraw(byte_count)
        self._large += byte_count

    def release(self) -> None:
        if self._small or self._large or self._slow:
            self.settle(0)

    def _whole(self, come_bytes: int) -> int:
        if self._announced is not None:
            return self._announced + self._decoded_bytes
        # Most bodies are small, and what announces no length may be as long as any.
        return SMALL_BODY_BYTES if come_bytes < SMALL_BODY_BYTES else self._limit + self._decoded_bytes

    def _goal(self, come_bytes: int) -> int:
        most = self._limit if self._announced is None else self._announced
        return min(most, come_bytes + min(max(come_bytes, FIRST_BYTES), MOST_STEP_BYTES))

    async def _wait(self, acquisition: Awaitable[None]) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await acquisition
        self._patience = max(0.0, self._patience - (loop.time() - began))
