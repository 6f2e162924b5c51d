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
from heapq import merge
from itertools import chain, islice, takewhile
from math import inf
from operator import itemgetter
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
_virtual_time = itemgetter(0)


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

    def due(self, key: Key) -> float:
        """When its turn comes; of one that does not wait, if it came now."""
        due = self._due.get(key)
        return max(self._time, self._resting.get(key, 0.0)) if due is None else due

    def owed(self, key: Key) -> float:
        """What was taken ahead of time, by one that may wait or not."""
        return self.due(key) - self._time

    def copy(self) -> "Turns[Key]":
        other: Turns[Key] = Turns()
        other._due, other._resting, other._time = self._due.copy(), self._resting.copy(), self._time
        return other


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

    def unmoved_since(self, *, is_moving: bool) -> float:
        """`is_moving`: others of its class have turns."""
        return max(self.turned_at, self.unhelped_since) if is_moving else self.head.arrived

    def in_turn(self, due: float) -> Iterator[tuple[float, Ticket]]:
        """All, each with the virtual time at which its turn comes; that of the first is `due`."""
        for ticket in self.tickets:
            yield due, ticket
            due += ticket.cost_tokens

    def copy(self) -> "_Lane":
        other = _Lane()
        other.tickets, other.helps = self.tickets.copy(), self.helps
        other.turned_at, other.helped_at = self.turned_at, self.helped_at
        return other


class _Tenant:
    """The lanes of one tenant that are not empty, by whether they are of images; `places` is how many wait in them."""

    __slots__ = ("lanes", "places", "turns", "weight")

    def __init__(self, weight: float) -> None:
        self.lanes: dict[bool, _Lane] = {}
        self.turns: Turns[bool] = Turns()
        self.places = 0
        self.weight = weight

    def in_order(self) -> Iterator[_Lane]:
        return (self.lanes[is_image] for is_image in self.turns.in_order())

    def in_turn(self) -> Iterator[tuple[float, Ticket]]:
        """All, each with the virtual time, among the lanes, at which its turn comes."""
        return merge(*(lane.in_turn(self.turns.due(key)) for key, lane in self.lanes.items()), key=_virtual_time)

    def ahead_of(self, newcomer: Ticket) -> Iterator[Ticket]:
        lane = self.lanes.get(newcomer.is_image)
        own_tokens = sum(ticket.cost_tokens for ticket in lane.tickets) if lane else 0
        return _until(self.turns.due(newcomer.is_image) + own_tokens, self.in_turn())

    def copy(self) -> "_Tenant":
        other = _Tenant(self.weight)
        other.lanes = {key: lane.copy() for key, lane in self.lanes.items()}
        other.turns, other.places = self.turns.copy(), self.places
        return other


