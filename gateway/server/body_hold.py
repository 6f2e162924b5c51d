"""The bytes that one request's body holds of the budget, from before its first byte to the upstream's answer."""

from gateway.ledger.byte_budget import ByteBudget
from gateway.server.door import Arrival
from gateway.server.receive import BodyLimits


class BodyHold:
    """Taken once, given back once; `release` may be called on every path."""

    __slots__ = ("_budget", "_byte_count", "_is_held")

    def __init__(self, budget: ByteBudget, arrival: Arrival, limits: BodyLimits) -> None:
        # A body of unknown length may become as long as any; a coded one is held as it came and decoded.
        announced = limits.max_bytes if arrival.content_length is None else arrival.content_length
        self._budget = budget
        self._byte_count = announced + (limits.max_decoded_bytes if arrival.is_coded else 0)
        self._is_held = False

    async def take(self, timeout_seconds: float) -> None:
        """Raises GatewayError 429 where the bytes do not come free in time."""
        if not self._budget.try_acquire(self._byte_count):
            await self._budget.acquire(self._byte_count, timeout_seconds)
        self._is_held = True

    def shrink(self, byte_count: int) -> None:
        """The body has come and is only so long: chunked ones announce nothing, and decoded ones replace what came."""
        if byte_count < self._byte_count:
            self._budget.shrink(self._byte_count, byte_count)
            self._byte_count = byte_count

    def release(self) -> None:
        if self._is_held:
            self._is_held = False
            self._budget.release(self._byte_count)
