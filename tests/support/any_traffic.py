"""Any traffic before one budget, and what must hold whatever comes and however the line is set up.

Driven by hypothesis, or by dice a million times. The rules are read off the outside where they can be: what is held,
who waits, in which order the line would be looked at in the moment in which somebody is let in.
"""

import random
import sys
from collections import Counter
from collections.abc import Mapping
from copy import copy
from typing import NamedTuple

import pytest

from gateway.domain.admission import Admission
from gateway.domain.decision import Decision, Refusal, Verdict
from gateway.domain.forecast import Forecast
from gateway.domain.holdings import Holdings
from gateway.domain.order import AGED_EVERY, AGING_SECONDS
from gateway.domain.outcome import Reason
from gateway.domain.priority import Priority
from gateway.domain.quantities import TO_FIRST_TOKEN, Amounts, Resource
from gateway.domain.queue import QueuePolicy
from gateway.domain.slo import ServiceLevel
from gateway.domain.ticket import SMALL_BODY_BYTES, Newcomer, Ticket

BODY_BYTES = (100, SMALL_BODY_BYTES, SMALL_BODY_BYTES + 1, 2 * SMALL_BODY_BYTES)
BLOCKS, SEQUENCES, ENCODER, PIXELS = (
    Resource.KV_BLOCKS,
    Resource.SEQUENCES,
    Resource.ENCODER_TOKENS,
    Resource.PREPROCESS_PIXELS,
)
CAPACITY = {BLOCKS: 20, SEQUENCES: 4, PIXELS: 9}
SHORT_LINE = QueuePolicy(requests=8)
WEIGHTS = {"a": 1.0, "b": 1.0, "c": 4.0}

Lane = tuple[Priority, str, bool]


class Setup(NamedTuple):
    """What the operator sets and what is known of the engine: `capacity` by resource, enforced where it is there."""

    capacity: Mapping[Resource, int] = CAPACITY
    policy: QueuePolicy = SHORT_LINE
    weights: Mapping[str, float] = WEIGHTS
    priorities: tuple[Priority, ...] = tuple(Priority)
    level: ServiceLevel = ServiceLevel()

    @property
    def has_level(self) -> bool:
        """Requests are due: some are refused for coming too late, and passed over until they are."""
        return self.level != ServiceLevel()


SETUPS = {
    "a short line": Setup(),
    "the default line": Setup(policy=QueuePolicy()),
    "one place": Setup(policy=QueuePolicy(requests=1)),
    "no place": Setup(policy=QueuePolicy(requests=0)),
    "few bytes": Setup(policy=QueuePolicy(requests=64, body_bytes=9 * SMALL_BODY_BYTES)),
    "nothing known": Setup(capacity={}),
    "blocks known": Setup(capacity={BLOCKS: 20}),
    "sequences known": Setup(capacity={SEQUENCES: 4}),
    "images known": Setup(capacity={ENCODER: 9, PIXELS: 9}),
    "one tenant": Setup(weights={"": 1.0}),
    "one class": Setup(priorities=(Priority.DEFAULT,)),
    "one tenant and class": Setup(weights={"": 1.0}, priorities=(Priority.BATCH,)),
    "first tokens are due": Setup(level=ServiceLevel(4.0)),
    "answers are due": Setup(capacity={SEQUENCES: 4}, level=ServiceLevel(total_seconds=15.0)),
    "what begins is bounded": Setup(capacity=CAPACITY | dict.fromkeys(TO_FIRST_TOKEN, 400), level=ServiceLevel(4.0)),
    "all is due": Setup(policy=QueuePolicy(), level=ServiceLevel(2.0, 20.0)),
}


class WatchedHoldings(Holdings):
    """Tells of every reservation before it is made."""

    def __init__(self, traffic: "AnyTraffic") -> None:
        super().__init__(tuple(traffic.setup.capacity.get(resource) for resource in Resource))
        self.traffic = traffic

    def try_reserve(self, amounts: Amounts) -> Resource | None:
        if self.shortage(amounts) is None:
            self.traffic.check_before_admission(amounts)
        return super().try_reserve(amounts)


