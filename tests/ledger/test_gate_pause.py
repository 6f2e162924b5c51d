"""A pause of admissions: waiters sleep through it and are woken at its end, by the gate's one timer."""

import asyncio

from gateway.domain.outcome import Ending
from gateway.domain.quantities import Amounts, Capacity
from gateway.domain.queue import QueuePolicy
from gateway.domain.ticket import Ticket
from gateway.ledger.gate import Gate
from gateway.ledger.local import LocalLedger


def gate_with(clock) -> Gate:
    ledger = LocalLedger(Capacity(10))
    return Gate(ledger, QueuePolicy(), clock=clock, call_later=clock.call_later, jitter=lambda: 0.0)


async def started(gate, clock, blocks=5) -> asyncio.Task:
    task = asyncio.create_task(gate.admit(Ticket(Amounts(blocks, 1), clock.now, clock.now + 30.0)))
    await asyncio.sleep(0)
    return task


async def test_who_comes_in_a_pause_is_let_in_at_its_end(clock):
    gate = gate_with(clock)
    gate.pause_until(clock.now + 2.0)
    task = await started(gate, clock)
    clock.advance(1.9)
    await asyncio.sleep(0)
    assert not task.done()
    clock.advance(0.1)
    assert (await task).queue_seconds == 2.0
    assert clock.pending == []


async def test_what_is_given_back_in_a_pause_lets_nobody_in(clock):
    gate = gate_with(clock)
    first = await (await started(gate, clock, 10))
    task = await started(gate, clock)
    gate.pause_until(clock.now + 1.0)
    first.close(Ending.DROPPED)
    await asyncio.sleep(0)
    assert not task.done()
    clock.advance(1.0)
    assert (await task).queue_seconds == 1.0


async def test_a_pause_that_grows_moves_the_end(clock):
    gate = gate_with(clock)
    gate.pause_until(clock.now + 1.0)
    task = await started(gate, clock)
    gate.pause_until(clock.now + 3.0)
    clock.advance(2.9)
    await asyncio.sleep(0)
    assert not task.done()
    clock.advance(0.1)
    assert (await task).queue_seconds == 3.0
