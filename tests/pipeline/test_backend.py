from types import SimpleNamespace

import pytest

from gateway.domain.errors import GatewayError
from gateway.domain.quantities import Amounts, Capacity
from gateway.domain.queue import QueuePolicy
from gateway.domain.ticket import Newcomer, Ticket
from gateway.ledger.gate import Gate
from gateway.ledger.local import LocalLedger
from gateway.pipeline.backend import refuse_if_all_full
from tests.support.clock import FakeClock


def full(clock, *, a_second):
    """A gate with all its places taken, from which so many have left a second."""
    gate = Gate(
        LocalLedger(Capacity(None, 1)),
        QueuePolicy(requests=1),
        clock=clock,
        call_later=clock.call_later,
        jitter=lambda: 0.0,
    )
    one = Amounts(sequences=1)
    gate.ask(Ticket(one, clock.now, clock.now + 1e9), print)
    for _ in range(30 * a_second):
        gate.ask(Ticket(one, clock.now, clock.now + 1e9), lambda _decision: None)
        clock.advance(1 / a_second)
        gate.give_back(one)
    gate.ask(Ticket(one, clock.now, clock.now + 1e9), print)
    return SimpleNamespace(gate=gate)


def test_one_place_is_promised_where_it_is_expected_soonest():
    clock = FakeClock()
    slow, fast = full(clock, a_second=1), full(clock, a_second=4)
    with pytest.raises(GatewayError) as refused:
        refuse_if_all_full([slow, fast], lambda: Newcomer(100))
    promised = [backend.gate.statistics().admission.promised for backend in (slow, fast)]
    assert promised == [0, 1]
    assert refused.value.is_promise
    clock.advance(refused.value.retry_after_seconds)
    back = Newcomer(100, is_return=True)
    assert [backend.gate.is_expected(back) for backend in (slow, fast)] == [False, True]


def test_nothing_is_promised_while_one_of_them_has_room():
    clock = FakeClock()
    busy, idle = full(clock, a_second=1), SimpleNamespace(gate=full(clock, a_second=1).gate)
    idle.gate.give_back(Amounts(sequences=1))
    refuse_if_all_full([busy, idle], lambda: Newcomer(100))
    assert busy.gate.statistics().admission.promised == 0
