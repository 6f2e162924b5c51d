import pytest

from gateway.domain import flow_pace
from gateway.domain.flow_pace import FlowPaces
from gateway.domain.priority import Priority
from gateway.domain.quantities import Amounts
from gateway.domain.ticket import Ticket


def ticket(cost_tokens=100, *, tenant="a", pixels=0, priority=Priority.DEFAULT) -> Ticket:
    amounts = Amounts(1, 1, 0, pixels, cost_tokens)
    return Ticket(amounts, 0.0, 30.0, cost_tokens=cost_tokens, tenant=tenant, priority=priority)


def moving(*, turns=20, **fields) -> FlowPaces:
    """One of the flow waits at any time, and one of 100 tokens has its turn in each second until 0."""
    paces = FlowPaces()
    for second in range(-turns, 0):
        each = ticket(**fields)
        paces.joined(each, float(second))
        paces.let_in(each, second + 1.0)
        paces.left(each, second + 1.0)
    return paces


def test_the_own_flow_goes_first_at_its_own_pace():
    paces = moving()
    for _ in range(3):
        paces.joined(ticket(), 0.0)
    assert paces.seconds(ticket(), 0.0, 0.0) == pytest.approx(3.0, rel=0.1)


def test_half_of_what_is_owed_counts():
    assert moving().seconds(ticket(), 400.0, 0.0) == pytest.approx(2.0, rel=0.1)


def test_images_other_tenants_and_other_priorities_are_flows_of_their_own():
    paces = moving()
    paces.joined(ticket(), 0.0)
    others = ticket(pixels=1_000), ticket(tenant="b"), ticket(priority=Priority.BATCH)
    assert [paces.seconds(other, 1_000.0, 0.0) for other in others] == [0.0] * 3


def test_nothing_is_known_until_five_had_a_turn():
    assert moving(turns=4).seconds(ticket(), 1_000.0, 0.0) == 0.0


def test_time_in_which_nobody_of_the_flow_waits_does_not_count():
    paces = moving()
    assert paces.seconds(ticket(), 200.0, 500.0) == paces.seconds(ticket(), 200.0, 0.0)


def test_a_copy_goes_its_own_way():
    paces, waiter = moving(), ticket()
    paces.joined(waiter, 0.0)
    before = paces.seconds(ticket(), 0.0, 0.0)
    other = paces.copy()
    other.left(waiter, 0.0)
    paces.joined(ticket(), 0.0)
    assert (other.seconds(ticket(), 0.0, 0.0), paces.seconds(ticket(), 0.0, 0.0)) == (0.0, pytest.approx(2 * before))


def test_of_too_many_flows_one_that_does_not_wait_is_forgotten(monkeypatch):
    monkeypatch.setattr(flow_pace, "_MOST_FLOWS", 2)
    paces = moving()
    paces.joined(ticket(tenant="b"), 0.0)
    assert paces.seconds(ticket(), 200.0, 0.0) > 0.0
    paces.joined(ticket(tenant="c"), 0.0)
    assert paces.seconds(ticket(), 200.0, 0.0) == 0.0
    last = ticket(tenant="d")
    paces.joined(last, 0.0)
    paces.left(last, 1.0)
