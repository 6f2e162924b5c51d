import heapq
import random
from itertools import count

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.domain.admission import Admission, Refusal, Verdict
from gateway.domain.errors import Code
from gateway.domain.holdings import Holdings
from gateway.domain.outcome import Reason
from gateway.domain.quantities import Amounts, Resource
from gateway.domain.queue import SMALL_BODY_BYTES, QueuePolicy, Ticket

ADMITTED, WAITING = Verdict.ADMITTED, Verdict.WAITING


def admission(capacity=(10, None, None, None), **policy) -> Admission:
    return Admission(Holdings(capacity), QueuePolicy(**policy), jitter=lambda: 0.0)


def ticket(blocks=1, *, arrived=0.0, wait=30.0, body_bytes=100, is_return=False, **amounts) -> Ticket:
    return Ticket(Amounts(blocks, **amounts), arrived, arrived + wait, body_bytes=body_bytes, is_return=is_return)


def drained(door: Admission, *, until: float, a_second: float) -> None:
    """Let the door see waiters leave at a steady rate, and be full again in the end."""
    steps = int(until * a_second)
    for step in range(steps):
        now = step / a_second
        holder, waiter = ticket(10, arrived=now), ticket(10, arrived=now, wait=1e9)
        assert door.offer(holder, now) is ADMITTED
        assert door.offer(waiter, now) is WAITING
        door.give_back(holder.amounts)
        assert door.tick(now + 1 / a_second) == [(waiter, ADMITTED)]
        door.give_back(waiter.amounts)


class TestOrder:
    def test_what_fits_is_admitted_at_once(self):
        assert admission().offer(ticket(10), 0.0) is ADMITTED

    def test_what_does_not_fit_waits_until_enough_is_given_back(self):
        door, holder, waiter = admission(), ticket(8), ticket(5)
        door.offer(holder, 0.0)
        assert door.offer(waiter, 1.0) is WAITING
        assert door.tick(2.0) == []
        door.give_back(holder.amounts)
        assert door.tick(3.0) == [(waiter, ADMITTED)]

    def test_nobody_overtakes(self):
        door, holder, large, small = admission(), ticket(8), ticket(5), ticket(1)
        door.offer(holder, 0.0)
        door.offer(large, 0.0)
        assert door.offer(small, 0.0) is WAITING
        assert door.tick(1.0) == []
        door.give_back(holder.amounts)
        assert door.tick(2.0) == [(large, ADMITTED), (small, ADMITTED)]

    def test_a_head_larger_than_the_capacity_waits_until_it_is_alone(self):
        door, one, two, giant, after = admission(), ticket(5), ticket(5), ticket(25), ticket(1)
        for each in (one, two, giant, after):
            door.offer(each, 0.0)
        door.give_back(one.amounts)
        assert door.tick(1.0) == []
        door.give_back(two.amounts)
        assert door.tick(2.0) == [(giant, ADMITTED)]
        door.give_back(giant.amounts)
        assert door.tick(3.0) == [(after, ADMITTED)]

    def test_a_client_that_left_makes_way(self):
        door, holder, head, second = admission(), ticket(6), ticket(9), ticket(4)
        for each in (holder, head, second):
            door.offer(each, 0.0)
        door.withdraw(head, 1.0)
        assert door.tick(1.0) == [(second, ADMITTED)]
        assert door.statistics(1.0).queue_depth == 0
        with pytest.raises(KeyError):
            door.withdraw(head, 2.0)


class TestDeadlines:
    def test_who_waited_in_vain_is_refused(self):
        door, holder, waiter = admission(), ticket(10), ticket(5, wait=30.0)
        door.offer(holder, 0.0)
        door.offer(waiter, 0.0)
        assert door.next_deadline == 30.0
        assert door.tick(29.9) == []
        [(refused, refusal)] = door.tick(30.0)
        assert refused is waiter
        assert refusal.reason is Reason.DEADLINE_PASSED
        assert refusal.short is Resource.KV_BLOCKS
        assert door.next_deadline is None
        error = refusal.error(door.policy)
        assert (error.code, error.status) == (Code.SERVER_IS_OVERLOADED, 503)
        assert error.message == (
            "The request waited for its turn in vain, with 0 others still waiting. Short at the engine: kv_blocks. "
            "No place is expected within a minute."
        )

    def test_a_head_that_ran_out_of_time_makes_way(self):
        door, holder, head, second = admission(), ticket(6), ticket(9, wait=5.0), ticket(4)
        for each in (holder, head, second):
            door.offer(each, 0.0)
        [(first_out, refusal), admitted] = door.tick(5.0)
        assert first_out is head
        assert isinstance(refusal, Refusal)
        assert admitted == (second, ADMITTED)


