"""The ledger of a gateway that is alone before its engine: its share is all there is."""

from collections.abc import Callable

from gateway.domain.holdings import Holdings
from gateway.domain.shares_held import Waiting


class LocalLedger(Holdings):
    """Holdings in this process; nothing to borrow, so nothing runs in the background."""

    __slots__ = ()

    standing = None

    async def start(self, on_more: Callable[[], None], waiting: Callable[[], Waiting]) -> None:
        """Nothing to borrow: more comes free only by what this process itself gives back."""

    async def stop(self) -> None:
        """Nothing to return."""
