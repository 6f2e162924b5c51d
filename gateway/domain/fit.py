"""Whether a request fits the engine beside what is held there, and taking it.

All resources are plain sums (holdings.py) but one: KV blocks that are reserved for answers are not all needed at once
(unfolding.py). That is looked at only where the plain sum says no.
"""

from collections.abc import Callable, Iterable
from math import inf
from typing import Protocol

from gateway.domain.holdings import HoldingsStatistics
from gateway.domain.quantities import Amounts, Resource
from gateway.domain.ticket import Ticket
from gateway.domain.unfolding import BlocksAhead, Unfolding

_KEPT_SECONDS = 0.1
"""For so long a look is kept; answers grow by a few tokens meanwhile."""
_SPARED_SHARE = 0.8
"""Of the room for growth, what answers leave that cannot outgrow what is held for them; the rest is for prompts that
come out longer than they were counted."""


class Budget(Protocol):
    """What admission takes from: `Holdings`, or a ledger over them."""

    @property
    def capacity(self) -> tuple[int | None, ...]: ...

    def held(self, resource: Resource) -> int: ...

    def shortage(self, amounts: Amounts) -> Resource | None:
        """What of it there is too little of now; None: it all fits."""
        ...

    def try_reserve(self, amounts: Amounts) -> Resource | None:
        """Take all of it (None), or nothing and say what was short."""
        ...

    def grow(self, amounts: Amounts) -> None:
        """Take it, fitting or not."""
        ...

    def give_back(self, amounts: Amounts) -> None: ...

    def statistics(self) -> HoldingsStatistics: ...

    def whole(self) -> HoldingsStatistics:
        """With what other gateways hold and want of the same engine."""
        ...


class Fit:
    """One engine's. `running` tells of the answers that are under way; what else is held is held for ever.

    `growth_room_blocks` are those of the pool that the capacity leaves free for answers that outgrow their reservation.
    None: nothing is known of the pool as a whole, or of how its answers grow, and the plain sum decides.

    `look_again_at`: as answers grow, one that does not fit now may fit then (inf: nobody was refused for that).
    """

    __slots__ = ("_ahead", "_budget", "_looked_at", "_running", "growth_room_blocks", "look_again_at")

    def __init__(self, budget: Budget, running: Callable[[], Iterable[Unfolding]] = tuple) -> None:
        self._budget = budget
        self._running = running
        self._ahead = BlocksAhead()
        self._looked_at = -inf
        self.look_again_at = inf
        self.growth_room_blocks: int | None = None

    def before(self, budget: Budget) -> "Fit":
        """The same answers before another budget."""
        other = Fit(budget, self._running)
        other.growth_room_blocks = self.growth_room_blocks
        return other

    def shortage(self, ticket: Ticket, needs: Amounts, now: float) -> Resource | None:
        """What there is too little of for `needs`, which are the ticket's amounts and what has to stay free."""
        short = self._budget.shortage(needs)
        if short is not Resource.KV_BLOCKS or self.growth_room_blocks is None:
            return short
        if self._fits_in_time(ticket, needs.kv_blocks, now, self.growth_room_blocks):
            return self._budget.shortage(needs._replace(kv_blocks=0))
        self.look_again_at = now + _KEPT_SECONDS
        return short

    def take(self, ticket: Ticket, now: float) -> Resource | None:
        """None: it holds its amounts. Else nothing, and what was short."""
        short = self._budget.try_reserve(ticket.amounts)
        if short is not Resource.KV_BLOCKS or self.growth_room_blocks is None:
            return short
        short = self.shortage(ticket, ticket.amounts, now)
        if short is None:
            self._budget.grow(ticket.amounts)
        return short

    def forget_look(self) -> None:
        """An answer has ended, and what was seen of it would count still."""
        self._looked_at = -inf

    def _fits_in_time(self, ticket: Ticket, blocks: int, now: float, growth_room_blocks: int) -> bool:
        capacity = self._budget.capacity[Resource.KV_BLOCKS]
        assert capacity is not None, "what is not enforced is not short"
        ahead, newcomer = self._look(now), ticket.unfolding(blocks)
        other_blocks = self._budget.held(Resource.KV_BLOCKS) - ahead.held_blocks
        most_blocks = other_blocks + ahead.most_blocks(newcomer)
        # Who cannot outgrow what is held for it needs no room for that.
        outgrowing_blocks = other_blocks + ahead.outgrowing_blocks + ticket.growth.may_outgrow * blocks
        all_blocks = other_blocks + ahead.held_blocks + blocks
        bounded_share = 1 - outgrowing_blocks / all_blocks
        spared_blocks = int(_SPARED_SHARE * bounded_share * growth_room_blocks)
        return most_blocks <= capacity + spared_blocks

    def _look(self, now: float) -> BlocksAhead:
        if not self._looked_at <= now < self._looked_at + _KEPT_SECONDS:
            self._ahead, self._looked_at = BlocksAhead(self._running()), now
        return self._ahead