class AnyTraffic:
    """Requests that come, wait, leave and end; every method is an event, after which `check` must pass."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.now = 0.0
        self.paused_until = 0.0
        self.policy = setup.policy
        self.holdings = WatchedHoldings(self)
        self.forecast = Forecast.of(setup.level)
        self.door = Admission(self.holdings, self.policy, lambda: 0.5, self.forecast)
        self.waiting: list[Ticket] = []
        self.inside: dict[Ticket, Amounts] = {}
        self.overtaken: dict[Ticket, int] = {}
        self.turned: dict[Lane, float] = {}
        self.past_the_still = 0
        self.admitted = self.displaced = self.expired = self.late = self.refused = self.left = self.overtakings = 0

    def arrive(
        self,
        *,
        blocks: int,
        sequences: int,
        pixels: int,
        cost: int,
        wait: float,
        body_bytes: int,
        tenant: int,
        priority: int,
        is_return: bool,
    ) -> None:
        """`tenant` and `priority` are any numbers: of those that the setup has."""
        names, priorities = list(self.setup.weights), self.setup.priorities
        one = Ticket(
            Amounts(blocks, sequences, pixels, pixels).with_prefill(cost),
            self.now,
            self.now + wait,
            body_bytes,
            cost,
            is_return=is_return,
            priority=priorities[priority % len(priorities)],
            tenant=names[tenant % len(names)],
            weight=self.setup.weights[names[tenant % len(names)]],
            first_token_by=self.now + self.setup.level.first_token_seconds,
            answer_by=self.now + self.setup.level.total_seconds,
            likely_tokens=cost,
        )
        at_the_door = Newcomer(
            body_bytes, is_return, one.priority, one.tenant, one.weight, one.first_token_by, one.answer_by
        )
        if (refusal := self.door.would_refuse(at_the_door, self.now)) is not None:
            self.turned_away(refusal)
            return
        foretold = self.door.would_decide(copy(one), self.now).decision
        decision = self.door.offer(one, self.now)
        if decision is Verdict.WAITING:
            self.waiting.append(one)
            self.overtaken[one] = 0
            assert foretold == self.tick(newcomer=one).get(one, Verdict.WAITING)
            return
        assert foretold == decision
        if decision is Verdict.ADMITTED:
            assert not self.waiting
            self.let_in(one)
        else:
            self.turned_away(decision)

    def turned_away(self, refusal: Refusal) -> None:
        """Not unless others wait, or were promised the places that there are; with a time to come back, or told that
        there is none.
        """
        if refusal.reason is Reason.WOULD_MISS_DEADLINE:
            self.came_too_late(refusal)
            return
        assert self.waiting or self.door.statistics(self.now).promised or not self.policy.requests
        assert 0.0 < refusal.advice.seconds <= 60.0
        assert refusal.advice.is_promise or refusal.advice.seconds == 60.0
        self.refused += 1

    def came_too_late(self, refusal: Refusal) -> None:
        """Only where something is due, never one that would be alone, and there is no use in coming back."""
        assert self.setup.has_level
        assert self.waiting or any(each.sequences for each in self.inside.values())
        assert not refusal.advice.is_promise
        self.late += 1

    def let_in(self, one: Ticket) -> None:
        assert self.now >= self.paused_until
        self.inside[one] = one.amounts
        self.admitted += 1

    def end(self, index: int) -> None:
        one = list(self.inside)[index % len(self.inside)]
        self.door.give_back(self.inside.pop(one))
        self.tick()

    def grow(self, index: int, blocks: int) -> None:
        """An answer outgrows what was reserved for it."""
        one = list(self.inside)[index % len(self.inside)]
        self.holdings.grow(Amounts(blocks))
        self.inside[one] = self.inside[one]._replace(kv_blocks=self.inside[one].kv_blocks + blocks)

    def decoded(self, index: int) -> None:
        """The images of one, if it has any."""
        one = list(self.inside)[index % len(self.inside)]
        tokens = self.inside[one].image_prefill_tokens
        self.inside[one] = self.inside[one].plus(Amounts(prefill_tokens=tokens, image_prefill_tokens=-tokens))
        self.holdings.grow(Amounts(prefill_tokens=tokens))
        self.door.give_back(Amounts(image_prefill_tokens=tokens))
        self.tick()

    def client_leaves(self, index: int) -> None:
        gone = self.waiting.pop(index % len(self.waiting))
        self.door.withdraw(gone, self.now)
        del self.overtaken[gone]
        self.left += 1
        before = self.door.statistics(self.now)
        with pytest.raises(KeyError):
            self.door.withdraw(gone, self.now)
        assert self.door.statistics(self.now) == before
        self.tick()

    def engine_turns_away(self, seconds: float) -> None:
        self.paused_until = max(self.paused_until, self.now + seconds)
        self.door.pause_until(self.paused_until)

    def paces_show(self, tokens: int, seconds: float) -> None:
        """An answer came, faster or slower than those before."""
        self.forecast.first_token.observe(tokens, seconds)
        self.forecast.token.observe(tokens, seconds, max(1, self.holdings.held(SEQUENCES)))

    def ceiling_moves(self, resource: Resource, share: float) -> None:
        """To a share of what it was first, where it is known at all."""
        whole = self.setup.capacity.get(resource)
        if whole is not None:
            for each in TO_FIRST_TOKEN if resource in TO_FIRST_TOKEN else (resource,):
                self.holdings.set_capacity(each, max(1, int(share * whole)))
            self.tick()

    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.tick()

    def tick(self, newcomer: Ticket | None = None) -> dict[Ticket, Decision]:
        before = list(self.waiting)
        decided = dict(self.door.tick(self.now))
        for each, decision in decided.items():
            self.waiting.remove(each)
            del self.overtaken[each]
            if decision is Verdict.ADMITTED:
                self.let_in(each)
            elif decision.reason is Reason.DEADLINE_PASSED:
                assert each.deadline <= self.now
                self.expired += 1
            elif decision.reason is Reason.WOULD_MISS_DEADLINE:
                assert each.is_due
                assert not decision.advice.is_promise
                self.late += 1
            else:
                check_displacement(each, newcomer, decision.reason, before)
                self.displaced += 1
        assert all(each.leaves_by > self.now for each in self.waiting)
        return decided

    def line(self) -> list[Ticket]:
        return list(self.door._queue.candidates(self.now))

    def check_before_admission(self, amounts: Amounts) -> None:
        """Somebody fits and is about to be let in: does it, past whom, and may it?"""
        for resource, amount in zip(Resource, amounts, strict=True):
            held, capacity = sum(each[resource] for each in self.inside.values()), self.holdings.capacity[resource]
            assert not amount or not held or capacity is None or held + amount <= capacity
        self.check_that_images_begin_last(amounts)
        line = self.line()
        if not line or self.setup.has_level:  # then those that are lost may be passed over
            return
        admitted = next(each for each in line if each.amounts is amounts)
        first, short = line[0], self.holdings.shortage(line[0].amounts)
        if admitted is not first:
            assert short is not None, "the next one fits"
            self.overtakings += 1
        for ahead in line[: line.index(admitted)]:
            assert self.overtaken_tokens(ahead) <= ahead.cost_tokens
        if short is not None and amounts[short]:
            self.overtaken[first] += admitted.cost_tokens
            assert self.overtaken[first] <= self.overtaken_tokens(first) + admitted.cost_tokens <= first.cost_tokens
        self.check_aging(first)
        self.turned[lane_of(admitted)] = self.now

    def check_that_images_begin_last(self, amounts: Amounts) -> None:
        """What has any is let in only where it has room beside all that is on its way to the first token."""
        on_the_way = sum(each[resource] for each in self.inside.values() for resource in TO_FIRST_TOKEN)
        capacity = self.holdings.capacity[Resource.PREFILL_TOKENS]
        if amounts.preprocess_pixels and on_the_way and capacity is not None:
            assert on_the_way + amounts.image_prefill_tokens <= capacity

    def check_aging(self, first: Ticket) -> None:
        """At most three in a row are let in while a lane stands still and the next is not of such a one."""
        since: dict[Lane, float] = {}
        for each in self.door_waiting():
            since[lane_of(each)] = min(each.arrived, since.get(lane_of(each), self.now))
        still = {
            lane
            for lane, arrived in since.items()
            if self.now - max(arrived, self.turned.get(lane, 0.0)) >= AGING_SECONDS
        }
        self.past_the_still = self.past_the_still + 1 if still and lane_of(first) not in still else 0
        assert self.past_the_still < AGED_EVERY

    def overtaken_tokens(self, each: Ticket) -> int:
        return self.door._queue.overtaken_tokens(each)

    def door_waiting(self) -> list[Ticket]:
        return [entry[2] for entry in self.door._queue._by_deadline]

    def check(self) -> None:
        self.check_books()
        self.check_bounds()
        self.check_that_nobody_waits_for_nothing()

    def check_books(self) -> None:
        held = self.holdings.statistics().held
        assert held == tuple(sum(each[resource] for each in self.inside.values()) for resource in Resource)
        statistics = self.door.statistics(self.now)
        assert statistics.queue_depth == len(self.waiting)
        assert statistics.queue_bytes == sum(each.body_bytes for each in self.waiting)
        assert statistics.queue_cost_tokens == sum(each.cost_tokens for each in self.waiting)
        dues = [each.leaves_by for each in self.waiting]
        if dues and self.now < self.paused_until:
            dues.append(self.paused_until)
        assert self.door.next_deadline == min(dues, default=None)

    def check_bounds(self) -> None:
        large = [each.body_bytes for each in self.waiting if each.body_bytes > SMALL_BODY_BYTES]
        assert len(self.waiting) <= self.policy.requests
        assert not self.waiting or self.policy.requests
        assert len(large) <= self.policy.large_requests
        assert sum(each.body_bytes for each in self.waiting) <= self.policy.body_bytes
        assert len(large) <= 1 or sum(large) <= self.policy.large_body_bytes
        assert all(self.overtaken_tokens(each) <= each.cost_tokens for each in self.waiting)

    def check_that_nobody_waits_for_nothing(self) -> None:
        """The next is short of something; and no text fits where only images are short, of what texts never take."""
        line = self.line()
        assert len(set(line)) == len(line)
        assert set(line) <= set(self.waiting)
        assert bool(line) == bool(self.waiting)
        assert sorted(map(id, self.door._queue.in_turn())) == sorted(map(id, self.waiting))
        if self.now < self.paused_until or self.setup.has_level:
            return
        shortages = [self.holdings.shortage(each.amounts) for each in line]
        assert not line or shortages[0] is not None
        for position, (each, short) in enumerate(zip(line[:8], shortages, strict=False)):
            if short is None and not each.is_image:
                assert set(shortages[:position]) - {None, Resource.PREPROCESS_PIXELS}

    @property
    def summary(self) -> str:
        return (
            f"{self.admitted} admitted ({self.overtakings} past others), {self.displaced} displaced, "
            f"{self.expired} waited in vain, {self.late} too late, {self.refused} refused, "
            f"{self.left} left: every check held"
        )

    def empty(self) -> None:
        """All work ends: then everybody was let in, and nothing is held."""
        self.time_passes(max(0.0, self.paused_until - self.now))
        while self.inside:
            self.end(0)
            self.check()
        assert not self.waiting
        assert not self.overtaken
        assert not any(self.holdings.statistics().held)


def lane_of(each: Ticket) -> Lane:
    return each.priority, each.tenant, each.is_image


def check_displacement(loser: Ticket, newcomer: Ticket | None, reason: Reason, line: list[Ticket]) -> None:
    """A more urgent one took its place, or one of its class whose tenant has less than the loser's, by weight."""
    assert newcomer is not None
    assert not loser.keeps_place
    if reason is Reason.SHED_PRIORITY:
        assert (
            newcomer.priority
            < loser.priority
            >= max((each.priority for each in line if may_go(each, newcomer)), default=0)
        )
        return
    assert reason is Reason.QUEUE_FULL
    assert newcomer.priority == loser.priority
    if newcomer.tenant == loser.tenant:
        lanes = Counter(
            each.is_image for each in line if (each.priority, each.tenant) == (loser.priority, loser.tenant)
        )
        assert newcomer.is_image is not loser.is_image
        assert lanes[newcomer.is_image] < lanes[loser.is_image]
        return
    places = Counter(each.tenant for each in line if each.priority == loser.priority)
    assert places[newcomer.tenant] / newcomer.weight < places[loser.tenant] / loser.weight