class TestRefusals:
    def test_queue_full(self):
        door = admission(requests=2)
        for each in (ticket(10), ticket(), ticket()):
            door.offer(each, 0.0)
        refusal = door.offer(ticket(), 0.0)
        assert refusal.reason is Reason.QUEUE_FULL
        error = refusal.error(door.policy)
        assert (error.code, error.status, error.reason) == (Code.RATE_LIMIT_EXCEEDED, 429, Reason.QUEUE_FULL)
        assert error.message == (
            "The queue is full: 2 requests wait. Short at the engine: kv_blocks. No place is expected within a minute."
        )
        assert (error.retry_after_seconds, error.is_promise) == (60.0, False)

    def test_places_kept_for_small_bodies(self):
        large = SMALL_BODY_BYTES + 1
        door = admission(requests=4)
        door.offer(ticket(10), 0.0)
        for _ in range(3):
            door.offer(ticket(body_bytes=large), 0.0)
        message = door.offer(ticket(body_bytes=large), 0.0).error(door.policy).message
        assert message.startswith("The queue has no place for this request: 3 of 4 are taken, and the others are kept")
        assert door.offer(ticket(), 0.0) is WAITING

    def test_queue_bytes(self):
        door = admission(body_bytes=1_000)
        door.offer(ticket(10), 0.0)
        door.offer(ticket(body_bytes=900), 0.0)
        refusal = door.offer(ticket(body_bytes=101), 0.0)
        assert refusal.reason is Reason.QUEUE_BYTES
        assert refusal.error(door.policy).message.startswith(
            "Waiting requests hold 900 of 1000 bytes; this one has no room. Short at the engine: kv_blocks."
        )

    @pytest.mark.parametrize(
        ("resource", "reason"),
        [
            (Resource.KV_BLOCKS, Reason.KV_BUDGET),
            (Resource.SEQUENCES, Reason.QUEUE_FULL),
            (Resource.ENCODER_TOKENS, Reason.ENCODER_BUDGET),
            (Resource.PREPROCESS_PIXELS, Reason.PREPROCESS_BUDGET),
        ],
    )
    def test_without_a_queue_the_resource_is_the_reason(self, resource, reason):
        capacity = [None] * 4
        capacity[resource] = 1
        door = admission(capacity, requests=0)
        assert door.offer(Ticket(Amounts(1, 1, 1, 1), 0.0, 30.0), 0.0) is ADMITTED
        refusal = door.offer(Ticket(Amounts(1, 1, 1, 1), 0.0, 30.0), 0.0)
        assert (refusal.reason, refusal.short) == (reason, resource)
        assert refusal.error(door.policy).message.startswith("The engine is busy and this gateway keeps no queue.")


class TestAtTheDoor:
    def test_open_while_nobody_waits(self):
        door = admission(requests=1)
        door.offer(ticket(10), 0.0)
        assert door.would_refuse(100, 0.0) is None

    def test_open_while_there_is_room_behind_the_waiters(self):
        door = admission(requests=2)
        door.offer(ticket(10), 0.0)
        door.offer(ticket(), 0.0)
        assert door.would_refuse(100, 0.0) is None

    def test_closed_when_there_is_none(self):
        door = admission(requests=1)
        door.offer(ticket(10), 0.0)
        door.offer(ticket(), 0.0)
        assert door.would_refuse(100, 0.0).reason is Reason.QUEUE_FULL


