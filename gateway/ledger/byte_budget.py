"""Memory of this process, counted before it is used; and seats, the number of requests in the house.

Bytes are taken before the first byte of a body is read, or before an image is decoded, and given back when the memory
is free again. A quarter is kept for small bodies, so that a crowd of uploads cannot shut out a line of text.
"""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass

from gateway.domain.errors import Code, GatewayError
from gateway.domain.outcome import Reason
from gateway.domain.promise import NO_PROMISE
from gateway.domain.queue import SMALL_BODY_BYTES
from gateway.ledger.timing import CallLater


@dataclass(frozen=True, slots=True)
class ByteBudgetStatistics:
    capacity: int
    held: int
    waiting: int


class _Waiter:
    __slots__ = ("byte_count", "future", "is_granted", "is_small")

    def __init__(self, byte_count: int, *, is_small: bool) -> None:
        self.byte_count = byte_count
        self.is_small = is_small
        self.is_granted = False
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class ByteBudget:
    """Bytes held of a capacity, with a line for small and one for large requests, each first come, first served.

    Large requests share three quarters. While one of them waits, small ones keep to their quarter, so the large one's
    turn comes. One that is larger than the three quarters waits until no other large one is held, one larger than the
    capacity until nothing is; meanwhile everybody waits behind it.
    """

    __slots__ = ("_call_later", "_capacity", "_held_large", "_held_small", "_large", "_purpose", "_small")

    def __init__(self, capacity: int, *, purpose: str, call_later: CallLater) -> None:
        """`purpose` stands in the refusal, e.g. `request bodies`."""
        self._capacity = capacity
        self._purpose = purpose
        self._call_later = call_later
        self._held_small = 0
        self._held_large = 0
        self._small: OrderedDict[_Waiter, None] = OrderedDict()
        self._large: OrderedDict[_Waiter, None] = OrderedDict()

    def try_acquire(self, byte_count: int) -> bool:
        """Take the bytes now, if they fit and nobody of the same kind waits for his."""
        is_small = byte_count <= SMALL_BODY_BYTES
        if (self._small if is_small else self._large) or not self._fits(byte_count, is_small=is_small):
            return False
        self._hold(byte_count, 1)
        return True

    async def acquire(self, byte_count: int, timeout_seconds: float) -> None:
        """Take the bytes, waiting for them if need be. Raises GatewayError 429 host_memory after the timeout.

        Cancelling it takes nothing, even in the moment in which the bytes were granted.
        """
        if self.try_acquire(byte_count):
            return
        waiter = _Waiter(byte_count, is_small=byte_count <= SMALL_BODY_BYTES)
        line = self._small if waiter.is_small else self._large
        line[waiter] = None
        timer = self._call_later(timeout_seconds, lambda: self._time_out(waiter))
        try:
            await waiter.future
        except BaseException:
            if waiter.is_granted:
                self.release(byte_count)
            else:
                del line[waiter]
                self._grant()
            raise
        finally:
            timer.cancel()

    def release(self, byte_count: int) -> None:
        """Give back what one acquire took. Raises ValueError if that is more than is held."""
        if byte_count > (self._held_small if byte_count <= SMALL_BODY_BYTES else self._held_large):
            raise ValueError(f"gives back {byte_count} bytes of {self._held_small} small and {self._held_large} large")
        self._hold(byte_count, -1)
        self._grant()

    def shrink(self, held_bytes: int, kept_bytes: int) -> None:
        """Keep only so many of the bytes that one acquire took; `kept_bytes` is what `release` gives back then."""
        self._hold(held_bytes, -1)
        self._hold(kept_bytes, 1)
        self._grant()

    def statistics(self) -> ByteBudgetStatistics:
        return ByteBudgetStatistics(
            capacity=self._capacity,
            held=self._held_small + self._held_large,
            waiting=len(self._small) + len(self._large),
        )

    def _hold(self, byte_count: int, sign: int) -> None:
        if byte_count <= SMALL_BODY_BYTES:
            self._held_small += sign * byte_count
        else:
            self._held_large += sign * byte_count

    @property
    def _kept_for_small(self) -> int:
        return self._capacity // 4

    def _fits(self, byte_count: int, *, is_small: bool) -> bool:
        held = self._held_small + self._held_large
        if held and held + byte_count > self._capacity:
            return False
        if is_small:
            return self._may_pass_the_large(byte_count)
        return not self._held_large or self._held_large + byte_count <= self._capacity - self._kept_for_small

    def _may_pass_the_large(self, byte_count: int) -> bool:
        head = next(iter(self._large), None)
        if head is None:
            return True
        if head.byte_count > self._capacity - self._kept_for_small:
            return False
        return not self._held_small or self._held_small + byte_count <= self._kept_for_small

    def _grant(self) -> None:
        self._grant_from(self._large)
        self._grant_from(self._small)

    def _grant_from(self, line: OrderedDict[_Waiter, None]) -> None:
        while line:
            waiter = next(iter(line))
            if not self._fits(waiter.byte_count, is_small=waiter.is_small):
                return
            del line[waiter]
            self._hold(waiter.byte_count, 1)
            waiter.is_granted = True
            # A cancelled waiter wakes up too, sees that it was granted and gives back.
            if not waiter.future.done():
                waiter.future.set_result(None)

    def _time_out(self, waiter: _Waiter) -> None:
        if not waiter.future.done():
            waiter.future.set_exception(
                GatewayError(
                    Code.RATE_LIMIT_EXCEEDED,
                    f"The gateway's memory for {self._purpose} is taken: {self.statistics().held} of {self._capacity} "
                    f"bytes; this request needs {waiter.byte_count} more.",
                    reason=Reason.HOST_MEMORY,
                    retry_after_seconds=NO_PROMISE.seconds,
                )
            )


class Seats:
    """Requests that may be in the house at once, from the door to the last byte of the answer."""

    __slots__ = ("_capacity", "_taken")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._taken = 0

    @property
    def capacity(self) -> int:
        return self._capacity

    @property
    def taken(self) -> int:
        return self._taken

    def take(self) -> None:
        """Raises GatewayError 429 queue_full when all are taken."""
        if self._taken >= self._capacity:
            raise GatewayError(
                Code.RATE_LIMIT_EXCEEDED,
                f"All {self._capacity} seats of the gateway are taken.",
                reason=Reason.QUEUE_FULL,
                retry_after_seconds=NO_PROMISE.seconds,
            )
        self._taken += 1

    def give_back(self) -> None:
        """Raises ValueError if none is taken."""
        if not self._taken:
            raise ValueError("gives back a seat that nobody took")
        self._taken -= 1
