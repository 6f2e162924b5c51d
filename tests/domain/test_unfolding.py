"""What running answers hold at once: against a simulation that lets each have one token a step."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.growth import OutputGrowth
from gateway.domain.quantities import Bounds
from gateway.domain.unfolding import BlocksAhead, Unfolding
from tests.support.costs import HYBRID, PLAIN, blocks_now, cost_of

BLOCK = 16


class Answer:
    """One answer whose length is known, as the engine has it."""

    def __init__(self, prompt_tokens, answer_tokens, generated, limits=PLAIN):
        self.prompt_tokens, self.answer_tokens, self.generated = prompt_tokens, answer_tokens, generated
        self.limits = limits

    def unfolding(self):
        answer = self.answer_tokens
        text = Bounds.exact(self.prompt_tokens)
        cost = cost_of(text=text, output_tokens=answer, limits=self.limits, max_tokens=answer)
        held_blocks = cost.amounts.kv_blocks - (cost.prefill_kv_blocks if self.generated else 0)
        return cost.growth.from_now(held_blocks, self.generated)

    def blocks_after(self, tokens):
        generated = self.generated + tokens
        if generated > self.answer_tokens:
            return 0
        return blocks_now(self.prompt_tokens, generated, self.limits)


@st.composite
def answers(draw, limits=PLAIN):
    answer_tokens = draw(st.integers(2, 120))
    return Answer(draw(st.integers(1, 200)), answer_tokens, draw(st.integers(0, answer_tokens - 1)), limits)


def most_at_once(running):
    return max(sum(each.blocks_after(tokens) for each in running) for tokens in range(121))


def most_foreseen(running, newcomer=None):
    return BlocksAhead([each.unfolding() for each in running]).most_blocks(newcomer and newcomer.unfolding())


def test_two_that_began_apart_are_never_at_their_full_length_at_once():
    young, old = Answer(16, 64, 0), Answer(16, 64, 48)
    assert most_foreseen([young]) == most_foreseen([old]) == 5
    assert most_foreseen([young, old]) == 5 + 2, "when the old one ends, the young one has 16 tokens"


def test_two_that_began_together_are():
    assert most_foreseen([Answer(16, 64, 10), Answer(16, 64, 10)]) == 10


def test_one_that_begins_now_is_seen_with_those_that_run():
    old = Answer(16, 64, 48)
    assert most_foreseen([old], Answer(16, 64, 0)) == 7
    assert most_foreseen([old], Answer(64, 8, 0)) == 5 + 5, "it ends first, and both are at their most then"
    assert most_foreseen([], Answer(16, 64, 0)) == 5


def test_of_one_whose_end_nobody_knows_all_is_held_from_now_on():
    assert (
        BlocksAhead([Unfolding(9, 9), Answer(16, 64, 48).unfolding()]).most_blocks(Answer(16, 64, 0).unfolding()) == 16
    )
    assert BlocksAhead([Unfolding(9, 9)]).most_blocks(Unfolding(4, 4)) == 13
    assert BlocksAhead([]).most_blocks() == 0


def test_what_may_be_outgrown_is_told_apart():
    ahead = BlocksAhead([Unfolding(9, 9), Unfolding(4, 6, may_outgrow=False)])
    assert (ahead.held_blocks, ahead.outgrowing_blocks, ahead.most_blocks()) == (13, 9, 15)


@given(st.lists(answers(), max_size=32), answers())
def test_it_is_what_a_simulation_finds(running, newcomer):
    assert most_foreseen(running) == most_at_once(running)
    exact, alone = most_at_once([*running, newcomer]), newcomer.unfolding().whole_blocks
    assert exact <= most_foreseen(running, newcomer) <= most_at_once(running) + alone


@given(st.lists(answers(), min_size=33, max_size=100), answers())
def test_of_many_it_is_never_less_and_never_more_than_all_at_their_full_length(running, newcomer):
    together = [*running, newcomer]
    whole = sum(each.unfolding().whole_blocks for each in together)
    assert most_at_once(together) <= most_foreseen(running, newcomer) <= whole


class TestWindows:
    """A group with a window takes no more once that is full, and less once the prompt is computed."""

    def test_within_its_window_an_answer_unfolds_in_all_groups_but_those_with_longer_blocks(self):
        young = Answer(16, 64, 0, HYBRID)
        assert young.blocks_after(0) == 1 + 5 + 1
        assert young.unfolding().blocks_after(0) == 1 + 5 + 3
        assert young.unfolding().whole_blocks == young.blocks_after(64) == 5 + 5 * 5 + 3

    def test_beyond_it_only_that_which_keeps_every_token_does(self):
        old = Answer(160, 64, 1, HYBRID)
        assert old.blocks_after(0) == 11 + 5 * 6 + 6
        assert old.unfolding().blocks_after(0) == 11 + 5 * 6 + 7
        assert old.unfolding().whole_blocks == old.blocks_after(63) == 14 + 5 * 6 + 7

    def test_a_window_that_fills_meanwhile_is_taken_to_be_full(self):
        filling = Answer(64, 64, 1, HYBRID)
        assert filling.blocks_after(0) == 5 + 5 * 5 + 3
        assert filling.unfolding().blocks_after(0) == 5 + 5 * 6 + 4

    @given(st.lists(answers(HYBRID), max_size=20), answers(HYBRID))
    def test_never_less_is_foreseen_than_is_held_and_never_more_than_is_reserved(self, running, newcomer):
        together = [*running, newcomer]
        reserved = sum(each.unfolding().held_blocks for each in together)
        assert most_at_once(together) <= most_foreseen(running, newcomer) <= reserved


class TestOneThatOutgrowsItsReservation:
    GROWTH = OutputGrowth(64, BLOCK, spare_tokens=4)

    def test_is_taken_to_become_as_long_as_those_that_came_so_far(self):
        seen = self.GROWTH.from_now(5, 70, likely_tokens=90)
        assert seen == Unfolding(5, 7, left_tokens=20, block_tokens=BLOCK, spare_tokens=10)
        grown = self.GROWTH.blocks(70)
        held = self.GROWTH.from_now(5 + grown, 70, likely_tokens=90, grown_blocks=grown)
        assert held.whole_blocks == 5 + grown, "it holds more than it will take"

    def test_has_no_end_where_nothing_says_how_long_it_becomes(self):
        assert self.GROWTH.from_now(9, 70) == Unfolding(9, 9, 0, BLOCK, spare_tokens=4)

    def test_never_becomes_longer_than_it_may(self):
        bounded = self.GROWTH._replace(most_tokens=64)
        assert bounded.from_now(5, 10, likely_tokens=90).left_tokens == 54
        assert not bounded.from_now(5, 10).may_outgrow
        assert self.GROWTH._replace(most_tokens=80).from_now(5, 10, likely_tokens=90).left_tokens == 70


@pytest.mark.parametrize("generated", [0, 40, 100])
def test_several_answers_share_what_is_generated(generated):
    seen = OutputGrowth(200, BLOCK, groups=2, answers=4).from_now(40, generated)
    assert (seen.left_tokens, seen.copies) == (50 - generated // 4, 8)
