import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.domain.holdings import Holdings
from gateway.domain.quantities import Amounts, Capacity, Resource

AMOUNTS = st.builds(Amounts, *(st.integers(0, 12) for _ in Resource))


def test_what_fits_is_taken_and_given_back():
    holdings = Holdings(Capacity(10, 2))
    assert holdings.try_reserve(Amounts(7, 1)) is None
    assert holdings.try_reserve(Amounts(3, 1)) is None
    assert holdings.statistics().held == (10, 2, 0, 0, 0, 0)
    holdings.give_back(Amounts(7, 1))
    assert holdings.statistics().held == (3, 1, 0, 0, 0, 0)


def test_what_does_not_fit_takes_nothing_and_names_the_resource():
    holdings = Holdings(Capacity(10, 2, 5))
    holdings.grow(Amounts(7, 1, 5))
    assert holdings.try_reserve(Amounts(4, 1)) is Resource.KV_BLOCKS
    assert holdings.try_reserve(Amounts(1, 2)) is Resource.SEQUENCES
    assert holdings.try_reserve(Amounts(1, 1, 1)) is Resource.ENCODER_TOKENS
    assert holdings.statistics().held == (7, 1, 5, 0, 0, 0)


def test_larger_than_a_whole_capacity_is_admitted_alone():
    holdings = Holdings(Capacity(10, 4))
    assert holdings.try_reserve(Amounts(25, 1)) is None
    assert holdings.try_reserve(Amounts(1, 1)) is Resource.KV_BLOCKS
    assert holdings.try_reserve(Amounts(0, 1)) is None
    holdings.give_back(Amounts(25, 1))
    assert holdings.try_reserve(Amounts(10, 1)) is None


def test_unknown_capacity_is_not_enforced():
    holdings = Holdings()
    assert holdings.try_reserve(Amounts(10**9, 10**9, 10**9, 10**12)) is None
    assert holdings.try_reserve(Amounts(1, 1, 1, 1)) is None
    assert holdings.statistics().capacity == (None,) * 6
    assert holdings.statistics().overcommit_blocks == 0


def test_growth_succeeds_shows_and_stops_new_reservations():
    holdings = Holdings(Capacity(10))
    holdings.grow(Amounts(8))
    holdings.grow(Amounts(5))
    assert holdings.statistics().overcommit_blocks == 3
    assert holdings.shortage(Amounts(1)) is Resource.KV_BLOCKS


def test_a_capacity_may_fall_below_what_is_held():
    holdings = Holdings(Capacity(10))
    holdings.grow(Amounts(8))
    holdings.set_capacity(Resource.KV_BLOCKS, 4)
    assert holdings.statistics().overcommit_blocks == 4
    assert holdings.try_reserve(Amounts(1)) is Resource.KV_BLOCKS
    holdings.set_capacity(Resource.KV_BLOCKS, None)
    assert holdings.try_reserve(Amounts(1)) is None


def test_giving_back_twice_is_an_error_that_changes_nothing():
    holdings = Holdings()
    holdings.grow(Amounts(5, 1))
    with pytest.raises(ValueError, match="gives back"):
        holdings.give_back(Amounts(5, 2))
    assert holdings.statistics().held == (5, 1, 0, 0, 0, 0)


def test_the_capacity_names_every_resource():
    assert Capacity._fields == Amounts._fields
    with pytest.raises(ValueError, match="shorter"):
        Holdings((1, 2, 3, 4))


class Conservation(RuleBasedStateMachine):
    """Whatever is taken, grown, given back or resized: the books balance and nobody is let in beyond the capacity."""

    def __init__(self):
        super().__init__()
        self.capacity = [10] * len(Resource)
        self.holdings = Holdings(self.capacity)
        self.leases: list[list[int]] = []

    def held(self, index):
        return sum(lease[index] for lease in self.leases)

    @rule(amounts=AMOUNTS)
    def reserve(self, amounts):
        fits = all(
            not amount or not self.held(i) or self.held(i) + amount <= self.capacity[i]
            for i, amount in enumerate(amounts)
        )
        short = self.holdings.try_reserve(amounts)
        assert (short is None) is fits
        if fits:
            self.leases.append(list(amounts))
        else:
            assert self.held(short) + amounts[short] > self.capacity[short]

    @precondition(lambda self: self.leases)
    @rule(amounts=AMOUNTS, data=st.data())
    def grow(self, amounts, data):
        lease = data.draw(st.sampled_from(self.leases))
        self.holdings.grow(amounts)
        lease[:] = [a + b for a, b in zip(lease, amounts, strict=True)]

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def give_back(self, data):
        lease = self.leases.pop(data.draw(st.integers(0, len(self.leases) - 1)))
        self.holdings.give_back(Amounts(*lease))

    @rule(resource=st.sampled_from(Resource), capacity=st.integers(0, 20))
    def resize(self, resource, capacity):
        self.capacity[resource] = capacity
        self.holdings.set_capacity(resource, capacity)

    @invariant()
    def balanced(self):
        statistics = self.holdings.statistics()
        assert statistics.held == tuple(self.held(i) for i in range(len(Resource)))
        assert statistics.capacity == tuple(self.capacity)


Conservation.TestCase.settings = settings(max_examples=30, stateful_step_count=25)
TestConservation = Conservation.TestCase
