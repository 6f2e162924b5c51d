"""One gateway's share of a budget that many have: what it asks of the store, makes of the answers, and does in silence.

While the store answers, it uses what it was given, and comes down to what it is due as its requests end. When the store
has been silent for `LEASE_SECONDS`, which is less than the time after which the store gives its share to others, it
uses no more than its static share: the budget by the number of gateways that were last there. It goes up to that only
`GROW_SECONDS` after the last answer, when the others have come down to theirs; a request larger than that share is then
let in when this gateway holds nothing else.
"""

from typing import NamedTuple

from gateway.domain.quantities import Amounts
from gateway.domain.shares import SHARED, UNKNOWN, Answer, Call, PerResource

TTL_MS = 2_000
"""On the store's clock; the rest are on this gateway's."""
LEASE_SECONDS = 1.2
GROW_SECONDS = 3.0
_FEWER_AFTER_SECONDS = 10.0
"""A store that was emptied counts those who have come back; so that there are fewer is believed only after a while."""

_NOTHING = (0,) * len(SHARED)


class Waiting(NamedTuple):
    """Who waits at a gateway: what all of them want, what the next one takes and which it is, and how many they are."""

    wants: Amounts
    next_takes: Amounts | None
    next_one: object
    depth: int


class Share:
    """Of one gateway at one upstream; `gateways` is how many there are until the store tells. `now` in seconds."""

    __slots__ = (
        "_answered_at",
        "_is_grown",
        "_many_at",
        "_next_id",
        "_next_one",
        "_serial",
        "_shares",
        "_told",
        "_totals",
        "gateways",
        "is_cut_off",
        "owner",
    )

    def __init__(self, owner: str, now: float, gateways: int) -> None:
        self.owner = owner
        self.gateways = gateways
        self.is_cut_off = False
        self._answered_at = self._many_at = now
        self._is_grown = False
        self._shares = list(_NOTHING)
        self._totals = [UNKNOWN] * len(SHARED)
        self._told = Answer(0, gateways, 0, _NOTHING, _NOTHING, tuple(self._totals), _NOTHING, _NOTHING)
        self._serial = self._next_id = 0
        self._next_one: object = None

    def set_total(self, i: int, total: int | None) -> None:
        """What the engine takes in all, as this gateway sees it; `i` is an index of SHARED."""
        self._totals[i] = UNKNOWN if total is None else total

    def call(self, held: Amounts, waiting: Waiting) -> Call:
        """What to tell the store now."""
        if waiting.next_one is not self._next_one:
            self._next_one, self._next_id = waiting.next_one, self._next_id + 1
        self._serial += 1
        next_takes = waiting.next_takes
        return Call(
            owner=self.owner,
            serial=self._serial,
            seen=self._told.calls,
            keeps=tuple(self._shares),
            holds=tuple(held[each] for each in SHARED),
            wants=tuple(held[each] + waiting.wants[each] for each in SHARED),
            takes=_NOTHING if next_takes is None else tuple(next_takes[each] for each in SHARED),
            next_id=self._next_id,
            totals=tuple(self._totals),
            depth=waiting.depth,
        )

    def told(self, answer: Answer, asked_at: float, held: Amounts) -> None:
        """The store's answer to what was asked then."""
        self._told, self._answered_at = answer, asked_at
        self.is_cut_off = self._is_grown = False
        if answer.gateways >= self.gateways or asked_at >= self._many_at + _FEWER_AFTER_SECONDS:
            self.gateways, self._many_at = answer.gateways, asked_at
        for i, each in enumerate(SHARED):
            self._shares[i] = min(answer.shares[i], max(answer.targets[i], held[each]))

    def look(self, now: float) -> None:
        """The store has not answered: whether that is for too long."""
        silent_seconds = now - self._answered_at
        if silent_seconds <= LEASE_SECONDS:
            return
        self.is_cut_off, self._is_grown = True, silent_seconds > GROW_SECONDS
        for i in range(len(SHARED)):
            static = self._static(i)
            self._shares[i] = static if self._is_grown else min(self._shares[i], static)

    def _static(self, i: int) -> int:
        return max(0, self._totals[i]) // self.gateways

    def total(self, i: int) -> int | None:
        """Of all gateways: the smallest that any of them told; None: not enforced."""
        told = UNKNOWN if self.is_cut_off else self._told.totals[i]
        known = [each for each in (self._totals[i], told) if each != UNKNOWN]
        return min(known, default=None)

    def capacity(self, i: int) -> int | None:
        """What this gateway may hold; None: not enforced."""
        total = self.total(i)
        return None if total is None else min(self._shares[i], total)

    def may_be_alone(self, i: int) -> bool:
        """One that is larger than the capacity may have it all, once nothing else is held here."""
        total = self.total(i)
        return total is None or self._shares[i] >= total or self._is_grown

    @property
    def others_hold(self) -> PerResource:
        """What is at the engine of the others'; while cut off, their static shares."""
        if self.is_cut_off:
            return tuple(max(0, total) - self._static(i) for i, total in enumerate(self._totals))
        return self._told.others_hold

    @property
    def others_want(self) -> PerResource:
        """With those that wait there."""
        return self.others_hold if self.is_cut_off else self._told.others_want

    @property
    def others_depth(self) -> int:
        """How many wait there."""
        return 0 if self.is_cut_off else self._told.others_depth
