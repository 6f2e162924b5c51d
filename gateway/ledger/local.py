"""The ledger of a gateway that is alone before its engine: its share is all there is."""

from collections.abc import Callable

from gateway.domain.holdings import Holdings


class LocalLedger(Holdings):
    """Holdings in this process; nothing to borrow, so nothing runs in the background."""

    __slots__ = ()

    async def start(self, on_more: Callable[[], None]) -> None:
        """Nothing to borrow: more comes free only by what this process itself gives back."""

    async def stop(self) -> None:
        """Nothing to return."""
