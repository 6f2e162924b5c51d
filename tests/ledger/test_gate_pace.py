"""What a gate learns of its engine's pace from the leases, and what it lets in because of that."""

import pytest

from gateway.domain.errors import GatewayError
from gateway.domain.forecast import Forecast
from gateway.domain.growth import OutputGrowth
from gateway.domain.outcome import Ending, Reason
from gateway.domain.quantities import Amounts, Capacity, Resource
from gateway.domain.queue import QueuePolicy
from gateway.domain.slo import ServiceLevel
from gateway.domain.ticket import Ticket
from gateway.ledger.gate import Gate
from gateway.ledger.local import LocalLedger


@pytest.fixture
def gate(clock) -> Gate:
    return Gate(
        LocalLedger(Capacity(None, 128)),
        QueuePolicy(),
        clock=clock,
        call_later=clock.call_later,
        jitter=lambda: 0.0,
        forecast=Forecast.of(ServiceLevel(4.0, 15.0)),
    )


def ticket(clock, tokens=1_000, sequences=1, *, first=1e9) -> Ticket:
    amounts = Amounts(1, sequences, prefill_tokens=tokens)
    return Ticket(amounts, clock.now, clock.now + 30.0, growth=OutputGrowth(512), first_token_by=clock.now + first)


def image(clock, tokens=1_000) -> Ticket:
    """Its two seconds of decoding, at the rate that is taken to begin with."""
    return Ticket(Amounts(1, 1, 0, 40_000_000).with_prefill(tokens), clock.now, clock.now + 30.0)


def on_their_way(gate) -> tuple[int, int | None]:
    holdings = gate.statistics().holdings
    return holdings.held[Resource.PREFILL_TOKENS], holdings.capacity[Resource.PREFILL_TOKENS]


async def answered(gate, clock, *, first_seconds, tokens=0, token_seconds=0.0, beside=0) -> None:
    """One stream from its question to its end, with others at the engine."""
    others = [await gate.admit(ticket(clock, 0)) for _ in range(beside)]
    lease = await gate.admit(ticket(clock))
    lease.sent(is_streamed=True)
    clock.advance(first_seconds)
    lease.first_event()
    clock.advance(tokens * token_seconds)
    lease.grow(tokens)
    for each in [lease, *others]:
        each.close(Ending.DONE)


async def test_what_is_on_its_way_is_held_until_the_first_event(gate, clock):
    lease = await gate.admit(ticket(clock))
    lease.sent(is_streamed=True)
    assert on_their_way(gate) == (1_000, 2_000)
    lease.first_event()
    lease.first_event()
    assert on_their_way(gate)[0] == 0
    assert lease.held == Amounts(1, 1)
    lease.close(Ending.DONE)
    assert not any(gate.statistics().holdings.held)


async def test_tokens_that_are_only_a_bound_teach_nothing(gate, clock):
    for _ in range(20):
        bounded = ticket(clock, 100_000)
        bounded.is_bounded = True
        lease = await gate.admit(bounded)
        lease.sent(is_streamed=True)
        clock.advance(0.5)
        lease.first_event()
        lease.close(Ending.DONE)
    assert on_their_way(gate) == (0, 2_000)


async def test_slow_first_tokens_close_the_window_and_fast_ones_open_it(gate, clock):
    for _ in range(20):
        await answered(gate, clock, first_seconds=2.0)
    assert on_their_way(gate) == (0, pytest.approx(250, rel=0.1))
    for _ in range(60):
        await answered(gate, clock, first_seconds=0.1, beside=2)
    assert on_their_way(gate)[1] > 750


async def test_who_comes_while_the_window_is_full_waits_for_a_first_event(gate, clock):
    leases = [await gate.admit(ticket(clock, 1_000)) for _ in range(2)]
    for lease in leases:
        lease.sent(is_streamed=True)
    decided = []
    gate.ask(ticket(clock, 1_000), decided.append)
    assert decided == []
    clock.advance(0.5)
    leases[0].first_event()
    assert len(decided) == 1


