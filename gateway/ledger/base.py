"""The interface behind which holdings live: in this process, or shared by many gateways.

Whatever the number of gateways, deciding is synchronous against *this process's share*. A shared ledger borrows and
returns shares in chunks in the background, so the shares never sum to more than there is, and no admission waits for
a network.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from gateway.domain.holdings import HoldingsStatistics
from gateway.domain.quantities import Amounts, Resource
from gateway.domain.shares_held import Waiting


class SharedStanding(NamedTuple):
    """What a gateway knows of the others before the same engine: what they hold, how many of their requests wait, how
    many gateways there are with this one; and how often the store has failed, and whether a fixed share is used for
    that.
    """

    others_hold: Amounts
    others_depth: int
    gateways: int
    failures: int
    is_cut_off: bool


class Ledger(Protocol):
    """Holdings of one engine, as one gateway process sees them."""

    @property
    def capacity(self) -> tuple[int | None, ...]:
        """The share of each resource that this process has; None: not enforced."""
        ...

    def held(self, resource: Resource) -> int:
        """What this process holds of it."""
        ...

    def shortage(self, amounts: Amounts) -> Resource | None:
        """What of it this process's share has too little of now; None: it all fits."""
        ...

    def try_reserve(self, amounts: Amounts) -> Resource | None:
        """Take `amounts` from this process's share (None), or nothing and say what was short. Never waits."""
        ...

    def give_back(self, amounts: Amounts) -> None:
        """Raises ValueError if that is more than this process holds."""
        ...

    def grow(self, amounts: Amounts) -> None:
        """Hold more, fitting or not."""
        ...

    def set_capacity(self, resource: Resource, capacity: int | None) -> None:
        """What the engine has in all (not this process's share); None: not enforced."""
        ...

    async def start(self, on_more: Callable[[], None], waiting: Callable[[], Waiting]) -> None:
        """Begin whatever runs in the background. `on_more` is called when the share grew, so waiters may fit now;
        `waiting` tells who waits here.
        """
        ...

    async def stop(self) -> None:
        """Give back the share and end what runs in the background."""
        ...

    def statistics(self) -> HoldingsStatistics:
        """Share and holdings of this process."""
        ...

    def whole(self) -> HoldingsStatistics:
        """What the engine has in all, and what all gateways hold of it; of the others, with what waits there."""
        ...

    @property
    def standing(self) -> SharedStanding | None:
        """None: this gateway is alone before its engine."""
        ...
