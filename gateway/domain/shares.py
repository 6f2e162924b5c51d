"""One budget for many gateways: what each may take of it, so that the shares never sum to more than there is.

Here stands what a gateway tells the store and what the store answers, and the store itself as plain values: `ShareBook`
is what ledger/shares.lua does inside Redis, which tests hold to it, call by call. What a gateway makes of the answers
is shares_held.py's.

- **A share is only lowered by its owner.** It first uses less, then says so. An answer that is lost, late or doubled
  can leave some of the budget unused for a while, and never gives it twice.
- **Everybody is due a fair part of what is wanted:** whoever wants less than an even part gets all of it, the others
  get equal parts of the rest, and what nobody wants is divided evenly, to be there before it is asked for. Who has more
  than that gives it back as its requests end, and who has less gets it as soon as it is free.
- **A request that is larger than its gateway's fair part has a turn.** One gateway at a time, in the order in which
  these requests came to be next in their lines: what it needs is set aside before anything is divided, up to all there
  is, until it was let in or left its line.
- **The smallest total wins.** Each gateway says what the engine takes by its own looks; who sees pressure lowers it for
  all, and nobody raises it alone.
- **Silence:** who was not heard for `ttl_ms` on the store's clock is gone, and its share with it. A store that lost
  something, or heard nobody for half of that time, first waits as long until all have told what they keep, and gives
  nothing out meanwhile.
"""

from collections.abc import Sequence
from typing import NamedTuple

from gateway.domain.quantities import Resource

SHARED = (Resource.KV_BLOCKS, Resource.SEQUENCES, Resource.ENCODER_TOKENS)
"""What is divided. The others are paces, which each gateway learns of what the engine does for itself."""
UNKNOWN = -1
"""A total that is not known, and so not enforced."""

PerResource = tuple[int, ...]
"""One number for each of SHARED."""


class Call(NamedTuple):
    """What a gateway tells. `serial` rises with each call of one owner; `seen` is the last number of `calls` that
    it was told.

    `keeps`: what it goes on using of its share. `wants`: what it holds and what waits. `takes`: what the next in its
    line takes, zeros when nobody waits; `next_id` changes when that is another request.
    """

    owner: str
    serial: int
    seen: int
    keeps: PerResource
    holds: PerResource
    wants: PerResource
    takes: PerResource
    next_id: int
    totals: PerResource
    depth: int


class Answer(NamedTuple):
    """What it may use (`shares`), and what it is due (`targets`): it should come down to that. The rest is of all the
    others; `gateways` counts it too.
    """

    calls: int
    gateways: int
    others_depth: int
    shares: PerResource
    targets: PerResource
    totals: PerResource
    others_hold: PerResource
    others_want: PerResource


class Owner(NamedTuple):
    """A gateway as the store knows it. Times are the store's; `next_since` is when its next in line became that."""

    heard_ms: int
    serial: int
    next_since_ms: int
    next_id: int
    depth: int
    shares: PerResource
    holds: PerResource
    wants: PerResource
    takes: PerResource
    totals: PerResource


