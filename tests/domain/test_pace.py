from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.pace import FirstTokenPace, TokenPace


def first_token_pace(*seen: tuple[int, float], target=1.0) -> FirstTokenPace:
    pace = FirstTokenPace(target)
    for tokens, seconds in seen:
        pace.observe(tokens, seconds)
    return pace


class TestFirstTokenPace:
    def test_what_is_not_known_takes_no_time(self):
        assert first_token_pace(*[(1_000, 1.0)] * 4).seconds(5_000) == 0.0
        assert first_token_pace(*[(1_000, 1.0)] * 5).seconds(5_000) > 0.0

    def test_it_follows_a_slower_engine_within_seconds(self):
        pace = first_token_pace(*[(2_000, 0.1)] * 100)
        assert pace.tokens_per_second == pytest.approx(20_000, rel=0.05)
        for _ in range(24):
            pace.observe(2_000, 1.0)
        assert pace.tokens_per_second == pytest.approx(2_000, rel=0.3)

    def test_no_more_is_on_its_way_than_begins_within_the_target(self):
        fast, slow = first_token_pace(*[(12_000, 0.5)] * 100), first_token_pace(*[(2_000, 4.0)] * 100)
        assert fast.window_tokens == pytest.approx(24_000, rel=0.05)
        assert slow.window_tokens == pytest.approx(500, rel=0.05)
        assert first_token_pace(target=0.5).window_tokens == 2_000

    def test_an_engine_that_is_idle_says_nothing_of_how_it_is_when_it_is_full(self):
        pace = first_token_pace(*[(600, 0.01)] * 100)
        assert pace.tokens_per_second > 30_000
        assert pace.window_tokens == 1_200
        pace.observe(1_100, 0.02)
        assert pace.window_tokens == 2_200

    def test_one_very_slow_answer_of_a_cold_engine_weighs_no_more_than_three_seconds_do(self):
        cold, slow = first_token_pace((600, 60.0)), first_token_pace((30, 3.0))
        assert cold.tokens_per_second == pytest.approx(slow.tokens_per_second)
        for _ in range(10):
            cold.observe(2_000, 0.5)
        assert cold.tokens_per_second > 2_000

    def test_an_answer_that_took_no_time_says_nothing(self):
        assert first_token_pace((1_000, 0.0)).tokens_per_second == first_token_pace().tokens_per_second

    def test_without_a_target_there_is_no_window(self):
        assert first_token_pace(target=inf).window_tokens is None

    @given(st.lists(st.tuples(st.integers(1, 100_000), st.floats(0.001, 1_000.0)), min_size=5, max_size=50))
    def test_it_stays_between_the_slowest_and_the_fastest_that_was_seen(self, seen):
        pace = first_token_pace(*seen)
        rates = [tokens / seconds for tokens, seconds in seen] + [first_token_pace().tokens_per_second]
        assert min(rates) * 0.999 <= pace.tokens_per_second <= max(rates) * 1.001


def token_pace(*seen: tuple[int, float, float]) -> TokenPace:
    pace = TokenPace()
    for tokens, seconds, sequences in seen:
        pace.observe(tokens, seconds, sequences)
    return pace


class TestTokenPace:
    LINE = tuple((100, 1.0 + 0.5 * load, load) for load in (2, 4, 6, 8, 10))
    """0.01 s a token alone, and 0.005 s more for each sequence."""

    def test_what_is_not_known_takes_no_time_and_limits_nothing(self):
        pace = token_pace(*self.LINE[:4])
        assert (pace.is_known, pace.seconds(100, 8), pace.most_sequences(1.0)) == (False, 0.0, None)

    def test_it_knows_the_pace_at_other_loads(self):
        pace = token_pace(*self.LINE)
        assert pace.seconds(100, 20) == pytest.approx(11.0)
        assert pace.seconds(200, 4) == pytest.approx(6.0)

    def test_it_knows_with_how_many_answers_are_fast_enough(self):
        pace = token_pace(*self.LINE)
        assert pace.most_sequences(11.0 + 1e-6) == 20
        assert pace.most_sequences(0.1) == 1
        assert pace.most_sequences(inf) is None

    def test_loads_that_hardly_differ_tell_nothing_of_other_loads(self):
        pace = token_pace(*[(100, 2.0, 8)] * 5)
        assert pace.seconds(100, 8) == pace.seconds(100, 80) == pytest.approx(2.0)
        assert pace.most_sequences(1.0) is None

    def test_more_load_is_never_faster_and_never_worse_than_in_proportion(self):
        faster = token_pace(*((100, 10.0 - load, load) for load in (2, 4, 6, 8)), (100, 2.0, 8))
        assert faster.seconds(100, 2) == pytest.approx(faster.seconds(100, 8))
        steeper = token_pace(*((100, load**4, load) for load in (2, 4, 6, 8)), (100, 4096.0, 8))
        assert steeper.seconds(100, 0) == pytest.approx(0.0)

    def test_answers_of_a_few_tokens_say_nothing(self):
        assert not token_pace(*[(7, 1.0, 3)] * 9, *[(100, 0.0, 3)] * 9, *[(100, 1.0, 0)] * 9).is_known

    def test_old_answers_are_forgotten(self):
        pace = token_pace(*self.LINE, *[(100, 9.0, 8)] * 100)
        assert pace.seconds(100, 8) == pytest.approx(9.0, rel=0.05)
