"""Answers that end apart share the pool: what streams have shown of themselves lets the next one in."""

import asyncio

import pytest

from gateway.domain.growth import OutputGrowth
from gateway.domain.outcome import Ending
from gateway.domain.output import OutputReservation
from gateway.domain.quantities import Amounts, Capacity
from gateway.domain.queue import QueuePolicy
from gateway.domain.ticket import Ticket
from gateway.ledger.gate import Gate
from gateway.ledger.local import LocalLedger


@pytest.fixture
def gate(clock) -> Gate:
    gate = Gate(LocalLedger(Capacity(9)), QueuePolicy(), clock=clock, call_later=clock.call_later, jitter=lambda: 0.0)
    gate.set_growth_room(0)
    return gate


def ticket(clock, **fields) -> Ticket:
    """Two blocks of prompt, and an answer that its own bound ends after 64 tokens, which are four blocks."""
    growth = OutputGrowth(64, most_tokens=64)
    return Ticket(Amounts(6, 1), clock.now, clock.now + 30.0, growth=growth, **fields)


async def streaming(gate, clock, **fields):
    lease = await gate.admit(ticket(clock, **fields))
    lease.sent(is_streamed=True)
    return lease


async def test_one_waits_until_the_other_is_so_far_ahead_that_they_are_never_both_at_their_full_length(gate, clock):
    old = await streaming(gate, clock)
    second = asyncio.create_task(gate.admit(ticket(clock)))
    await asyncio.sleep(0)
    for generated, is_in in ((10, False), (40, False), (46, True)):
        old.grow(generated)
        clock.advance(0.2)
        await asyncio.sleep(0)
        assert second.done() is is_in, generated
    holdings = gate.holdings()
    assert (holdings.held[0], holdings.overlap_blocks, holdings.overcommit_blocks) == (12, 3, 0)
    old.close(Ending.DONE)
    (await second).close(Ending.DONE)
    holdings = gate.holdings()
    assert (holdings.held[0], holdings.overlap_blocks) == (0, 0)


async def test_an_answer_that_shows_nothing_until_its_end_shares_nothing(gate, clock):
    unseen = await gate.admit(ticket(clock, is_streamed=False))
    unseen.sent(is_streamed=False)
    unseen.grow(46)
    second = asyncio.create_task(gate.admit(ticket(clock)))
    await asyncio.sleep(0)
    assert not second.done()
    unseen.close(Ending.DONE)
    (await second).close(Ending.DONE)


async def test_one_that_has_not_begun_shares_nothing_for_others_and_is_no_excess(gate, clock):
    old = await streaming(gate, clock)
    old.grow(46)
    second = await streaming(gate, clock)
    assert (gate.holdings().overlap_blocks, gate.holdings().overcommit_blocks) == (3, 0)
    third = asyncio.create_task(gate.admit(ticket(clock)))
    await asyncio.sleep(0)
    clock.advance(0.2)
    gate.wake()
    await asyncio.sleep(0)
    assert not third.done()
    for each in (old, second):
        each.close(Ending.DONE)
    (await third).close(Ending.DONE)


async def test_the_line_is_looked_at_again_though_nobody_leaves(gate, clock):
    old = await streaming(gate, clock)
    second = asyncio.create_task(gate.admit(ticket(clock)))
    await asyncio.sleep(0)
    old.grow(46)
    clock.advance(0.2)
    (await second).close(Ending.DONE)
    old.close(Ending.DONE)


async def test_before_several_engines_nothing_is_shared(gate, clock):
    gate.set_growth_room(None)
    old = await streaming(gate, clock)
    old.grow(46)
    second = asyncio.create_task(gate.admit(ticket(clock)))
    await asyncio.sleep(0)
    assert not second.done()
    assert gate.holdings().overlap_blocks == 0
    old.close(Ending.DONE)
    (await second).close(Ending.DONE)


async def test_one_that_became_longer_than_most_is_taken_to_become_as_long_as_those_that_did(gate, clock):
    lengths = OutputReservation()
    for _ in range(30):
        lengths.observe(60, was_cut=False)
    for _ in range(10):
        lengths.observe(240, was_cut=False)
    old = await streaming(gate, clock, lengths=lengths)
    old.grow(50)
    assert old.unfolding().left_tokens == 64 - 53, "but this one is bound by its own limit"
    free = Ticket(Amounts(6, 1), 0.0, 30.0, growth=OutputGrowth(64), lengths=lengths)
    old.close(Ending.DONE)
    lease = await gate.admit(free)
    lease.sent(is_streamed=True)
    lease.grow(50)
    assert lease.unfolding().left_tokens == 64 - 53
    lease.grow(70)
    assert lease.unfolding().left_tokens == 240 - 73
    lease.close(Ending.DONE)


async def test_what_would_become_of_a_request_is_told_as_it_would(gate, clock):
    old = await streaming(gate, clock)
    old.grow(10)
    assert gate.would_decide(ticket(clock)).short is not None
    clock.advance(0.2)
    old.grow(46)
    assert gate.would_decide(ticket(clock)).short is None
    assert gate.holdings().held[0] == 6
    old.close(Ending.DONE)
