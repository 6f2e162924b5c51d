"""Who is next among those who wait: classes by priority, and inside a class the fair turns of flows.

A flow is one tenant's text or one tenant's images, so neither waits behind a wall of the other. Flows of a class take
turns by start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996), charged in tokens: of two flows that always
wait, neither gets ahead of its share by more than one request of each. Turns are charged when a waiter is let in, so
who leaves the line owes nothing. One in four goes to whoever has waited too long, whatever its class. What fits the
engine is not known here (admission.py).
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from gateway.domain.priority import Priority
from gateway.domain.ticket import FlowKey, Newcomer, Ticket

AGING_SECONDS = 10.0
AGED_EVERY = 4

# A flow's first few may be let in past its head; a look at all of a long line would cost more than it finds.
_DEPTH = 8
_MOST_RESTING = 1024

Choice = Callable[[Ticket], bool]


class _Flow:
    """Tickets of one flow, with the numbers they joined with, and the virtual time at which its next turn is due."""

    __slots__ = ("due", "tickets")

    def __init__(self, due: float) -> None:
        self.due = due
        self.tickets: OrderedDict[Ticket, int] = OrderedDict()

    @property
    def head(self) -> Ticket:
        return next(iter(self.tickets))


class FairClass:
    """The flows of one priority. Virtual time is when the turn that was last taken in order was due."""

    __slots__ = ("_flows", "_resting", "_time")

    def __init__(self) -> None:
        self._flows: dict[FlowKey, _Flow] = {}
        # When the next turn of flows without tickets is due; it only matters while others wait.
        self._resting: OrderedDict[FlowKey, float] = OrderedDict()
        self._time = 0.0

    def join(self, ticket: Ticket, number: int) -> None:
        flow = self._flows.get(ticket.flow)
        if flow is None:
            flow = self._flows[ticket.flow] = _Flow(max(self._time, self._resting.pop(ticket.flow, 0.0)))
        flow.tickets[ticket] = number

    def leave(self, ticket: Ticket) -> int:
        """The number it joined with. Raises KeyError if it does not wait."""
        flow = self._flows[ticket.flow]
        number = flow.tickets.pop(ticket)
        if not flow.tickets:
            del self._flows[ticket.flow]
            self._rest(ticket.flow, flow.due)
        return number

    def admit(self, ticket: Ticket, *, in_turn: bool) -> int:
        """It leaves, and its flow has had a turn; `in_turn` unless one was passed over that wanted the same.

        A turn out of order must not move time past those that still wait for theirs. Where time has gone past a flow
        nevertheless, because what it is short of is not what the others take, it has not earned more than one turn.
        """
        flow = self._flows[ticket.flow]
        reached = flow.due if in_turn else min(each.due for each in self._flows.values())
        self._time = max(self._time, reached)
        flow.due = max(flow.due + ticket.cost_tokens / ticket.weight, self._time)
        return self.leave(ticket)

    def heads(self) -> Iterator[Ticket]:
        return (flow.head for flow in self._flows.values())

    def by_turn(self) -> Iterator[Ticket]:
        """The heads of the flows, then some of those behind each of them."""
        flows = sorted(self._flows.values(), key=lambda flow: flow.due)
        for flow in flows:
            yield flow.head
        for flow in flows:
            yield from islice(flow.tickets, 1, 1 + _DEPTH)

    def has(self, tenant: str) -> bool:
        return (tenant, False) in self._flows or (tenant, True) in self._flows

    def newest(self, is_eligible: Choice) -> Ticket | None:
        return _newest(self._flows.values(), is_eligible)

    def newest_of_the_greediest(self, newcomer: Ticket | Newcomer, is_eligible: Choice) -> Ticket | None:
        """Of the tenant furthest above its share of this class's places; None if the newcomer's is not below its own.

        Shares are by weight, among the tenants that wait and the newcomer's.
        """
        places: Counter[str] = Counter()
        weights: dict[str, float] = {}
        for (tenant, _), flow in self._flows.items():
            places[tenant] += len(flow.tickets)
            weights[tenant] = flow.head.weight
        weights[newcomer.tenant] = newcomer.weight
        share = places.total() * newcomer.weight / sum(weights.values())
        if places[newcomer.tenant] + 1 > share:
            return None
        greediest = max(places, key=lambda tenant: places[tenant] / weights[tenant])
        return _newest((flow for (tenant, _), flow in self._flows.items() if tenant == greediest), is_eligible)

    def _rest(self, key: FlowKey, due: float) -> None:
        if not self._flows:
            self._resting.clear()
        elif due > self._time:
            self._resting[key] = due
            if len(self._resting) > _MOST_RESTING:
                self._resting.popitem(last=False)


class Line:
    """All who wait."""

    __slots__ = ("_classes", "_joined", "_since_aged")

    def __init__(self) -> None:
        self._classes = tuple(FairClass() for _ in Priority)
        self._joined = 0
        self._since_aged = 0

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
        is_aged = self._aged(now) is ticket
        number = self._classes[ticket.priority].admit(ticket, in_turn=in_turn and not is_aged)
        self._since_aged = 0 if is_aged else self._since_aged + 1
        return number

    def candidates(self, now: float) -> Iterator[Ticket]:
        """Who may be let in, the next one first."""
        aged = self._aged(now)
        if aged is not None:
            yield aged
        for each in self._classes:
            for ticket in each.by_turn():
                if ticket is not aged:
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

    def _aged(self, now: float) -> Ticket | None:
        """The one that has waited longest, if that is too long and it is the turn of such."""
        if self._since_aged < AGED_EVERY - 1:
            return None
        heads = (head for each in self._classes for head in each.heads())
        oldest = min(heads, key=lambda head: head.arrived, default=None)
        return oldest if oldest is not None and now - oldest.arrived >= AGING_SECONDS else None


def _newest(flows: Iterable[_Flow], is_eligible: Choice) -> Ticket | None:
    number, newest = 0, None
    for flow in flows:
        ticket = next((each for each in reversed(flow.tickets) if is_eligible(each)), None)
        if ticket is not None and flow.tickets[ticket] > number:
            number, newest = flow.tickets[ticket], ticket
    return newest