class TestPromises:
    def test_a_refusal_names_the_time_at_which_a_place_is_expected(self):
        door = admission(requests=1)
        drained(door, until=20.0, a_second=4.0)
        door.offer(ticket(10), 20.0)
        door.offer(ticket(arrived=20.0), 20.0)
        refusal = door.offer(ticket(), 20.0)
        assert refusal.advice.is_promise
        assert refusal.advice.seconds == pytest.approx((1 + 2.3) / 4.0, rel=0.1)
        error = refusal.error(door.policy)
        assert error.is_promise
        assert error.message.endswith("A place is expected in 0.8 s.")
        assert door.statistics(20.0).promised == 1

    def test_hours_without_waiters_do_not_change_the_rate(self):
        door = admission(requests=1)
        drained(door, until=20.0, a_second=4.0)
        door.offer(ticket(10), 9_000.0)
        door.offer(ticket(arrived=9_000.0), 9_000.0)
        assert door.offer(ticket(), 9_000.0).advice.seconds == pytest.approx((1 + 2.3) / 4.0, rel=0.1)

    def test_a_large_body_is_told_to_wait_until_enough_others_left(self):
        door = admission(body_bytes=1_000)
        drained(door, until=20.0, a_second=4.0)
        door.offer(ticket(10), 20.0)
        for _ in range(4):
            door.offer(ticket(arrived=20.0, body_bytes=250), 20.0)
        refusal = door.offer(ticket(body_bytes=1_000), 20.0)
        assert refusal.reason is Reason.QUEUE_BYTES
        assert refusal.advice.seconds == pytest.approx((4 + 2.3 * 2) / 4.0, rel=0.1)

    def test_newcomers_do_not_take_a_promised_place_but_those_who_return_do(self):
        door = admission(requests=2)
        drained(door, until=20.0, a_second=4.0)
        holder, first, second = ticket(10), ticket(10, arrived=20.0), ticket(10, arrived=20.0)
        for each in (holder, first, second):
            door.offer(each, 20.0)
        due = 20.0 + door.offer(ticket(), 20.0).advice.seconds
        door.give_back(holder.amounts)
        door.tick(due)
        assert door.offer(ticket(arrived=due), due).reason is Reason.QUEUE_FULL
        assert door.would_refuse(100, due).reason is Reason.QUEUE_FULL
        assert door.would_refuse(100, due, is_return=True) is None
        assert door.offer(ticket(arrived=due, is_return=True), due) is WAITING
        assert door.statistics(due).promised == 2

    def test_places_from_which_nobody_is_reached_in_time_are_not_promised(self):
        door = admission(requests=256, wait_seconds=30.0)
        drained(door, until=20.0, a_second=0.5)
        door.offer(ticket(10), 20.0)
        for _ in range(256):
            door.offer(ticket(arrived=20.0), 20.0)
        assert not door.offer(ticket(), 20.0).advice.is_promise


def test_statistics():
    door = admission(requests=3)
    door.offer(ticket(10), 0.0)
    for _ in range(2):
        door.offer(Ticket(Amounts(1), 0.0, 30.0, body_bytes=100, cost_tokens=50), 0.0)
    statistics = door.statistics(1.0)
    assert (statistics.queue_depth, statistics.queue_bytes, statistics.queue_cost_tokens) == (2, 200, 100)
    assert (statistics.promised, statistics.drain_per_second) == (0, None)


class Traffic:
    """Steady Poisson traffic beyond the capacity, on a simulated clock; the promised come back as told."""

    def __init__(self, seed: int, *, load: float, seats: int, service_seconds: float, places: int):
        self.random = random.Random(seed)
        self.door = Admission(Holdings((None, seats, None, None)), QueuePolicy(requests=places), self.random.random)
        self.arrivals_a_second = load * seats / service_seconds
        self.service_seconds = service_seconds
        self.events: list[tuple[float, int, str, Ticket | None]] = []
        self.number = count()
        self.came_back = self.got_in = self.served = 0

    def at(self, when: float, what: str, who: Ticket | None = None) -> None:
        heapq.heappush(self.events, (when, next(self.number), what, who))

    def run(self, seconds: float) -> None:
        self.at(0.0, "arrive")
        while self.events[0][0] < seconds:
            now, _, what, who = heapq.heappop(self.events)
            if who is not None:
                self.door.give_back(who.amounts)
            else:
                self.offer(now, is_return=what == "return")
            for each, decision in self.door.tick(now):
                self.follow(each, decision, now)

    def offer(self, now: float, *, is_return: bool) -> None:
        if not is_return:
            self.at(now + self.random.expovariate(self.arrivals_a_second), "arrive")
        one = Ticket(Amounts(sequences=1), now, now + 30.0, is_return=is_return)
        decision = self.door.offer(one, now)
        if is_return:
            self.came_back += 1
            self.got_in += not isinstance(decision, Refusal)
        self.follow(one, decision, now)

    def follow(self, one: Ticket, decision, now: float) -> None:
        if decision is ADMITTED:
            self.served += 1
            self.at(now + self.random.expovariate(1 / self.service_seconds), "end", one)
        elif isinstance(decision, Refusal) and decision.advice.is_promise:
            self.at(now + decision.advice.seconds + self.random.uniform(0.0, 0.2), "return")


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(("load", "seats", "service_seconds", "places"), [(3.0, 8, 2.0, 16), (1.3, 8, 2.0, 16)])
def test_four_of_five_who_come_back_as_promised_get_in(seed, load, seats, service_seconds, places):
    traffic = Traffic(seed, load=load, seats=seats, service_seconds=service_seconds, places=places)
    traffic.run(200.0)
    assert traffic.came_back > 200
    assert traffic.got_in >= 0.8 * traffic.came_back
    assert traffic.served >= 0.9 * 200.0 * seats / service_seconds


