"""Asking the gate without a task that sleeps: who goes on whatever is decided, and who lives in virtual time."""

import asyncio

import pytest

from gateway.domain.decision import Refusal, Verdict
from gateway.domain.outcome import Ending, Reason
from gateway.domain.quantities import Amounts, Capacity, Resource
from gateway.domain.queue import QueuePolicy
from gateway.domain.ticket import Ticket
from gateway.ledger.gate import Gate, SentAwayError
from gateway.ledger.local import LocalLedger


@pytest.fixture
def gate(clock):
    return gate_with(clock)


def gate_with(clock, **policy):
    ledger = LocalLedger(Capacity(10))
    return Gate(ledger, QueuePolicy(**policy), clock=clock, call_later=clock.call_later, jitter=lambda: 0.0)


def ticket(clock, blocks=10, wait=30.0):
    return Ticket(Amounts(blocks, 1), clock.now, clock.now + wait)


def held(gate):
    return gate.statistics().holdings.held[Resource.KV_BLOCKS]


class TestAsking:
    def test_who_fits_is_told_at_once_and_takes_its_lease(self, gate, clock):
        one, told = ticket(clock), []
        assert gate.ask(one, told.append) is Verdict.ADMITTED
        lease = gate.lease(one, 0.0)
        assert (told, held(gate), gate.statistics().leases) == ([], 10, 1)
        lease.close(Ending.DONE)
        assert (held(gate), gate.statistics().leases) == (0, 0)

    def test_who_waits_is_told_once_its_turn_has_come(self, gate, clock):
        first, second, told = ticket(clock), ticket(clock), []
        gate.ask(first, told.append)
        lease = gate.lease(first, 0.0)
        assert gate.ask(second, told.append) is Verdict.WAITING
        clock.advance(3.0)
        assert told == []
        lease.close(Ending.DONE)
        assert told == [Verdict.ADMITTED]
        gate.lease(second, 3.0).close(Ending.DONE)
        assert held(gate) == 0

    def test_who_waits_in_vain_is_told_so(self, gate, clock):
        told = []
        gate.lease(asked(gate, ticket(clock)), 0.0)
        gate.ask(ticket(clock, wait=5.0), told.append)
        clock.advance(5.0)
        assert [decision.reason for decision in told] == [Reason.DEADLINE_PASSED]

    def test_who_is_refused_hears_it_at_once(self, clock):
        gate = gate_with(clock, requests=0)
        gate.lease(asked(gate, ticket(clock)), 0.0)
        refusal = gate.ask(ticket(clock), None)
        assert isinstance(refusal, Refusal)
        assert refusal.reason is Reason.KV_BUDGET

    def test_who_is_withdrawn_hears_nothing_and_lets_the_next_in(self, gate, clock):
        told = []
        gate.lease(asked(gate, ticket(clock, 6)), 0.0)
        large, small = ticket(clock, 10), ticket(clock, 4)
        small.cost_tokens = 2  # more than the large one costs, so it may not pass it
        gate.ask(large, lambda _decision: told.append("large"))
        gate.ask(small, lambda _decision: told.append("small"))
        assert told == []
        gate.withdraw(large)
        assert told == ["small"]
        with pytest.raises(KeyError):
            gate.withdraw(large)


def asked(gate, one):
    assert gate.ask(one, None) is Verdict.ADMITTED
    return one


def test_the_capacity_is_what_is_enforced_just_now(gate):
    assert gate.capacity[:3] == (10, None, None)
    gate.set_capacity(Resource.KV_BLOCKS, 7)
    assert gate.capacity[Resource.KV_BLOCKS] == 7
    assert gate.capacity == gate.statistics().holdings.capacity


class TestSendingAway:
    """Another engine is to serve it."""

    def test_who_waits_is_told_and_takes_nothing(self, gate, clock):
        gate.ask(ticket(clock), [].append)
        one, told = ticket(clock), []
        gate.ask(one, told.append)
        gate.send_away(one)
        assert (told, held(gate), gate.statistics().admission.queue_depth) == ([Verdict.SENT_AWAY], 10, 0)
        gate.give_back(Amounts(10, 1))
        assert (told, held(gate)) == ([Verdict.SENT_AWAY], 0)

    def test_who_does_not_wait_any_more_is_told_nothing(self, gate, clock):
        one, told = ticket(clock), []
        gate.ask(one, told.append)
        gate.send_away(one)
        assert (told, held(gate)) == ([], 10)

    async def test_a_task_that_waits_gets_an_error_of_its_own(self, gate, clock):
        await gate.admit(ticket(clock))
        one = ticket(clock)
        waiting = asyncio.create_task(gate.admit(one))
        await asyncio.sleep(0)
        gate.send_away(one)
        with pytest.raises(SentAwayError):
            await waiting
        assert held(gate) == 10
