"""How fast each flow of requests gets its turns in the line: a tenant's texts, or its images, of one priority.

Pure. Who looks at the line as it stands sees those ahead of a newcomer, but not those who come later and yet have their
turn before it: others' texts before one's images, a polite tenant's few before a greedy one's many. A flow's own pace
has them in it. It is measured in cost tokens while somebody of the flow waits, and unknown until five had a turn.
"""

from collections import OrderedDict
from copy import copy

from gateway.domain.priority import Priority
from gateway.domain.promise import DrainRate
from gateway.domain.ticket import Newcomer, Ticket

_MOST_FLOWS = 1024
_MEMORY_SECONDS = 8.0

_Key = tuple[Priority, str, bool]


def _key_of(ticket: Ticket | Newcomer) -> _Key:
    return ticket.priority, ticket.tenant, ticket.is_image


class _Flow:
    """How many of it wait, what they cost, and its pace; `owner` may change it."""

    __slots__ = ("cost_tokens", "owner", "pace", "waiting")

    def __init__(self, owner: object) -> None:
        self.owner = owner
        self.waiting = 0
        self.cost_tokens = 0
        self.pace = DrainRate(_MEMORY_SECONDS)

    def copy(self, owner: object) -> "_Flow":
        other = _Flow(owner)
        other.waiting, other.cost_tokens, other.pace = self.waiting, self.cost_tokens, copy(self.pace)
        return other


class FlowPaces:
    """Of all flows that wait, and of the last thousand that waited; `left` follows each `joined`."""

    __slots__ = ("_flows", "_owner")

    def __init__(self) -> None:
        self._owner = object()
        self._flows: OrderedDict[_Key, _Flow] = OrderedDict()

    def joined(self, ticket: Ticket, now: float) -> None:
        flow = self._of(ticket)
        flow.pace.resume(now)
        flow.waiting += 1
        flow.cost_tokens += ticket.cost_tokens
        if len(self._flows) > _MOST_FLOWS:
            self._forget_one()

    def left(self, ticket: Ticket, now: float) -> None:
        """It waits no more, for whatever reason."""
        flow = self._of(ticket)
        flow.waiting -= 1
        flow.cost_tokens -= ticket.cost_tokens
        if not flow.waiting:
            flow.pace.pause(now)
            self._flows.move_to_end(_key_of(ticket))

    def let_in(self, ticket: Ticket, now: float) -> None:
        """One that still waits has its turn."""
        self._of(ticket).pace.count(now, ticket.cost_tokens)

    def seconds(self, newcomer: Ticket | Newcomer, debt_tokens: float, now: float) -> float:
        """How long until those of its flow have had their turns, and others what its tenant owes them; 0 while that is
        not known. Half of that: who is owed something is not always there to take it.
        """
        flow = self._flows.get(_key_of(newcomer))
        tokens_a_second = None if flow is None else flow.pace.per_second(now)
        return (flow.cost_tokens + debt_tokens / 2) / tokens_a_second if flow and tokens_a_second else 0.0

    def copy(self) -> "FlowPaces":
        """With the same paces, which go their own way from now on: each is copied by whoever changes it first."""
        other = FlowPaces()
        other._flows, self._owner = self._flows.copy(), object()
        return other

    def _of(self, ticket: Ticket) -> _Flow:
        """To be changed."""
        key = _key_of(ticket)
        flow = self._flows.get(key)
        if flow is None or flow.owner is not self._owner:
            flow = self._flows[key] = _Flow(self._owner) if flow is None else flow.copy(self._owner)
        return flow

    def _forget_one(self) -> None:
        """Of those that do not wait, the one that waited longest ago."""
        idle = next((key for key, flow in self._flows.items() if not flow.waiting), None)
        if idle is not None:
            del self._flows[idle]
