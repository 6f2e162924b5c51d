"""When a refused client may come back, and the places kept for those who were told.

The rate is measured, not assumed: how many a second leave the head of the queue while somebody waits. A promise is a
due time by which enough will have left, with a margin for chance, for all who were promised earlier and for this one.
Newcomers may only take places that no promise needs; those who come back as told take theirs. Without that, a place
that falls free in an overload is gone to the next newcomer long before the client that was told to wait. But where
tenants hold several times as many promises as another has of everything, that one is not bound by them: else one with
hundreds, which perhaps never comes back for them, keeps all others out.
"""

from bisect import insort
from collections import Counter
from collections.abc import Sequence
from itertools import takewhile
from math import exp, inf, sqrt
from typing import NamedTuple

from gateway.domain.priority import Priority
from gateway.domain.ticket import Newcomer, Ticket

LONGEST_RETRY_SECONDS = 60.0
_LATEST_SHARE = 1.25
"""So many times as late a client comes back as is told here: the header adds up to a quarter, to spread them."""


class RetryAdvice(NamedTuple):
    """When to come back, in seconds, and whether a place is expected then. Without promise: 60 s, and better not."""

    seconds: float
    is_promise: bool


NO_PROMISE = RetryAdvice(LONGEST_RETRY_SECONDS, is_promise=False)


class DrainRate:
    """Things a second, measured only while it runs (`resume`, `pause`); older seconds weigh less (down to 1/e after
    `memory_seconds`).

    Unknown until five were counted. While nothing comes the rate falls, and stays where it was while paused.
    """

    __slots__ = ("_count", "_counted_at", "_is_running", "_memory_seconds", "_seconds", "_seen", "_updated")

    _ENOUGH = 5

    def __init__(self, memory_seconds: float = 20.0) -> None:
        self._memory_seconds = memory_seconds
        self._is_running = False
        self._updated = self._counted_at = 0.0
        self._count = 0.0
        self._seconds = 0.0
        self._seen = 0

    def resume(self, now: float) -> None:
        if not self._is_running:
            self._is_running = True
            self._updated = self._counted_at = now

    def pause(self, now: float) -> None:
        self._advance(now)
        self._is_running = False

    def count(self, now: float, amount: float = 1.0) -> None:
        """One more left, which is worth `amount`."""
        self._advance(now)
        self._count += amount
        self._counted_at = now
        self._seen += 1

    def idle_seconds(self, now: float) -> float:
        """How long nothing has come; 0 while paused."""
        return now - self._counted_at if self._is_running else 0.0

    def per_second(self, now: float) -> float | None:
        self._advance(now)
        return self._count / self._seconds if self._seen >= self._ENOUGH and self._seconds > 0 else None

    def _advance(self, now: float) -> None:
        elapsed = now - self._updated
        if self._is_running and elapsed > 0:
            kept = exp(-elapsed / self._memory_seconds)
            self._count *= kept
            self._seconds = self._seconds * kept + self._memory_seconds * (1.0 - kept)
            self._updated = now


def departures_to_count_on(places: int) -> float:
    """How many must be expected to leave so that `places` surely do.

    The 99 % bound of a Poisson count, by its normal approximation. Nine in ten come back to a place in simulations of
    exponential service at three times the capacity: what the bound has to spare is used up by the measured rate.
    """
    return places + 2.3 * sqrt(places) if places > 0 else 0.0


class Promise(NamedTuple):
    """Who was told to come back at `due` does so until `latest`. `first_token_by` and `answer_by` are what was asked of
    the request that it was made to: its time runs since it came first.
    """

    due: float
    latest: float
    priority: Priority
    tenant: str
    first_token_by: float = inf
    answer_by: float = inf


