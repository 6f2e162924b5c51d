"""What tenants take of their minute at one gateway, told to the others: each counts it as if it had come to itself.

Told a few times a second, so a tenant can have, through several gateways at once, no more above its limit than what it
asks of the others within such a moment. In silence each gateway counts for itself, and tells it all afterwards; what a
call added whose answer was lost is told twice, and a charge that is given back after a long wait is given back whole at
the others, where part of it has leaked: both are gone with the minute.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol

from gateway.domain.quota import Amounts, Quota
from gateway.ledger.shared import StoreError

_log = logging.getLogger(__name__)
_NOTHING = Amounts()

Taken = Mapping[str, Amounts]
"""By the name of the tenant."""


class Sums(NamedTuple):
    """What all gateways have taken since the store began; another `beginning` is another one."""

    beginning: str
    totals: Taken


class QuotaStore(Protocol):
    """Where all gateways add up what tenants took."""

    async def add(self, taken: Taken) -> Sums:
        """With this included. Raises StoreError, soon."""
        ...

    async def close(self) -> None: ...


class SharedQuotas:
    """`quotas` are those of now, by the name of the tenant; names have to be the same at all gateways."""

    def __init__(
        self,
        quotas: Callable[[], Iterable[tuple[str, Quota]]],
        store: QuotaStore,
        interval_seconds: float,
        clock: Callable[[], float],
    ) -> None:
        self._quotas = quotas
        self._store = store
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._told: dict[str, Amounts] = {}
        self._sums = Sums("", {})
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="quotas")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        await self._store.close()

    async def _run(self) -> None:
        while True:
            try:
                await self.tell()
            except Exception:  # noqa: BLE001 - or the quotas would be each gateway's own without a word
                _log.exception("quotas could not be shared")
            await asyncio.sleep(self._interval_seconds)

    async def tell(self) -> None:
        """Once. What could not be told is told the next time."""
        taken = {name: (quota, quota.taken) for name, quota in self._quotas()}
        fresh = {name: _less(all_of_it, self._told.get(name, _NOTHING)) for name, (_, all_of_it) in taken.items()}
        try:
            sums = await self._store.add({name: amounts for name, amounts in fresh.items() if any(amounts)})
        except StoreError as error:
            _log.debug("quotas are not shared just now: %s", error)
            return
        before, self._sums = self._sums, sums
        # Of tenants that are gone nothing is kept: one that comes back has taken nothing yet.
        self._told = {name: all_of_it for name, (_, all_of_it) in taken.items()}
        if before.beginning != sums.beginning:
            return  # nobody knows how old that is, nor what was lost
        for name, (quota, _) in taken.items():
            all_took = _less(sums.totals.get(name, _NOTHING), before.totals.get(name, _NOTHING))
            others = _less(all_took, fresh[name])
            if any(others):
                quota.take_for_others(self._clock(), others)


def _less(amounts: Amounts, other: Amounts) -> Amounts:
    return Amounts(*(one - two for one, two in zip(amounts, other, strict=True)))
