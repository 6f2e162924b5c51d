"""The waiting line: who is next, who may still join, whose time is up.

First come, first served. Order and room live here; whether the head fits the engine is admission.py's question.
"""

from bisect import bisect_left, insort
from collections import OrderedDict
from dataclasses import dataclass, field

from gateway.domain.cost import OutputGrowth, RequestCost
from gateway.domain.outcome import Reason
from gateway.domain.quantities import Amounts

SMALL_BODY_BYTES = 256 * 1024
"""Bodies up to this size have a quarter of every queue and byte budget to themselves."""


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """How many may wait (0: nobody), with how many bytes of bodies, and for how long at most."""

    requests: int = 256
    body_bytes: int = 512 * 2**20
    wait_seconds: float = 30.0

    @property
    def large_requests(self) -> int:
        return self.requests - self.requests // 4

    @property
    def large_body_bytes(self) -> int:
        return self.body_bytes - self.body_bytes // 4


@dataclass(slots=True, eq=False)
class Ticket:
    """One request at admission. Compared by identity: it is the request.

    Times are seconds on the caller's clock. `is_return` says that the client comes back after a refusal; `growth`
    what its answer costs beyond its reservation; `cost_tokens` prompt and reserved answers, for the metrics.
    """

    amounts: Amounts
    arrived: float
    deadline: float
    body_bytes: int = 0
    cost_tokens: int = 0
    growth: OutputGrowth = field(default_factory=OutputGrowth)
    is_return: bool = False

    @classmethod
    def of(cls, cost: RequestCost, arrived: float, wait_seconds: float, *, is_return: bool = False) -> "Ticket":
        return cls(
            amounts=cost.amounts,
            arrived=arrived,
            deadline=arrived + wait_seconds,
            body_bytes=cost.body_bytes,
            cost_tokens=cost.prompt_tokens.expected + cost.output_tokens * cost.answers,
            growth=cost.growth,
            is_return=is_return,
        )


class WaitQueue:
    """Tickets in the order in which they came, within the bounds of a policy.

    Large bodies may fill three quarters of the places and bytes; one that is larger than that may wait when no other
    large one does.
    """

    __slots__ = (
        "_body_bytes",
        "_by_deadline",
        "_cost_tokens",
        "_joined",
        "_large_bytes",
        "_large_count",
        "_policy",
        "_waiting",
    )

    def __init__(self, policy: QueuePolicy) -> None:
        self._policy = policy
        self._waiting: OrderedDict[Ticket, int] = OrderedDict()
        # The number breaks ties between deadlines, so that tickets are never compared.
        self._by_deadline: list[tuple[float, int, Ticket]] = []
        self._joined = 0
        self._body_bytes = 0
        self._cost_tokens = 0
        self._large_count = 0
        self._large_bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, ticket: Ticket) -> bool:
        return ticket in self._waiting

    @property
    def body_bytes(self) -> int:
        return self._body_bytes

    @property
    def cost_tokens(self) -> int:
        return self._cost_tokens

    @property
    def next_deadline(self) -> float | None:
        return self._by_deadline[0][0] if self._by_deadline else None

    def head(self) -> Ticket | None:
        return next(iter(self._waiting), None)

    def obstacle(self, body_bytes: int) -> Reason | None:
        """Why a request with such a body cannot join; None if it can."""
        policy = self._policy
        is_large = body_bytes > SMALL_BODY_BYTES
        if len(self._waiting) >= policy.requests or (is_large and self._large_count >= policy.large_requests):
            return Reason.QUEUE_FULL
        if self._excess_bytes(body_bytes) > 0:
            return Reason.QUEUE_BYTES
        if is_large and self._large_bytes and self._large_bytes + body_bytes > policy.large_body_bytes:
            return Reason.QUEUE_BYTES
        return None

    @property
    def free_places(self) -> int:
        return self._policy.requests - len(self._waiting)

    def departures_until_room(self, body_bytes: int) -> int:
        """How many must leave before a request with such a body can join, were they all of the mean size."""
        policy = self._policy
        excesses = [(1 - self.free_places, len(self._waiting)), (self._excess_bytes(body_bytes), self._body_bytes)]
        if body_bytes > SMALL_BODY_BYTES:
            excesses.append((self._large_count + 1 - policy.large_requests, self._large_count))
            excesses.append((self._large_bytes + body_bytes - policy.large_body_bytes, self._large_bytes))
        return max(-(-excess * len(self._waiting) // held) if excess > 0 and held else 0 for excess, held in excesses)

    def join(self, ticket: Ticket) -> None:
        self._joined += 1
        self._waiting[ticket] = self._joined
        insort(self._by_deadline, (ticket.deadline, self._joined, ticket))
        self._account(ticket, 1)

    def leave(self, ticket: Ticket) -> None:
        """Raises KeyError if it does not wait."""
        number = self._waiting.pop(ticket)
        del self._by_deadline[bisect_left(self._by_deadline, (ticket.deadline, number))]
        self._account(ticket, -1)

    def pop_expired(self, now: float) -> Ticket | None:
        """Take out the ticket whose deadline passed first, if any has."""
        if not self._by_deadline or self._by_deadline[0][0] > now:
            return None
        ticket = self._by_deadline[0][2]
        self.leave(ticket)
        return ticket

    def _excess_bytes(self, body_bytes: int) -> int:
        return self._body_bytes + body_bytes - self._policy.body_bytes

    def _account(self, ticket: Ticket, sign: int) -> None:
        self._body_bytes += sign * ticket.body_bytes
        self._cost_tokens += sign * ticket.cost_tokens
        if ticket.body_bytes > SMALL_BODY_BYTES:
            self._large_count += sign
            self._large_bytes += sign * ticket.body_bytes
