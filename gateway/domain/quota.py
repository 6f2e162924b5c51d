"""What a tenant may take in a minute, and at once: what is charged, given back and trued up, with `now` handed in.

Each quantity is a bucket that leaks: what is used goes away at `limit` a minute, and what would go above `limit` is not
let in. So a tenant that was quiet may take a whole minute's worth at once, and in any T seconds no more is let in than
limit + limit * T / 60. What a request is charged is held, and does not leak, until it is sent; so one that never was
sent gives back exactly what it took.

The library `limits` was looked at (5.8): it reads `time.time` itself, and has no way to give back or true up what was
charged.

`Quota` is what another place to count in has to offer too: `enter` and `leave`, `charge`, `spend`, `release` and
`true_up`. Only bill.py calls them.
"""

from enum import IntEnum
from math import inf
from typing import NamedTuple

_MINUTE_SECONDS = 60.0
_ROUNDING = 1e-6  # of sums of floats: who comes back when told is let in


class Quantity(IntEnum):
    """What is counted; all but the last by the minute."""

    REQUESTS = 0
    TOKENS = 1
    IMAGES = 2
    PIXELS = 3
    CONCURRENCY = 4

    @property
    def label(self) -> str:
        """In metrics and headers."""
        return self.name.lower()


class Amounts(NamedTuple):
    """So much of each quantity that is counted by the minute. Tokens are those of the prompt, images included."""

    requests: int = 0
    tokens: int = 0
    images: int = 0
    pixels: int = 0


class QuotaLimits(NamedTuple):
    """In the order of `Quantity`; None: as much as one likes."""

    requests: int | None = None
    tokens: int | None = None
    images: int | None = None
    pixels: int | None = None
    concurrency: int | None = None


class Shortage(NamedTuple):
    """Why a charge was not taken. After `wait_seconds` it would be, if nothing else came; infinite: never."""

    quantity: Quantity
    limit: int
    asked: int
    used: int
    wait_seconds: float


class Level(NamedTuple):
    """How a quantity stands: `reset_seconds` until nothing of it is used, if nothing else came."""

    quantity: Quantity
    limit: int
    remaining: int
    reset_seconds: float


class _Bucket:
    """One quantity: what was spent and leaks, and what is held and does not."""

    __slots__ = ("_at", "_held", "_per_second", "_spent", "index", "limit", "quantity", "taken")

    def __init__(self, quantity: Quantity, limit: int) -> None:
        self.quantity = quantity
        self.index = int(quantity)  # quicker than the member itself
        self.limit = limit
        self._per_second = limit / _MINUTE_SECONDS
        self._spent = 0.0
        self._held = 0
        self._at = 0.0
        self.taken = 0

    def used(self, now: float) -> float:
        return self._leaked(now) + self._held

    def shortage(self, now: float, asked: int) -> Shortage | None:
        used = self.used(now)
        beyond = used + asked - self.limit
        if beyond <= _ROUNDING:
            return None
        wait_seconds = inf if asked > self.limit else beyond / self._per_second
        return Shortage(self.quantity, self.limit, asked, round(used), wait_seconds)

    def level(self, now: float) -> Level:
        used = self.used(now)
        return Level(self.quantity, self.limit, max(0, int(self.limit - used + _ROUNDING)), used / self._per_second)

    def hold(self, amount: int) -> None:
        self._held += amount
        self.taken += amount

    def spend(self, now: float, amount: int) -> None:
        self.taken += amount
        self.take_for_others(now, amount)

    def take_for_others(self, now: float, amount: int) -> None:
        self._spent = max(0.0, self._leaked(now) + amount)
        self._at = max(now, self._at)

    def give_back(self, now: float, amount: int, spent_at: float) -> None:
        """Of what was spent then: less what may have leaked since, for that others have had."""
        given = max(0.0, amount - self._per_second * (now - spent_at))
        self.taken -= round(given)
        self._spent = max(0.0, self._leaked(now) - given)
        self._at = max(now, self._at)

    def _leaked(self, now: float) -> float:
        return max(0.0, self._spent - self._per_second * max(0.0, now - self._at))


class Quota:
    """Of one tenant, or of those who share one. All times are of one clock, in seconds."""

    __slots__ = ("_buckets", "_inside", "limits")

    def __init__(self, limits: QuotaLimits) -> None:
        self.limits = limits
        self._inside = 0
        by_the_minute = zip(Quantity, limits[: Quantity.CONCURRENCY], strict=False)
        self._buckets = [_Bucket(quantity, limit) for quantity, limit in by_the_minute if limit is not None]

    def enter(self) -> Shortage | None:
        """A request more is inside; None: it may be."""
        most = self.limits.concurrency
        if most is not None and self._inside >= most:
            return Shortage(Quantity.CONCURRENCY, most, 1, self._inside, 0.0 if most else inf)
        self._inside += 1
        return None

    def leave(self) -> None:
        self._inside -= 1

    def charge(self, now: float, amounts: Amounts) -> Shortage | None:
        """Hold all of it, and say None; or nothing of it, and say of what there is too little for the longest."""
        worst = None
        for bucket in self._buckets:
            shortage = bucket.shortage(now, amounts[bucket.index]) if amounts[bucket.index] else None
            if shortage is not None and (worst is None or shortage.wait_seconds > worst.wait_seconds):
                worst = shortage
        if worst is None:
            for bucket in self._buckets:
                bucket.hold(amounts[bucket.index])
        return worst

    def spend(self, now: float, amounts: Amounts) -> None:
        """What was held is used now, and leaks."""
        for bucket in self._buckets:
            bucket.hold(-amounts[bucket.index])
            bucket.spend(now, amounts[bucket.index])

    def release(self, amounts: Amounts) -> None:
        """What was held is not used."""
        for bucket in self._buckets:
            bucket.hold(-amounts[bucket.index])

    def true_up(self, now: float, spent: Amounts, actual: Amounts, spent_at: float) -> None:
        """What was spent then was really so much. More may bring it above the limit: then the next ones wait for it."""
        for bucket in self._buckets:
            more = actual[bucket.index] - spent[bucket.index]
            if more > 0:
                bucket.spend(now, more)
            elif more < 0:
                bucket.give_back(now, -more, spent_at)

    @property
    def taken(self) -> Amounts:
        """All that was taken here since the start, less what was given back."""
        amounts = dict.fromkeys(range(len(Amounts._fields)), 0) | {each.index: each.taken for each in self._buckets}
        return Amounts(*amounts.values())

    def take_for_others(self, now: float, amounts: Amounts) -> None:
        """So much was taken at other gateways since the last time, or given back."""
        for bucket in self._buckets:
            bucket.take_for_others(now, amounts[bucket.index])

    def levels(self, now: float) -> list[Level]:
        """Of each quantity by the minute that has a limit."""
        return [bucket.level(now) for bucket in self._buckets]

    def used_shares(self, now: float) -> dict[Quantity, float]:
        """Of each quantity that has a limit; above 1 where more was used than had been charged."""
        shares = {bucket.quantity: bucket.used(now) / bucket.limit for bucket in self._buckets}
        if self.limits.concurrency:
            shares[Quantity.CONCURRENCY] = self._inside / self.limits.concurrency
        return shares
