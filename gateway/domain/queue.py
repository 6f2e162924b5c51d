"""The waiting line: who may still join, who has to make room, whose time is up.

Who is next is order.py's, whether it fits the engine admission.py's question.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from gateway.domain.order import Line
from gateway.domain.outcome import Reason
from gateway.domain.quantities import Amounts
from gateway.domain.shares_held import Waiting
from gateway.domain.ticket import SMALL_BODY_BYTES, Newcomer, Ticket


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


class _Sums(NamedTuple):
    """Places and bytes taken, by all and by large bodies."""

    requests: int = 0
    body_bytes: int = 0
    large_requests: int = 0
    large_bytes: int = 0

    def plus(self, body_bytes: int, sign: int = 1) -> "_Sums":
        """With one such body more, or less."""
        more = sign * body_bytes
        if body_bytes <= SMALL_BODY_BYTES:
            return self._replace(requests=self.requests + sign, body_bytes=self.body_bytes + more)
        return _Sums(self.requests + sign, self.body_bytes + more, self.large_requests + sign, self.large_bytes + more)


class WaitQueue:
    """Tickets that wait, within the bounds of a policy.

    Large bodies may fill three quarters of the places and bytes; one that is larger than that may wait when no other
    large one does. `due` is how many were asked for something that they can miss.
    """

    __slots__ = ("_by_deadline", "_cost_tokens", "_line", "_overtaken", "_policy", "_sums", "_wanted", "due")

    def __init__(self, policy: QueuePolicy) -> None:
        self._policy = policy
        self._line = Line()
        # The number breaks ties between deadlines, so that tickets are never compared.
        self._by_deadline: list[tuple[float, int, Ticket]] = []
        self._sums = _Sums()
        self._cost_tokens = 0
        self._overtaken: dict[Ticket, int] = {}
        self._wanted = [Amounts(), Amounts()]
        self.due = 0

    def __len__(self) -> int:
        return len(self._by_deadline)

    @property
    def body_bytes(self) -> int:
        return self._sums.body_bytes

    @property
    def cost_tokens(self) -> int:
        return self._cost_tokens

    def in_turn(self) -> Iterator[Ticket]:
        """All, in the order in which they would be let in."""
        return self._line.in_turn()

    @property
    def wanted_by_texts(self) -> Amounts:
        """What those that wait without images will take."""
        return self._wanted[False]

    @property
    def wanted_by_images(self) -> Amounts:
        return self._wanted[True]

    def waiting(self) -> Waiting:
        """For those who divide the budget among gateways."""
        first = next(self.in_turn(), None)
        wants = self.wanted_by_texts.plus(self.wanted_by_images)
        return Waiting(wants, None if first is None else first.amounts, first, len(self))

    @property
    def next_deadline(self) -> float | None:
        return self._by_deadline[0][0] if self._by_deadline else None

    def candidates(self, now: float) -> Iterator[Ticket]:
        """Who may be let in, the next one first; nobody may join or leave meanwhile."""
        return self._line.candidates(now)

    def ahead_of(self, newcomer: Ticket) -> Iterator[Ticket]:
        """Those that would be let in before one that joined now, were there enough for all."""
        return self._line.ahead_of(newcomer)

    def debt_tokens(self, newcomer: Ticket | Newcomer) -> float:
        """What others of its priority get before its tenant has a turn again, in cost tokens."""
        return self._line.debt_tokens(newcomer)

    def overtaken_tokens(self, ticket: Ticket) -> int:
        """What those cost that were let in past it."""
        return self._overtaken.get(ticket, 0)

    def overtake(self, ticket: Ticket, cost_tokens: int) -> None:
        self._overtaken[ticket] = self.overtaken_tokens(ticket) + cost_tokens

    def places_of(self, tenant: str) -> list[int]:
        """How many of it wait, by priority."""
        return self._line.places_of(tenant)

    def obstacle(self, body_bytes: int) -> Reason | None:
        """Why a request with such a body cannot join; None if it can."""
        return self._violation(self._sums.plus(body_bytes))

    @property
    def free_places(self) -> int:
        return self._policy.requests - len(self)

    def departures_until_room(self, body_bytes: int) -> int:
        """How many must leave before a request with such a body can join, were they all of the mean size."""
        policy = self._policy
        limits = [policy.requests, policy.body_bytes]
        if body_bytes > SMALL_BODY_BYTES:
            limits += policy.large_requests, policy.large_body_bytes
        needs = zip(self._sums.plus(body_bytes), limits, self._sums, strict=False)
        return max(
            -((limit - wanted) * len(self) // held) if wanted > limit and held else 0 for wanted, limit, held in needs
        )

    def join(self, ticket: Ticket) -> None:
        insort(self._by_deadline, (ticket.leaves_by, self._line.join(ticket), ticket))
        self._sums = self._sums.plus(ticket.body_bytes)
        self._cost_tokens += ticket.cost_tokens
        self._wanted[ticket.is_image] = self._wanted[ticket.is_image].plus(ticket.amounts)
        self.due += ticket.is_due

    def leave(self, ticket: Ticket) -> None:
        """Raises KeyError if it does not wait."""
        self._forget(ticket, self._line.leave(ticket))

    def admit(self, ticket: Ticket, now: float, *, in_turn: bool) -> None:
        """It leaves for the engine; `in_turn` unless it takes what one that was passed over is short of."""
        self._forget(ticket, self._line.admit(ticket, now, in_turn=in_turn))

    def displaced_by(self, newcomer: Ticket | Newcomer) -> Ticket | None:
        """Who makes room for one that cannot join; None: nobody has to, or it would not be enough.

        The newest of the lowest class below the newcomer's; else, where its tenant has less than its share of the
        places of its class, the newest of the tenant that is furthest above; else, where its texts have less than half
        of its own tenant's places there, the newest of the images, and the other way round. A kept place stays kept.
        """

        def is_enough(loser: Ticket) -> bool:
            return (
                not loser.keeps_place
                and self._violation(self._sums.plus(loser.body_bytes, -1).plus(newcomer.body_bytes)) is None
            )

        line = self._line
        losers = line.newest_below, line.newest_of_the_greediest, line.newest_of_the_longer_lane
        found = (newest(newcomer, is_enough) for newest in losers)
        return next((loser for loser in found if loser is not None), None)

    def pop_expired(self, now: float) -> Ticket | None:
        """Take out the ticket whose deadline passed first, if any has."""
        if not self._by_deadline or self._by_deadline[0][0] > now:
            return None
        ticket = self._by_deadline[0][2]
        self.leave(ticket)
        return ticket

    def copy(self) -> "WaitQueue":
        """One with the same tickets, which goes its own way from now on."""
        other = WaitQueue(self._policy)
        other._by_deadline, other._line, other._overtaken = (
            self._by_deadline.copy(),
            self._line.copy(),
            self._overtaken.copy(),
        )
        other._sums, other._cost_tokens = self._sums, self._cost_tokens
        other._wanted, other.due = self._wanted.copy(), self.due
        return other

    def _violation(self, sums: _Sums) -> Reason | None:
        """Which bound of the policy would be broken."""
        policy = self._policy
        if sums.requests > policy.requests or sums.large_requests > policy.large_requests:
            return Reason.QUEUE_FULL
        if sums.body_bytes > policy.body_bytes:
            return Reason.QUEUE_BYTES
        return Reason.QUEUE_BYTES if sums.large_requests > 1 and sums.large_bytes > policy.large_body_bytes else None

    def _forget(self, ticket: Ticket, number: int) -> None:
        del self._by_deadline[bisect_left(self._by_deadline, (ticket.leaves_by, number))]
        self._sums = self._sums.plus(ticket.body_bytes, -1)
        self._cost_tokens -= ticket.cost_tokens
        self._overtaken.pop(ticket, None)
        self._wanted[ticket.is_image] = self._wanted[ticket.is_image].plus(ticket.amounts, -1)
        self.due -= ticket.is_due