async def test_an_image_is_in_the_way_of_texts_once_it_should_be_decoded(gate, clock):
    lease = await gate.admit(image(clock))
    lease.sent(is_streamed=True)
    clock.advance(1.9)
    assert lease.held == Amounts(1, 1, 0, 40_000_000, 0, 1_000)
    clock.advance(0.2)
    assert lease.held == Amounts(1, 1, 0, 40_000_000, 1_000, 0)
    assert gate.statistics().holdings.held == lease.held
    assert gate.tokens_to_begin(ticket(clock)) == 1_000
    lease.first_event()
    lease.close(Ending.DONE)
    assert not any(gate.statistics().holdings.held)


@pytest.mark.parametrize("is_begun", [True, False])
async def test_one_that_begins_or_ends_before_that_is_in_nobodys_way(gate, clock, is_begun):
    lease = await gate.admit(image(clock))
    lease.sent(is_streamed=True)
    if is_begun:
        lease.first_event()
        clock.advance(3.0)
        assert lease.held == Amounts(1, 1)
    lease.close(Ending.DONE)
    assert not any(gate.statistics().holdings.held)
    assert clock.pending == []


async def test_an_answer_that_is_not_streamed_is_on_its_way_for_as_long_as_that_takes(gate, clock):
    for _ in range(5):
        await answered(gate, clock, first_seconds=1.0)
    lease = await gate.admit(ticket(clock))
    lease.sent(is_streamed=False)
    clock.advance(0.3)
    assert on_their_way(gate)[0] == 1_000
    clock.advance(1.0)
    assert on_their_way(gate)[0] == 0
    lease.close(Ending.DONE)
    assert clock.pending == []


async def test_only_so_many_are_let_in_as_end_in_time(gate, clock):
    for load in (2, 4, 6, 8, 10):
        await answered(gate, clock, first_seconds=0.1, tokens=100, token_seconds=0.01 * load, beside=load - 1)
    assert gate.statistics().holdings.capacity[Resource.SEQUENCES] == 11
    gate.set_capacity(Resource.SEQUENCES, 9)
    assert gate.statistics().holdings.capacity[Resource.SEQUENCES] == 9
    gate.set_capacity(Resource.SEQUENCES, None)
    assert gate.statistics().holdings.capacity[Resource.SEQUENCES] == 11


async def test_answers_that_did_not_end_well_teach_nothing_of_their_pace(gate, clock):
    for load in (2, 4, 6, 8, 10):
        others = [await gate.admit(ticket(clock, 0)) for _ in range(load)]
        others[0].sent(is_streamed=True)
        others[0].first_event()
        clock.advance(load)
        others[0].grow(100)
        for each in others:
            each.close(Ending.IGNORED)
    assert gate.statistics().holdings.capacity[Resource.SEQUENCES] == 128


async def test_who_would_miss_is_refused_with_the_reason(gate, clock):
    for _ in range(5):
        await answered(gate, clock, first_seconds=2.0)
    lease = await gate.admit(ticket(clock))
    with pytest.raises(GatewayError) as refused:
        await gate.admit(ticket(clock, 4_000, first=4.0))
    assert refused.value.reason is Reason.WOULD_MISS_DEADLINE
    lease.close(Ending.DONE)


async def test_without_levels_nothing_is_bounded(clock):
    gate = Gate(LocalLedger(), QueuePolicy(), clock=clock, call_later=clock.call_later, jitter=lambda: 0.0)
    for _ in range(20):
        await answered(gate, clock, first_seconds=9.0, tokens=100, token_seconds=1.0)
    assert on_their_way(gate) == (0, None)
    assert gate.statistics().holdings.capacity[Resource.SEQUENCES] is None


@pytest.mark.parametrize("level", [ServiceLevel(4.0, 15.0), ServiceLevel()])
async def test_only_where_a_level_is_set_an_answer_without_events_needs_a_timer_before_any_pace_is_known(clock, level):
    gate = Gate(
        LocalLedger(Capacity(None, 128)),
        QueuePolicy(),
        clock=clock,
        call_later=clock.call_later,
        jitter=lambda: 0.0,
        forecast=Forecast.of(level),
    )
    lease = await gate.admit(ticket(clock))
    lease.sent(is_streamed=False)
    has_level = level != ServiceLevel()
    assert bool(clock.pending) is has_level
    clock.advance(0.0)
    assert on_their_way(gate)[0] == (0 if has_level else 1_000)
    lease.close(Ending.DONE)
    assert not any(gate.statistics().holdings.held)