class Line(RuleBasedStateMachine):
    """Any traffic: nobody is lost, overtaken, or admitted beyond the capacity; in the end everybody is gone."""

    capacity = (20, 4, None, None)

    def __init__(self):
        super().__init__()
        self.now = 0.0
        self.holdings = Holdings(self.capacity)
        self.door = Admission(self.holdings, QueuePolicy(requests=6, body_bytes=10_000), jitter=lambda: 0.5)
        self.waiting: list[Ticket] = []
        self.inside: list[Ticket] = []

    def apply(self, decisions):
        for each, decision in decisions:
            if decision is ADMITTED:
                assert each is self.waiting[0]
                self.inside.append(each)
            else:
                assert decision.reason is Reason.DEADLINE_PASSED
                assert each.deadline <= self.now
            self.waiting.remove(each)

    @rule(blocks=st.integers(0, 30), sequences=st.integers(1, 5), wait=st.floats(0, 20), is_return=st.booleans())
    def arrive(self, blocks, sequences, wait, is_return):
        each = ticket(blocks, arrived=self.now, wait=wait, sequences=sequences, is_return=is_return)
        decision = self.door.offer(each, self.now)
        if decision is ADMITTED:
            assert not self.waiting
            self.inside.append(each)
        elif decision is WAITING:
            self.waiting.append(each)
        else:
            assert self.waiting
            assert decision.advice.seconds <= 60.0

    @precondition(lambda self: self.inside)
    @rule(data=st.data())
    def end(self, data):
        each = self.inside.pop(data.draw(st.integers(0, len(self.inside) - 1)))
        self.door.give_back(each.amounts)
        self.apply(self.door.tick(self.now))

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def client_leaves(self, data):
        each = self.waiting.pop(data.draw(st.integers(0, len(self.waiting) - 1)))
        self.door.withdraw(each, self.now)
        self.apply(self.door.tick(self.now))

    @rule(seconds=st.floats(0, 10))
    def time_passes(self, seconds):
        self.now += seconds
        self.apply(self.door.tick(self.now))

    @invariant()
    def books_balance(self):
        held = self.holdings.statistics().held
        assert held == tuple(sum(column) for column in zip(*(t.amounts for t in self.inside), strict=True)) or (
            not self.inside and held == (0, 0, 0, 0)
        )
        assert self.door.statistics(self.now).queue_depth == len(self.waiting)
        assert self.door.next_deadline == min((t.deadline for t in self.waiting), default=None)
        for index in (Resource.KV_BLOCKS, Resource.SEQUENCES):
            holders = [t for t in self.inside if t.amounts[index]]
            assert held[index] <= self.capacity[index] or len(holders) == 1

    @invariant()
    def the_head_waits_for_a_reason(self):
        assert (
            not self.waiting
            or self.holdings.shortage(self.waiting[0].amounts) is not None
            or (self.waiting[0].deadline <= self.now)
        )

    def teardown(self):
        while self.inside:
            self.door.give_back(self.inside.pop().amounts)
            self.apply(self.door.tick(self.now))
        assert not self.waiting
        assert self.holdings.statistics().held == (0, 0, 0, 0)


Line.TestCase.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
TestLine = Line.TestCase