class FairClass:
    """The tenants of one priority."""

    __slots__ = ("_tenants", "_turned_at", "_turns")

    def __init__(self) -> None:
        self._tenants: dict[str, _Tenant] = {}
        self._turns: Turns[str] = Turns()
        self._turned_at = -inf

    def join(self, ticket: Ticket, number: int) -> None:
        tenant = self._tenants.get(ticket.tenant)
        if tenant is None:
            tenant = self._tenants[ticket.tenant] = _Tenant(ticket.weight)
            self._turns.join(ticket.tenant)
        lane = tenant.lanes.get(ticket.is_image)
        if lane is None:
            lane = tenant.lanes[ticket.is_image] = _Lane()
            tenant.turns.join(ticket.is_image)
        lane.tickets[ticket] = number
        if ticket.keeps_place:
            for first in reversed([*takewhile(lambda other: other.keeps_place, lane.tickets), ticket]):
                lane.tickets.move_to_end(first, last=False)
        tenant.places += 1

    def leave(self, ticket: Ticket) -> int:
        """The number it joined with. Raises KeyError if it does not wait."""
        tenant = self._tenants[ticket.tenant]
        lane = tenant.lanes[ticket.is_image]
        number = lane.tickets.pop(ticket)
        tenant.places -= 1
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
        still_since, is_moving = now - AGING_SECONDS, self._is_moving(now)
        return (lane for lane in self._lanes() if lane.unmoved_since(is_moving=is_moving) <= still_since)

    def moves_until(self, now: float) -> float:
        """Until when no lane will stand still, where none does; some may join meanwhile."""
        is_moving = self._is_moving(now)
        changes_at = self._turned_at if is_moving else now
        unmoved = (lane.unmoved_since(is_moving=is_moving) for lane in self._lanes())
        return min(changes_at, *unmoved, now) + AGING_SECONDS

    def _is_moving(self, now: float) -> bool:
        return self._turned_at > now - AGING_SECONDS

    def by_turn(self) -> Iterator[Ticket]:
        """The heads of the lanes, then some of those behind each of them."""
        seen = []
        for tenant in self._turns.in_order():
            for lane in self._tenants[tenant].in_order():
                seen.append(lane)
                yield lane.head
        for lane in seen:
            yield from islice(lane.tickets, 1, 1 + _DEPTH)

    def in_turn(self) -> Iterator[Ticket]:
        """All, in the order of their turns."""
        return (ticket for _, ticket in merge(*map(self._of_one, self._tenants), key=_virtual_time))

    def ahead_of(self, newcomer: Ticket) -> Iterator[Ticket]:
        """Those whose turn would come before that of one that joined now."""
        own = self._tenants.get(newcomer.tenant)
        of_its_own = [] if own is None else list(own.ahead_of(newcomer))
        charge = sum(ticket.cost_tokens for ticket in of_its_own) / newcomer.weight
        latest = self._turns.due(newcomer.tenant) + charge
        yield from of_its_own
        for name in self._tenants.keys() - {newcomer.tenant}:
            yield from _until(latest, self._of_one(name))

    def debt_tokens(self, newcomer: Ticket | Newcomer) -> float:
        """What others get of the turns before its tenant has one again."""
        return self._turns.owed(newcomer.tenant) * newcomer.weight

    def places_of(self, name: str) -> int:
        tenant = self._tenants.get(name)
        return 0 if tenant is None else tenant.places

    def all(self) -> Iterator[Ticket]:
        return (ticket for lane in self._lanes() for ticket in lane.tickets)

    def newest(self, is_eligible: Choice) -> Ticket | None:
        return _newest(self._lanes(), is_eligible)

    def newest_of_the_greediest(self, newcomer: Ticket | Newcomer, is_eligible: Choice) -> Ticket | None:
        """Of the tenant furthest above its share of this class's places, of those that have an eligible one; None if
        the newcomer's is not below its own.

        Shares are by weight, among the tenants that wait and the newcomer's.
        """
        places = {name: tenant.places for name, tenant in self._tenants.items()}
        weights = {name: tenant.weight for name, tenant in self._tenants.items()} | {newcomer.tenant: newcomer.weight}
        share = sum(places.values()) / sum(weights.values())
        if places.get(newcomer.tenant, 0) + 1 > share * newcomer.weight:
            return None
        taken = {name: places[name] / weights[name] for name in places}
        greedy = sorted((name for name in taken if taken[name] > share), key=taken.__getitem__, reverse=True)
        newest = (_newest(self._tenants[name].lanes.values(), is_eligible) for name in greedy)
        return next((ticket for ticket in newest if ticket is not None), None)

    def copy(self) -> "FairClass":
        other = FairClass()
        other._tenants = {name: tenant.copy() for name, tenant in self._tenants.items()}
        other._turns, other._turned_at = self._turns.copy(), self._turned_at
        return other

    def newest_of_the_longer_lane(self, newcomer: Ticket | Newcomer, is_eligible: Choice) -> Ticket | None:
        """Of the other lane of the newcomer's tenant; None if that has no more places than the newcomer's will have."""
        tenant = self._tenants.get(newcomer.tenant)
        if tenant is None:
            return None
        own, other = (tenant.lanes.get(is_image) for is_image in (newcomer.is_image, not newcomer.is_image))
        own_places = 0 if own is None else len(own.tickets)
        return None if other is None or len(other.tickets) < own_places + 2 else _newest((other,), is_eligible)

    def _lanes(self) -> Iterator[_Lane]:
        return (lane for tenant in self._tenants.values() for lane in tenant.lanes.values())

    def _of_one(self, name: str) -> Iterator[tuple[float, Ticket]]:
        due = self._turns.due(name)
        for _, ticket in self._tenants[name].in_turn():
            yield due, ticket
            due += ticket.cost_tokens / ticket.weight


