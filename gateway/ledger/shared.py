"""The ledger of one of many gateways before an engine: it decides against its share, and asks for more behind that.

No request ever waits for the store. A task tells it every tenth of a second or so what is held and wanted, and takes
what it answers; what a share may be is domain/shares.py's, and what happens in silence domain/shares_held.py's.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from gateway.domain.holdings import Holdings, HoldingsStatistics
from gateway.domain.quantities import Amounts, Capacity, Resource
from gateway.domain.shares import SHARED, Answer, Call
from gateway.domain.shares_held import Share, Waiting
from gateway.ledger.base import SharedStanding

_log = logging.getLogger(__name__)
_RESOURCES = tuple(Resource)


class StoreError(Exception):
    """The store did not answer, or not in time."""


class ShareStore(Protocol):
    """Where the shares of one upstream are kept."""

    async def beat(self, call: Call) -> Answer | None:
        """Raises StoreError, soon. None: a later call was there before."""
        ...

    async def leave(self, owner: str) -> None:
        """Give all of it back. Raises StoreError."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Sharing:
    """How a gateway shares: under which name, how often it tells, and how many it takes there to be at first."""

    owner: str
    interval_seconds: float
    gateways: int = 1
    log_prefix: str = ""


class SharedLedger(Holdings):
    """Holdings of this process, whose capacity of what is SHARED is its share."""

    __slots__ = ("_clock", "_failures", "_may_be_alone", "_share", "_sharing", "_store", "_task")

    def __init__(self, total: Capacity, store: ShareStore, sharing: Sharing, clock: Callable[[], float]) -> None:
        super().__init__(total)
        self._store = store
        self._sharing = sharing
        self._clock = clock
        self._share = Share(sharing.owner, clock(), sharing.gateways)
        self._may_be_alone = [True] * len(_RESOURCES)
        self._task: asyncio.Task[None] | None = None
        self._failures = 0
        for i, resource in enumerate(SHARED):
            self._share.set_total(i, total[resource])
        self._apply()

    def shortage(self, amounts: Amounts) -> Resource | None:
        """As in Holdings; but only who has all there is may take more than that."""
        held = self._held
        capacity = self._capacity
        index = 0
        for amount in amounts:
            if amount and held[index] + amount > capacity[index] and (held[index] or not self._may_be_alone[index]):
                return _RESOURCES[index]
            index += 1  # noqa: SIM113 - enumerate costs a tuple for each resource on the hottest path
        return None

    def set_capacity(self, resource: Resource, capacity: int | None) -> None:
        """What the engine has in all. Less counts at once, more once the store has said whose it is."""
        if resource not in SHARED:
            super().set_capacity(resource, capacity)
            return
        self._share.set_total(SHARED.index(resource), capacity)
        self._apply()

    def whole(self) -> HoldingsStatistics:
        held, capacity = list(self._held), list(self.capacity)
        for i, resource in enumerate(SHARED):
            held[resource] += self._share.others_want[i]
            capacity[resource] = self._share.total(i)
        return HoldingsStatistics(tuple(capacity), tuple(held))

    @property
    def standing(self) -> SharedStanding:
        share = self._share
        others = Amounts(*share.others_hold)
        return SharedStanding(others, share.others_depth, share.gateways, self._failures, is_cut_off=share.is_cut_off)

    async def start(self, on_more: Callable[[], None], waiting: Callable[[], Waiting]) -> None:
        self._task = asyncio.create_task(self._run(on_more, waiting), name="shares")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        try:
            await self._store.leave(self._sharing.owner)
        except StoreError as error:
            _log.warning("%sthe share of the budget is not given back: %s", self._sharing.log_prefix, error)
        await self._store.close()

    async def _run(self, on_more: Callable[[], None], waiting: Callable[[], Waiting]) -> None:
        while True:
            try:
                if await self.beat(waiting()):
                    on_more()
            except Exception:  # noqa: BLE001 - the next line says why
                # A share that nobody looks after would be used though it is others' by then.
                _log.exception("%sthe call to the shared budget failed", self._sharing.log_prefix)
                self._failed()
                self._apply()
            await asyncio.sleep(self._sharing.interval_seconds)

    async def beat(self, waiting: Waiting) -> bool:
        """Tell the store, and do what it says. True: there is more than before."""
        asked_at, was_cut_off = self._clock(), self._share.is_cut_off
        call = self._share.call(Amounts(*self._held), waiting)
        try:
            answer = await self._store.beat(call)
        except StoreError as error:
            self._failed()
            if self._share.is_cut_off and not was_cut_off:
                self._tell("the shared budget cannot be reached; a fixed share is used meanwhile: %s", error)
        else:
            if answer is not None:
                self._share.told(answer, asked_at, Amounts(*self._held))
            if was_cut_off and not self._share.is_cut_off:
                self._tell("the budget is shared again%s", "")
        return self._apply()

    def _failed(self) -> None:
        self._failures += 1
        self._share.look(self._clock())

    def _tell(self, text: str, detail: object) -> None:
        _log.warning("%s" + text, self._sharing.log_prefix, detail)

    def _apply(self) -> bool:
        """The share becomes the capacity. True: of something there is more than before."""
        before = [*self._capacity, *self._may_be_alone]
        for i, resource in enumerate(SHARED):
            super().set_capacity(resource, self._share.capacity(i))
            self._may_be_alone[resource] = self._share.may_be_alone(i)
        now = [*self._capacity, *self._may_be_alone]
        return any(more > less for less, more in zip(before, now, strict=True))
