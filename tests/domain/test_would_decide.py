"""What admission would say of a newcomer: what it then says, and asking changes nothing."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.admission import Admission
from gateway.domain.decision import Prospect, Refusal, Verdict
from gateway.domain.holdings import Holdings
from gateway.domain.priority import Priority
from gateway.domain.quantities import Amounts, Capacity, Resource
from gateway.domain.queue import QueuePolicy
from gateway.domain.ticket import Ticket

CAPACITY = Capacity(100, 8, 1_000)


def ticket(blocks=10, *, sequences=1, pixels=0, now=0.0, **fields) -> Ticket:
    fields = {"cost_tokens": 16 * blocks} | fields
    return Ticket(Amounts(blocks, sequences, pixels // 784, pixels), now, now + 30.0, **fields)


def admission(policy=QueuePolicy(), capacity=CAPACITY) -> Admission:  # noqa: B008 - frozen
    return Admission(Holdings(capacity), policy, lambda: 0.5)


@pytest.fixture
def busy() -> Admission:
    """All but 10 blocks are held."""
    one = admission()
    assert one.offer(ticket(90), 0.0) is Verdict.ADMITTED
    return one


def test_what_fits_is_admitted(busy):
    assert busy.would_decide(ticket(10), 1.0) == Prospect(Verdict.ADMITTED)


def test_what_is_short_waits_and_says_of_what(busy):
    assert busy.would_decide(ticket(11), 1.0) == Prospect(Verdict.WAITING, Resource.KV_BLOCKS)


def test_those_before_it_are_counted_by_their_turns_and_the_wait_by_the_pace(busy):
    for number in range(10):
        busy.offer(ticket(20, tenant="wall"), float(number))
        busy.tick(float(number))
    last = busy.would_decide(ticket(20, tenant="wall"), 10.0)
    assert (last.ahead, last.expected_wait_seconds) == (10, None)
    assert busy.would_decide(ticket(20, tenant="other"), 10.0).ahead < 3
    assert busy.would_decide(ticket(20, priority=Priority.CRITICAL), 10.0).ahead == 0
    for second in range(10, 16):
        busy.give_back(Amounts(20 if second < 14 else 10, 0))
        busy.tick(float(second))
    waiting = busy.statistics(16.0).queue_depth
    rate = busy.statistics(16.0).drain_per_second
    assert rate
    assert busy.would_decide(ticket(90, tenant="wall"), 16.0) == Prospect(
        Verdict.WAITING, Resource.KV_BLOCKS, waiting, pytest.approx((waiting + 1) / rate)
    )


def test_one_that_may_pass_the_others_does(busy):
    busy.offer(ticket(50, tenant="large"), 0.0)
    busy.tick(0.0)
    assert busy.would_decide(ticket(1, tenant="small"), 0.0).decision is Verdict.ADMITTED


def test_a_full_queue_promises_nothing_to_who_only_asks(busy):
    full = admission(QueuePolicy(requests=1))
    full.offer(ticket(90), 0.0)
    full.offer(ticket(20), 0.0)
    refusal = full.would_decide(ticket(20), 1.0).decision
    assert isinstance(refusal, Refusal)
    assert full.statistics(1.0).promised == 0
    assert full.offer(ticket(20), 1.0) == refusal


def test_without_a_queue():
    none = admission(QueuePolicy(requests=0))
    none.offer(ticket(90), 0.0)
    prospect = none.would_decide(ticket(20), 0.0)
    assert isinstance(prospect.decision, Refusal)
    assert prospect.short is Resource.KV_BLOCKS


@pytest.mark.parametrize("tenants", [1, 200])
def test_what_it_costs_to_ask_hardly_grows_with_the_line(tenants):
    """Anyone may ask as often as he likes: so one more that waits is a step or two more."""

    def steps_before(waiting):
        one = admission(QueuePolicy(requests=waiting))
        one.offer(ticket(90), 0.0)
        for number in range(waiting):
            one.offer(ticket(20 + number, tenant=str(number % tenants), pixels=784 * (number % 3)), 0.0)
            one.tick(0.0)
        return calls_in(lambda: one.would_decide(ticket(11, tenant="other"), 1.0))

    assert steps_before(waiting=800) < 850 + 80 * tenants
    assert steps_before(waiting=800) - steps_before(waiting=400) < 2 * 400


def calls_in(what) -> int:
    """Calls of functions, which is what time follows and what no busy machine changes."""
    calls = 0

    def count(_frame, event, _argument):
        nonlocal calls
        calls += event in {"call", "c_call"}

    sys.setprofile(count)
    try:
        what()
    finally:
        sys.setprofile(None)
    return calls


newcomers = st.builds(
    ticket,
    st.integers(1, 60),
    sequences=st.integers(1, 3),
    pixels=st.sampled_from([0, 0, 78_400, 784_000]),
    body_bytes=st.sampled_from([100, 300_000]),
    tenant=st.sampled_from("abc"),
    priority=st.sampled_from(Priority),
    is_return=st.booleans(),
)


@given(st.lists(st.tuples(newcomers, st.integers(0, 3)), max_size=25), newcomers)
def test_what_it_says_is_what_is_then_decided(traffic, newcomer):
    one, held, now = admission(QueuePolicy(requests=6)), [], 0.0
    for each, gone in traffic:
        now += 0.7
        each.arrived, each.deadline = now, now + 5.0
        if one.offer(each, now) is Verdict.ADMITTED:
            held.append(each)
        for _ in range(min(gone, len(held))):
            one.give_back(held.pop(0).amounts)
        held += [admitted for admitted, decision in one.tick(now) if decision is Verdict.ADMITTED]
    newcomer.arrived, newcomer.deadline = now, now + 5.0
    before = one.statistics(now)
    said = one.would_decide(newcomer, now)
    assert one.would_decide(newcomer, now) == said
    assert one.statistics(now) == before
    decision = one.offer(newcomer, now)
    if decision is Verdict.WAITING:
        decision = dict(one.tick(now)).get(newcomer, decision)
    assert decision == said.decision


def test_while_nothing_is_sent_it_waits_for_that(busy):
    busy.pause_until(7.0)
    assert busy.would_decide(ticket(1), 4.0) == Prospect(Verdict.WAITING, None, 0, 3.0)