class Line:
    """All who wait."""

    __slots__ = ("_classes", "_joined", "_moves_until", "_since_help")

    def __init__(self) -> None:
        self._classes = tuple(FairClass() for _ in Priority)
        self._joined = 0
        self._since_help = 0
        # Before then no lane stands still: a look at all of them with each turn would cost more than the turn.
        self._moves_until = -inf

    def copy(self) -> "Line":
        other = Line()
        other._classes = tuple(each.copy() for each in self._classes)
        other._joined, other._since_help, other._moves_until = self._joined, self._since_help, self._moves_until
        return other

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

    def in_turn(self) -> Iterator[Ticket]:
        """All in the order in which they would be let in, were there enough for each and nobody to help."""
        return chain.from_iterable(each.in_turn() for each in self._classes)

    def ahead_of(self, newcomer: Ticket) -> Iterator[Ticket]:
        """Those that would be let in before one that joined now, were there enough for all and nobody to help."""
        for each in self._classes[: newcomer.priority]:
            yield from each.all()
        yield from self._classes[newcomer.priority].ahead_of(newcomer)

    def debt_tokens(self, newcomer: Ticket | Newcomer) -> float:
        """What of its class others get before its tenant has a turn again, in cost tokens."""
        return self._classes[newcomer.priority].debt_tokens(newcomer)

    def places_of(self, tenant: str) -> list[int]:
        """How many of it wait, by priority."""
        return [each.places_of(tenant) for each in self._classes]

    def newest_below(self, newcomer: Ticket | Newcomer, is_eligible: Choice) -> Ticket | None:
        """The newest ticket of the lowest class below the newcomer's that has one."""
        newest = (each.newest(is_eligible) for each in reversed(self._classes[newcomer.priority + 1 :]))
        return next((ticket for ticket in newest if ticket is not None), None)

    def newest_of_the_greediest(self, newcomer: Ticket | Newcomer, is_eligible: Choice) -> Ticket | None:
        """Of the newcomer's class, as `FairClass` has it."""
        return self._classes[newcomer.priority].newest_of_the_greediest(newcomer, is_eligible)

    def newest_of_the_longer_lane(self, newcomer: Ticket | Newcomer, is_eligible: Choice) -> Ticket | None:
        """Of the newcomer's class, as `FairClass` has it."""
        return self._classes[newcomer.priority].newest_of_the_longer_lane(newcomer, is_eligible)

    def _to_help(self, now: float) -> Ticket | None:
        """The head of the lane that was longest not helped of those that stand still, if it is the turn of such."""
        if self._since_help < AGED_EVERY - 1 or now < self._moves_until:
            return None
        still = [lane for each in self._classes for lane in each.standing_still(now)]
        if not still:
            self._moves_until = min(each.moves_until(now) for each in self._classes)
            return None
        return min(still, key=lambda lane: (lane.unhelped_since, lane.helps)).head


def _newest(lanes: Iterable[_Lane], is_eligible: Choice) -> Ticket | None:
    number, newest = 0, None
    for lane in lanes:
        for ticket in reversed(lane.tickets):
            if lane.tickets[ticket] < number:
                break
            if is_eligible(ticket):
                number, newest = lane.tickets[ticket], ticket
                break
    return newest


def _until(latest: float, turns: Iterable[tuple[float, Ticket]]) -> Iterator[Ticket]:
    return (ticket for _, ticket in takewhile(lambda turn: turn[0] <= latest, turns))