class Promises:
    """The places promised and not yet taken, in the order of their due times."""

    __slots__ = ("_held_by", "_made")

    _GRACE_SECONDS = 2.0
    """A client is taken to come back no later than this after its due time; then its place is anyone's."""
    _EARLY_SECONDS = 0.05
    """Clients' timers and ours may differ by so much."""
    _SEVERAL = 4
    """So many times more, on average, before a tenant with less is let past them."""

    def __init__(self) -> None:
        self._made: list[Promise] = []
        self._held_by: Counter[tuple[Priority, str]] = Counter()

    def __len__(self) -> int:
        return len(self._made)

    def copy(self) -> "Promises":
        other = Promises()
        other._made, other._held_by = self._made.copy(), self._held_by.copy()
        return other

    def promise(
        self,
        now: float,
        rate: float | None,
        missing_places: int,
        jitter: float,
        to: Ticket | Newcomer,
        useful_until: float = inf,
    ) -> RetryAdvice:
        """Promise a place, where one can be expected within 60 s and while it is of use to come back, and keep it.

        `missing_places` must fall free beyond those there are before one more waiter has room (negative: so many
        are free already). `jitter`, 0 to 1, spreads clients that were refused together over a tenth of their wait.
        """
        self._expire(now)
        if not rate:
            return NO_PROMISE
        needed = departures_to_count_on(len(self._made) + missing_places)
        seconds = max(needed / rate, self._EARLY_SECONDS) * (1.0 + 0.1 * jitter)
        latest = now + _LATEST_SHARE * seconds + self._EARLY_SECONDS
        if seconds > LONGEST_RETRY_SECONDS or latest > useful_until:
            return NO_PROMISE
        insort(self._made, Promise(now + seconds, latest, to.priority, to.tenant, to.first_token_by, to.answer_by))
        self._held_by[to.priority, to.tenant] += 1
        return RetryAdvice(seconds, is_promise=True)

    def ahead_of(self, priority: Priority) -> int:
        """How many are as urgent or more."""
        return sum(count for (held, _), count in self._held_by.items() if held <= priority)

    def redeem(self, now: float, tenant: str) -> Promise | None:
        """A client says that it comes back: the place that is kept for its tenant, if any, which then is taken.

        Which of its tenant's it is, is not told. It is not one that comes back no more, while there are others.
        """
        index = self._first_due(now, tenant)
        if index is None:
            return None
        promise = self._made.pop(index)
        self._forget([promise])
        return promise

    def is_due(self, now: float, tenant: str) -> bool:
        return self._first_due(now, tenant) is not None

    def bind(self, newcomer: Ticket | Newcomer, waiting: Sequence[int]) -> bool:
        """Unless those that were promised places hold several times as many each as its tenant has, this one among
        them: promised, and `waiting` (how many, by priority). Of one that has nothing as urgent, this one alone counts.

        Where all hold few, everybody comes with nothing, and no promise could be kept.
        """
        has = [
            count + self._held_by[priority, newcomer.tenant] for priority, count in zip(Priority, waiting, strict=True)
        ]
        counted = sum(has) if any(has[: newcomer.priority + 1]) else 0
        return len(self._made) < self._SEVERAL * (counted + 1) * len(self._held_by)

    def leave_room(self, now: float, rate: float | None, free_places: int) -> bool:
        """Whether the promises can still be kept when only `free_places` are free.

        Looks at the first promise that has no free place, at the last, and at every second power between: thousands
        may stand, and each due time was chosen so that those before it hold.
        """
        self._expire(now)
        total = len(self._made)
        if not total:
            return True  # the last that stood has just expired, be there less than no place free
        short = 1
        while free_places + short < total:
            if not self._is_kept(now, rate, free_places + short, short):
                return False
            short *= 2
        return free_places >= total or self._is_kept(now, rate, total, total - free_places)

    def _is_kept(self, now: float, rate: float | None, rank: int, departures: int) -> bool:
        due = self._made[max(rank, 1) - 1].due
        return departures_to_count_on(departures) <= (rate or 0.0) * max(0.0, due - now)

    def _first_due(self, now: float, tenant: str) -> int | None:
        self._expire(now)
        latest = now + self._EARLY_SECONDS
        due = takewhile(lambda each: each.due <= latest, self._made)
        own = [(each.latest < now, index) for index, each in enumerate(due) if each.tenant == tenant]
        return min(own)[1] if own else None

    def _expire(self, now: float) -> None:
        expired = list(takewhile(lambda each: each.due + self._GRACE_SECONDS < now, self._made))
        del self._made[: len(expired)]
        self._forget(expired)

    def _forget(self, gone: list[Promise]) -> None:
        for each in gone:
            key = each.priority, each.tenant
            self._held_by[key] -= 1
            if not self._held_by[key]:
                del self._held_by[key]
