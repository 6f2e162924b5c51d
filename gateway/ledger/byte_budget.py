"""Memory of this process, counted before it is used; and seats, the number of requests in the house.

Bytes are taken before they are read from a client, or before an image is decoded, and given back when the memory is
free again. A quarter is kept for small bodies, so that a crowd of uploads cannot shut out a line of text, and slow
uploads have no more than a quarter, so that a crowd of them cannot shut out the others.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from gateway.domain.errors import Code, GatewayError
from gateway.domain.outcome import Reason
from gateway.domain.promise import NO_PROMISE
from gateway.domain.ticket import SMALL_BODY_BYTES
from gateway.ledger.timing import CallLater


@dataclass(frozen=True, slots=True)
class ByteBudgetStatistics:
    capacity: int
    held: int
    waiting: int


class Share(Enum):
    """What bytes are held for: small requests, large ones, and uploads so slow that they grow step by step."""

    SMALL = "small"
    LARGE = "large"
    SLOW = "slow"


def share_of(byte_count: int) -> Share:
    return Share.SMALL if byte_count <= SMALL_BODY_BYTES else Share.LARGE


class _Waiter:
    __slots__ = ("byte_count", "future", "is_granted", "share")

    def __init__(self, byte_count: int, share: Share) -> None:
        self.byte_count = byte_count
        self.share = share
        self.is_granted = False
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()


_Line = OrderedDict[_Waiter, None]


class ByteBudget:
    """Bytes held of a capacity, with a line for small and one for large requests, each first come, first served.

    Large requests share three quarters. While one of them waits, small ones keep to their quarter, so the large one's
    turn comes. One that is larger than the three quarters waits until no other large one is held, one larger than the
    capacity until nothing is; meanwhile everybody waits behind it.

    Slow uploads are the only ones that hold bytes and ask for more. They go before the large ones, of whose share
    theirs is a part, but all of them together have a quarter of the capacity: who would need more of it is refused at
    once, so none waits for another one's bytes. The large ones never ask again, so what is waited for comes.
    """

    __slots__ = (
        "_call_later", "_capacity", "_growing", "_held_large", "_held_slow", "_held_small", "_large", "_purpose",
        "_small",
    )  # fmt: skip

    def __init__(self, capacity: int, *, purpose: str, call_later: CallLater) -> None:
        """`purpose` stands in the refusal, e.g. `request bodies`."""
        self._capacity = capacity
        self._purpose = purpose
        self._call_later = call_later
        self._held_small = self._held_large = self._held_slow = 0
        self._small: _Line = OrderedDict()
        self._large: _Line = OrderedDict()
        self._growing: _Line = OrderedDict()

    def try_acquire(self, byte_count: int, share: Share | None = None) -> bool:
        """Take the bytes now, if they fit and nobody who goes before waits for his. Without `share` it is by size."""
        share = share or share_of(byte_count)
        if self._has_to_line_up(share) or not self._fits(byte_count, share):
            return False
        self._hold(byte_count, share)
        return True

    async def acquire(self, byte_count: int, timeout_seconds: float, share: Share | None = None) -> None:
        """Take the bytes, waiting for them if need be. Raises GatewayError 429 host_memory after the timeout.

        Cancelling it takes nothing, even in the moment in which the bytes were granted.
        """
        share = share or share_of(byte_count)
        if self.try_acquire(byte_count, share):
            return
        waiter = _Waiter(byte_count, share)
        line = self._line(share)
        line[waiter] = None
        timer = self._call_later(timeout_seconds, lambda: self._time_out(waiter))
        try:
            await waiter.future
        except BaseException:
            if waiter.is_granted:
                self._hold(-byte_count, share)
            else:
                del line[waiter]
            self._grant()
            raise
        finally:
            timer.cancel()

    async def acquire_step(self, byte_count: int, held_bytes: int, timeout_seconds: float) -> None:
        """As `acquire`, for a slow upload that holds `held_bytes` of the slow share already; refused at once if all
        slow ones together would hold more than their quarter.
        """
        self._refuse_above_the_slow_quarter(byte_count, held_bytes)
        await self.acquire(byte_count, timeout_seconds, Share.SLOW)

    def slow_down(self, held_bytes: int, *, small: int, large: int, slow: int) -> None:
        """As `change`, for an upload with `held_bytes` of the slow share that is to hold `slow` more and less of the
        others. Raises GatewayError 429 host_memory, and changes nothing, if the slow quarter has no room.
        """
        self._refuse_above_the_slow_quarter(slow, held_bytes)
        self.change(small=small, large=large, slow=slow)

    def release(self, byte_count: int) -> None:
        """Give back what one acquire took by size. Raises ValueError if that is more than is held."""
        if byte_count <= SMALL_BODY_BYTES:
            self.change(small=-byte_count)
        else:
            self.change(large=-byte_count)

    def change(self, *, small: int = 0, large: int = 0, slow: int = 0) -> None:
        """Hold so much less, or more, of each share: bytes are given back, or go over from one share to another.

        Raises ValueError if that is more than is held, or if more would be held than before.
        """
        after = self._held_small + small, self._held_large + large, self._held_slow + slow
        if min(after) < 0 or small + large + slow > 0:
            held = f"{self._held_small} small, {self._held_large} large and {self._held_slow} slow"
            raise ValueError(f"gives back {-small} small, {-large} large and {-slow} slow bytes of {held}")
        self._held_small, self._held_large, self._held_slow = after
        if self._small or self._large or self._growing:
            self._grant()

    def overdraw(self, byte_count: int) -> None:
        """Hold more of the large share, fitting or not: what comes of bytes that were let in. It keeps new ones out."""
        self._held_large += byte_count

    def refusal(self, byte_count: int) -> GatewayError:
        """429 host_memory for who needs so much more and does not get it."""
        return _no_memory(
            f"The gateway's memory for {self._purpose} is taken: {self.statistics().held} of {self._capacity} bytes; "
            f"this request needs {byte_count} more."
        )

    def statistics(self) -> ByteBudgetStatistics:
        return ByteBudgetStatistics(
            capacity=self._capacity,
            held=self._held_small + self._held_large + self._held_slow,
            waiting=len(self._small) + len(self._large) + len(self._growing),
        )

    def _hold(self, byte_count: int, share: Share) -> None:
        if share is Share.SMALL:
            self._held_small += byte_count
        elif share is Share.LARGE:
            self._held_large += byte_count
        else:
            self._held_slow += byte_count

    def _line(self, share: Share) -> _Line:
        if share is Share.SMALL:
            return self._small
        return self._large if share is Share.LARGE else self._growing

    def _has_to_line_up(self, share: Share) -> bool:
        return bool(self._line(share)) or (share is Share.LARGE and bool(self._growing))

    @property
    def _quarter(self) -> int:
        return self._capacity // 4

    def _fits(self, byte_count: int, share: Share) -> bool:
        held_large = self._held_large + self._held_slow
        held = self._held_small + held_large
        if held and held + byte_count > self._capacity:
            return False
        if share is Share.SMALL:
            return self._may_pass_the_large(byte_count)
        return not held_large or held_large + byte_count <= self._capacity - self._quarter

    def _may_pass_the_large(self, byte_count: int) -> bool:
        head = next(iter(self._growing or self._large), None)
        if head is None:
            return True
        if head.byte_count > self._capacity - self._quarter:
            return False
        return not self._held_small or self._held_small + byte_count <= self._quarter

    def _grant(self) -> None:
        self._grant_from(self._growing)
        if not self._growing:
            self._grant_from(self._large)
        self._grant_from(self._small)

    def _grant_from(self, line: _Line) -> None:
        while line:
            waiter = next(iter(line))
            if not self._fits(waiter.byte_count, waiter.share):
                return
            del line[waiter]
            self._hold(waiter.byte_count, waiter.share)
            waiter.is_granted = True
            # A cancelled waiter wakes up too, sees that it was granted and gives back.
            if not waiter.future.done():
                waiter.future.set_result(None)

    def _time_out(self, waiter: _Waiter) -> None:
        if not waiter.future.done():
            waiter.future.set_exception(self.refusal(waiter.byte_count))

    def _refuse_above_the_slow_quarter(self, byte_count: int, held_bytes: int) -> None:
        others = self._held_slow - held_bytes + sum(waiter.byte_count for waiter in self._growing)
        # A slow one that is alone may be as long as any body.
        if others and others + held_bytes + byte_count > self._quarter:
            raise _no_memory(
                f"The gateway's memory for {self._purpose} that come slowly is taken: {others + held_bytes} of "
                f"{self._quarter} bytes; this one needs {byte_count} more. Send it faster, or again later."
            )


def _no_memory(message: str) -> GatewayError:
    return GatewayError(
        Code.RATE_LIMIT_EXCEEDED,
        message,
        reason=Reason.HOST_MEMORY,
        retry_after_seconds=NO_PROMISE.seconds,
    )


class Seats:
    """Requests that may be in the house at once, from the door to the last byte of the answer.

    `on_empty` is called when the last of them has left.
    """

    __slots__ = ("_capacity", "_taken", "on_empty")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._taken = 0
        self.on_empty: Callable[[], None] | None = None

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
        if not self._taken and self.on_empty is not None:
            self.on_empty()