def fair_parts(total: int, wanted: Sequence[int]) -> list[int]:
    """All of `total`: the smallest wishes first, nobody more than an even part of what is left; then evenly what
    nobody wants.
    """
    parts, left = [0] * len(wanted), total
    order = sorted(range(len(wanted)), key=lambda index: (wanted[index], index))
    for served, index in enumerate(order):
        parts[index] = min(wanted[index], left // (len(order) - served))
        left -= parts[index]
    for served, index in enumerate(order):
        spare = left // (len(order) - served)
        parts[index] += spare
        left -= spare
    return parts


class ShareBook:
    """The store of one upstream. `beat` is one atomic step."""

    def __init__(self, ttl_ms: int) -> None:
        self._ttl_ms = ttl_ms
        self.owners: dict[str, Owner] = {}
        self.count = 0
        self._settled_ms = 0
        self._heard_ms: int | None = None
        self._turn = ("", 0)

    def leave(self, owner: str) -> None:
        """It ended in order: what it had is free."""
        self.owners.pop(owner, None)

    def beat(self, call: Call, now_ms: int) -> Answer | None:
        """None: a call that came after a later one of the same owner, which counts for nothing."""
        before = self.owners.get(call.owner)
        if before is not None and call.serial <= before.serial:
            return None
        self._look_at_the_clock(call, now_ms)
        heard = {name: owner for name, owner in self.owners.items() if now_ms - owner.heard_ms <= self._ttl_ms}
        before = heard.get(call.owner)
        is_same = before is not None and before.next_id == call.next_id
        since_ms = before.next_since_ms if before is not None and is_same else now_ms
        heard[call.owner] = Owner(
            now_ms, call.serial, since_ms, call.next_id, call.depth,
            call.keeps, call.holds, call.wants, call.takes, call.totals,
        )  # fmt: skip
        self.owners = dict(sorted(heard.items()))
        totals = self._totals()
        targets = self._targets(call.owner, totals)
        shares = call.keeps if now_ms < self._settled_ms else self._granted(call, totals, targets)
        self.owners[call.owner] = self.owners[call.owner]._replace(shares=shares)
        return self._answer(call.owner, totals, targets)

    def _look_at_the_clock(self, call: Call, now_ms: int) -> None:
        """Whether others may have shares of which this store knows nothing, or no longer."""
        is_behind = self.count < call.seen
        if is_behind or self._heard_ms is None or not 0 <= now_ms - self._heard_ms <= self._ttl_ms // 2:
            self._settled_ms = now_ms + self._ttl_ms
            self.owners = {name: owner._replace(heard_ms=now_ms) for name, owner in self.owners.items()}
        self._heard_ms = now_ms
        self.count = max(self.count, call.seen) + 1

    def _totals(self) -> PerResource:
        told = [[owner.totals[i] for owner in self.owners.values()] for i in range(len(SHARED))]
        return tuple(min((each for each in of_one if each != UNKNOWN), default=UNKNOWN) for of_one in told)

    def _targets(self, name: str, totals: PerResource) -> PerResource:
        names = list(self.owners)
        fair = [self._parts(i, total, names, {}) for i, total in enumerate(totals)]
        turn = self._turn_among(names, totals, fair)
        if turn is not None:
            aside = [self._aside(self.owners[turn], i) for i in range(len(totals))]
            fair = [self._parts(i, total, names, {turn: min(aside[i], total)}) for i, total in enumerate(totals)]
        return tuple(parts[names.index(name)] for parts in fair)

    @staticmethod
    def _aside(owner: Owner, i: int) -> int:
        """What its next one needs, beside what is held there."""
        return owner.holds[i] + owner.takes[i] if owner.takes[i] else 0

    def _parts(self, i: int, total: int, names: list[str], first: dict[str, int]) -> list[int]:
        """Of one resource, after what is set aside `first`."""
        if total == UNKNOWN:
            return [0] * len(names)
        aside = [first.get(name, 0) for name in names]
        wanted = [max(0, self.owners[name].wants[i] - own) for name, own in zip(names, aside, strict=True)]
        return [own + part for own, part in zip(aside, fair_parts(total - sum(aside), wanted), strict=True)]

    def _turn_among(self, names: list[str], totals: PerResource, fair: list[list[int]]) -> str | None:
        """Whose request that is larger than its fair part is to be let in."""
        large = [
            name
            for index, name in enumerate(names)
            if any(total != UNKNOWN and self.owners[name].takes[i] > fair[i][index] for i, total in enumerate(totals))
        ]
        holder, next_id = self._turn
        if holder in large and self.owners[holder].next_id == next_id:
            return holder
        if not large:
            self._turn = ("", 0)
            return None
        holder = min(large, key=lambda name: (self.owners[name].next_since_ms, name))
        self._turn = (holder, self.owners[holder].next_id)
        return holder

    def _granted(self, call: Call, totals: PerResource, targets: PerResource) -> PerResource:
        """What it keeps, and as much more towards what it is due as is free."""
        granted = []
        for i, total in enumerate(totals):
            used = max(call.keeps[i], call.holds[i])
            taken = sum(max(owner.shares[i], owner.holds[i]) for owner in self.owners.values())
            granted.append(max(call.keeps[i], min(targets[i], used + max(0, total - taken))))
        return tuple(granted)

    def _answer(self, name: str, totals: PerResource, targets: PerResource) -> Answer:
        others = [owner for other, owner in self.owners.items() if other != name]
        return Answer(
            calls=self.count,
            gateways=len(self.owners),
            others_depth=sum(owner.depth for owner in others),
            shares=self.owners[name].shares,
            targets=targets,
            totals=totals,
            others_hold=tuple(sum(owner.holds[i] for owner in others) for i in range(len(SHARED))),
            others_want=tuple(sum(owner.wants[i] for owner in others) for i in range(len(SHARED))),
        )
