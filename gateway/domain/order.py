"""Who is next among those who wait: classes by priority, in a class fair turns of tenants, in a tenant of two lanes.

Turns go by start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996), charged in tokens: of two tenants that always
wait, neither gets ahead of its share by more than one request of each. Texts and images of a tenant are lanes that take
turns in the same way, so neither waits behind a wall of the other, and mixing them gains a tenant nothing. Turns are
charged when a waiter is let in, so who leaves the line owes nothing.

One turn in four goes to a lane that stands still: that has waited too long without a turn, because of debts or because
its whole class has none. Not to the oldest request, which is always one of the tenant that sends the most. What fits
the engine is not known here (admission.py).
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from math import inf
from typing import Generic, TypeVar

from gateway.domain.priority import Priority
from gateway.domain.ticket import Newcomer, Ticket

AGING_SECONDS = 10.0
AGED_EVERY = 4

# A lane's first few may be let in past its head; a look at all of a long line would cost more than it finds.
_DEPTH = 8
_MOST_RESTING = 1024

Choice = Callable[[Ticket], bool]
Key = TypeVar("Key", str, bool)


class Turns(Generic[Key]):
    """When those that wait are due, in virtual time: that is when the turn that was last taken in order was due."""

    __slots__ = ("_due", "_resting", "_time")

    def __init__(self) -> None:
        self._due: dict[Key, float] = {}
        # When the next turn of those that do not wait is due; it only matters while others do.
        self._resting: OrderedDict[Key, float] = OrderedDict()
        self._time = 0.0

    def join(self, key: Key) -> None:
        self._due[key] = max(self._time, self._resting.pop(key, 0.0))

    def leave(self, key: Key) -> None:
        due = self._due.pop(key)
        if not self._due:
            self._resting.clear()
        elif due > self._time:
            self._resting[key] = due
            if len(self._resting) > _MOST_RESTING:
                self._resting.popitem(last=False)

    def take(self, key: Key, charge: float, *, in_turn: bool) -> None:
        """It has had a turn; `in_turn` unless one was passed over that wanted the same.

        A turn out of order must not move time past those that still wait for theirs. Where time has gone past one
        nevertheless, because what it is short of is not what the others take, it has not earned more than one turn.
        """
        reached = self._due[key] if in_turn else min(self._due.values())
        self._time = max(self._time, reached)
        self._due[key] = max(self._due[key] + charge, self._time)

    def in_order(self) -> list[Key]:
        return sorted(self._due, key=self._due.__getitem__)


class _Lane:
    """Tickets with the numbers they joined with; when it last had a turn of its own, and one as help, in seconds."""

    __slots__ = ("helped_at", "helps", "tickets", "turned_at")

    def __init__(self) -> None:
        self.tickets: OrderedDict[Ticket, int] = OrderedDict()
        self.turned_at = self.helped_at = -inf
        self.helps = 0

    @property
    def head(self) -> Ticket:
        return next(iter(self.tickets))

    @property
    def unhelped_since(self) -> float:
        return max(self.head.arrived, self.helped_at)


class _Tenant:
    """The lanes of one tenant that are not empty, by whether they are of images."""

    __slots__ = ("lanes", "turns")

    def __init__(self) -> None:
        self.lanes: dict[bool, _Lane] = {}
        self.turns = Turns[bool]()

    def __len__(self) -> int:
        return sum(len(lane.tickets) for lane in self.lanes.values())

    @property
    def weight(self) -> float:
        return next(iter(self.lanes.values())).head.weight

    def in_order(self) -> Iterator[_Lane]:
        return (self.lanes[is_image] for is_image in self.turns.in_order())


class FairClass:
    """The tenants of one priority."""

    __slots__ = ("_tenants", "_turned_at", "_turns")

    def __init__(self) -> None:
        self._tenants: dict[str, _Tenant] = {}
        self._turns = Turns[str]()
        self._turned_at = -inf

    def join(self, ticket: Ticket, number: int) -> None:
        tenant = self._tenants.get(ticket.tenant)
        if tenant is None:
            tenant = self._tenants[ticket.tenant] = _Tenant()
            self._turns.join(ticket.tenant)
        lane = tenant.lanes.get(ticket.is_image)
        if lane is None:
            lane = tenant.lanes[ticket.is_image] = _Lane()
            tenant.turns.join(ticket.is_image)
        lane.tickets[ticket] = number

    def leave(self, ticket: Ticket) -> int:
        """The number it joined with. Raises KeyError if it does not wait."""
        tenant = self._tenants[ticket.tenant]
        lane = tenant.lanes[ticket.is_image]
        number = lane.tickets.pop(ticket)
        if not lane.tickets:
            del tenant.lanes[ticket.is_image]
            tenant.turns.leave(ticket.is_image)
        if not tenant.lanes:
            del self._tenants[ticket.tenant]
            self._turns.leave(ticket.tenant)
        return number

    def admit(self, ticket: Ticket, now: float, *, in_turn: bool, is_help: bool) -> int:
        """It leaves, and its tenant and lane have had a turn: of their own, or because the lane stood still."""
        tenant = self._tenants[ticket.tenant]
        lane = tenant.lanes[ticket.is_image]
        if is_help:
            lane.helped_at = now
            lane.helps += 1
        else:
            lane.turned_at = self._turned_at = now
        in_turn = in_turn and not is_help
        self._turns.take(ticket.tenant, ticket.cost_tokens / ticket.weight, in_turn=in_turn)
        tenant.turns.take(ticket.is_image, ticket.cost_tokens, in_turn=in_turn)
        return self.leave(ticket)

    def standing_still(self, now: float) -> Iterator[_Lane]:
        """Lanes without a turn for too long; without one of their own, where none of the class has any."""
        still_since = now - AGING_SECONDS
        is_moving = self._turned_at > still_since
        for lane in self._lanes():
            last = max(lane.turned_at, lane.unhelped_since) if is_moving else lane.head.arrived
            if last <= still_since:
                yield lane

    def by_turn(self) -> Iterator[Ticket]:
        """The heads of the lanes, then some of those behind each of them."""
        lanes = [lane for tenant in self._turns.in_order() for lane in self._tenants[tenant].in_order()]
        for lane in lanes:
            yield lane.head
        for lane in lanes:
            yield from islice(lane.tickets, 1, 1 + _DEPTH)

    def has(self, tenant: str) -> bool:
        return tenant in self._tenants

    def newest(self, is_eligible: Choice) -> Ticket | None:
        return _newest(self._lanes(), is_eligible)

    def newest_of_the_greediest(self, newcomer: Ticket | Newcomer, is_eligible: Choice) -> Ticket | None:
        """Of the tenant furthest above its share of this class's places, of those that have an eligible one; None if
        the newcomer's is not below its own.

        Shares are by weight, among the tenants that wait and the newcomer's.
        """
        places = {name: len(tenant) for name, tenant in self._tenants.items()}
        weights = {name: tenant.weight for name, tenant in self._tenants.items()} | {newcomer.tenant: newcomer.weight}
        share = sum(places.values()) / sum(weights.values())
        if places.get(newcomer.tenant, 0) + 1 > share * newcomer.weight:
            return None
        taken = {name: places[name] / weights[name] for name in places}
        greedy = sorted((name for name in taken if taken[name] > share), key=taken.__getitem__, reverse=True)
        newest = (_newest(self._tenants[name].lanes.values(), is_eligible) for name in greedy)
        return next((ticket for ticket in newest if ticket is not None), None)

    def _lanes(self) -> Iterator[_Lane]:
        return (lane for tenant in self._tenants.values() for lane in tenant.lanes.values())


class Line:
    """All who wait."""

    __slots__ = ("_classes", "_joined", "_since_help")

    def __init__(self) -> None:
        self._classes = tuple(FairClass() for _ in Priority)
        self._joined = 0
        self._since_help = 0

    def join(self, ticket: Ticket) -> int:
        """Returns a number that grows with every ticket."""
        self._joined += 1
        self._classes[ticket.priority].join(ticket, self._joined)
        return self._joined

    def leave(self, ticket: Ticket) -> int:
        """The number it joined with. Raises KeyError if it does not wait."""
        return self._classes[ticket.priority].leave(ticket)

    def admit(self, ticket: Ticket, now: float, *, in_turn: bool) -> int:
        """It leaves for the engine; the number it joined with. Raises KeyError if it does not wait."""
        is_help = self._to_help(now) is ticket
        number = self._classes[ticket.priority].admit(ticket, now, in_turn=in_turn, is_help=is_help)
        self._since_help = 0 if is_help else self._since_help + 1
        return number

    def candidates(self, now: float) -> Iterator[Ticket]:
        """Who may be let in, the next one first."""
        helped = self._to_help(now)
        if helped is not None:
            yield helped
        for each in self._classes:
            for ticket in each.by_turn():
                if ticket is not helped:
                    yield ticket

    def has(self, newcomer: Ticket | Newcomer) -> bool:
        """Whether one of its tenant waits that is no less urgent."""
        return any(each.has(newcomer.tenant) for each in self._classes[: newcomer.priority + 1])

    def newest_below(self, priority: Priority, is_eligible: Choice) -> Ticket | None:
        """The newest ticket of the lowest class below `priority` that has one."""
        newest = (each.newest(is_eligible) for each in reversed(self._classes[priority + 1 :]))
        return next((ticket for ticket in newest if ticket is not None), None)

    def newest_of_the_greediest(self, newcomer: Ticket | Newcomer, is_eligible: Choice) -> Ticket | None:
        """Of the newcomer's class, as `FairClass` has it."""
        return self._classes[newcomer.priority].newest_of_the_greediest(newcomer, is_eligible)

    def _to_help(self, now: float) -> Ticket | None:
        """The head of the lane that was longest not helped of those that stand still, if it is the turn of such."""
        if self._since_help < AGED_EVERY - 1:
            return None
        lanes = (lane for each in self._classes for lane in each.standing_still(now))
        longest = min(lanes, key=lambda lane: (lane.unhelped_since, lane.helps), default=None)
        return None if longest is None else longest.head


def _newest(lanes: Iterable[_Lane], is_eligible: Choice) -> Ticket | None:
    number, newest = 0, None
    for lane in lanes:
        ticket = next((each for each in reversed(lane.tickets) if is_eligible(each)), None)
        if ticket is not None and lane.tickets[ticket] > number:
            number, newest = lane.tickets[ticket], ticket
    return newest
