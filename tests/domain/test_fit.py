"""Whether a request fits beside answers that are under way."""

from random import Random

import pytest

from gateway.domain.cost import growth_room_blocks
from gateway.domain.fit import Fit
from gateway.domain.growth import OutputGrowth
from gateway.domain.holdings import Holdings
from gateway.domain.quantities import Amounts, Bounds, Capacity, Resource
from gateway.domain.ticket import Ticket
from gateway.domain.unfolding import Unfolding
from tests.support.costs import HYBRID, PLAIN, blocks_now, cost_of

BLOCK = 16


def ticket(blocks, growth=None, **amounts):
    return Ticket(Amounts(blocks, **amounts), arrived=0.0, deadline=9.0, growth=growth or OutputGrowth())


def fit_before(capacity, *running, held=None, room=0):
    holdings = Holdings(capacity)
    holdings.grow(Amounts(sum(each.held_blocks for each in running) if held is None else held))
    fit = Fit(holdings, lambda: running)
    fit.growth_room_blocks = room
    return fit, holdings


OLD = Unfolding(6, 6, left_tokens=16, may_outgrow=False)
"""One block of it is still to come, and then it ends."""
LONG = OutputGrowth(64, most_tokens=64)


def test_what_fits_anyhow_is_taken():
    fit, holdings = fit_before(Capacity(12), OLD)
    assert fit.take(ticket(6), 0.0) is None
    assert holdings.held(Resource.KV_BLOCKS) == 12


def test_one_that_grows_while_another_ends_fits_though_the_sum_of_both_does_not():
    fit, holdings = fit_before(Capacity(9), OLD)
    assert holdings.shortage(Amounts(6)) is Resource.KV_BLOCKS
    assert fit.shortage(ticket(6, LONG), Amounts(6), 0.0) is None
    assert fit.take(ticket(6, LONG), 0.0) is None
    assert holdings.held(Resource.KV_BLOCKS) == 12
    assert fit.take(ticket(6, LONG), 0.0) is Resource.KV_BLOCKS, "whoever has no lease yet holds all of it"


def test_what_else_is_short_is_said_and_nothing_taken():
    fit, holdings = fit_before(Capacity(9, 1), OLD)
    holdings.grow(Amounts(sequences=1))
    assert fit.take(ticket(6, LONG, sequences=1), 0.0) is Resource.SEQUENCES
    assert holdings.held(Resource.KV_BLOCKS) == 6


def test_where_nothing_is_known_of_the_pool_the_sum_decides():
    fit, _ = fit_before(Capacity(9), OLD, room=None)
    assert fit.take(ticket(6, LONG), 0.0) is Resource.KV_BLOCKS


def test_what_is_held_by_no_answer_that_is_known_is_held_for_ever():
    fit, _ = fit_before(Capacity(12), OLD, held=9)
    assert fit.take(ticket(6, LONG), 0.0) is None
    fit, _ = fit_before(Capacity(11), OLD, held=9)
    assert fit.take(ticket(6, LONG), 0.0) is Resource.KV_BLOCKS


class TestRoomForGrowth:
    BOUNDED = Unfolding(95, 95, may_outgrow=False)

    def test_is_not_kept_for_those_that_cannot_outgrow_what_they_hold(self):
        fit, _ = fit_before(Capacity(95), self.BOUNDED, room=5)
        assert fit.take(ticket(4, OutputGrowth(most_tokens=0)), 0.0) is None
        assert fit.take(ticket(1, OutputGrowth(most_tokens=0)), 0.0) is Resource.KV_BLOCKS, "a fifth of it is kept"

    def test_is_kept_in_proportion_to_those_that_can(self):
        fit, _ = fit_before(Capacity(95), self.BOUNDED, room=5)
        assert fit.take(ticket(4), 0.0) is Resource.KV_BLOCKS
        assert fit.take(ticket(3), 0.0) is None

    def test_is_kept_whole_where_all_can(self):
        fit, _ = fit_before(Capacity(95), Unfolding(95, 95), room=5)
        assert fit.take(ticket(1), 0.0) is Resource.KV_BLOCKS


def test_answers_are_looked_at_again_after_a_while_and_when_something_was_given_back():
    looks = []
    holdings = Holdings(Capacity(9))
    holdings.grow(Amounts(9))
    fit = Fit(holdings, lambda: looks.append(1) or [])
    fit.growth_room_blocks = 0
    for now, times in ((1.0, 1), (1.05, 1), (1.09, 1), (1.11, 2)):
        assert fit.take(ticket(6, LONG), now) is Resource.KV_BLOCKS
        assert len(looks) == times
    fit.forget_look()
    assert fit.take(ticket(6, LONG), 1.11) is Resource.KV_BLOCKS
    assert fit.look_again_at == pytest.approx(1.21)
    assert len(looks) == 3


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("limits", "pool", "gain"), [(PLAIN, 1_000, 1.1), (HYBRID, 4_000, 1.01)])
def test_a_pool_with_answers_of_known_lengths_is_never_overrun_and_holds_more_than_by_the_sum(limits, pool, gain, seed):
    """Somebody always waits; all are bound by their own max_tokens, and half of them reach it."""
    random = Random(seed)
    running, most_used, at_once, by_sum = [], 0, [], []
    holdings = Holdings(Capacity(pool - growth_room_blocks(pool)))
    fit = Fit(holdings, lambda: [one.cost.growth.from_now(one.blocks, one.done) for one in running])
    fit.growth_room_blocks = growth_room_blocks(pool)
    for step in range(2_000):
        while (one := Running(random, limits)).is_let_in(fit, step):
            running.append(one)
        for one in running:
            one.step(holdings)
        most_used = max(most_used, sum(one.used for one in running))
        at_once.append(len(running))
        by_sum.append(pool * len(running) / holdings.held(Resource.KV_BLOCKS))
        for one in [one for one in running if one.done == one.length]:
            running.remove(one)
            holdings.give_back(Amounts(one.blocks))
            fit.forget_look()
    assert most_used <= pool
    assert sum(at_once) > gain * sum(by_sum)


class Running:
    """One answer, and what is held for it."""

    def __init__(self, random, limits):
        self.prompt, most, self.limits, self.done = random.randrange(50, 600), random.randrange(20, 400), limits, 0
        self.length = most if random.random() < 0.5 else random.randrange(1, most)
        self.cost = cost_of(text=Bounds.exact(self.prompt), output_tokens=most, limits=limits, max_tokens=most)
        self.blocks = self.cost.amounts.kv_blocks

    def is_let_in(self, fit, step):
        return fit.take(ticket(self.blocks, self.cost.growth), float(step)) is None

    def step(self, holdings):
        if not self.done:
            holdings.give_back(Amounts(self.cost.prefill_kv_blocks))
            self.blocks -= self.cost.prefill_kv_blocks
        self.done += 1

    @property
    def used(self):
        return blocks_now(self.prompt, self.done, self.limits)