def may_go(each: Ticket, newcomer: Ticket) -> bool:
    """Its body is not smaller than the newcomer's, so that its going is enough, and its place was not kept for it."""
    return each.body_bytes >= newcomer.body_bytes and each is not newcomer and not each.keeps_place


def roll(traffic: AnyTraffic, dice: random.Random) -> None:
    """One event that a client, the engine or the clock could cause."""
    what = dice.random()
    if what < 0.5:
        pixels = dice.choice([0, 0, 2, 9, 12])
        traffic.arrive(
            blocks=dice.choice([0, 1, 3, 8, 19, 30]),
            sequences=dice.choice([1, 1, 1, 2, 5]),
            pixels=pixels,
            cost=dice.choice([1, 10, 50, 300]),
            wait=dice.uniform(0.0, 40.0),
            body_bytes=dice.choice(BODY_BYTES),
            tenant=dice.choice([0, 0, 0, 0, 1, 2]),
            priority=dice.choice([0, 1, 2, 3, 2, 2]),
            is_return=dice.random() < 0.3,
        )
    elif what < 0.83:
        if traffic.inside:
            traffic.end(dice.randrange(100))
    elif what < 0.85:
        if traffic.inside:
            index = dice.randrange(100)
            traffic.decoded(index)
            traffic.grow(index, dice.choice([1, 4]))
    elif what < 0.9:
        if traffic.waiting:
            traffic.client_leaves(dice.randrange(100))
    elif what < 0.94:
        roll_for_the_engine(traffic, dice)
    else:
        traffic.time_passes(dice.expovariate(0.4))


def roll_for_the_engine(traffic: AnyTraffic, dice: random.Random) -> None:
    """One thing that is seen of it."""
    what = dice.choice(["turns away", "shows its pace", "moves its ceiling"])
    if what == "turns away":
        traffic.engine_turns_away(dice.expovariate(1.0))
    elif what == "shows its pace":
        traffic.paces_show(dice.randint(1, 900), dice.expovariate(2.0))
    else:
        traffic.ceiling_moves(dice.choice([*Resource]), dice.uniform(0.25, 1.0))


def run(setup: Setup, events: int, seed: int) -> AnyTraffic:
    """So many events, each of them followed by every check; in the end all go."""
    traffic, dice = AnyTraffic(setup), random.Random(seed)
    for _ in range(events):
        roll(traffic, dice)
        traffic.check()
    traffic.empty()
    return traffic


def main(events: int, seed: int) -> None:
    """So many events, the setups share them."""
    for name, setup in SETUPS.items():
        share = events // len(SETUPS)
        print(f"{name}: {share} events: {run(setup, share, seed).summary}", flush=True)


if __name__ == "__main__":
    main(events=int(sys.argv[1]), seed=int(sys.argv[2]))
