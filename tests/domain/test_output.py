from math import ceil
from random import Random

import pytest

from gateway.domain.output import AnswerSpeed, EventTokens, OutputReservation, ReservationRule, most_output_tokens
from gateway.domain.request import VisionRequest

OPEN_ENDED = VisionRequest("m")


class TestOutputReservation:
    def test_the_prior_until_thirty_answers_are_known(self):
        reservation = OutputReservation()
        for _ in range(7):
            reservation.observe(300, was_cut=False)
        assert reservation.typical_tokens == 512
        reservation.observe(300, was_cut=False)
        assert reservation.typical_tokens == 512, "twice the longest is more than that"

    def test_few_answers_bound_it_by_twice_the_longest(self):
        reservation = OutputReservation()
        for tokens in (10, 40, *[20] * 27):
            reservation.observe(tokens, was_cut=False)
        assert reservation.typical_tokens == 80
        reservation.observe(20, was_cut=False)
        assert reservation.typical_tokens == 20

    def test_what_became_so_long_becomes_longer_than_most(self):
        reservation = OutputReservation()
        for tokens in range(1, 41):
            reservation.observe(tokens, was_cut=False)
        assert reservation.reached_tokens(0) == reservation.typical_tokens == 30
        assert reservation.reached_tokens(20) == 35
        assert reservation.reached_tokens(30) == 38
        assert reservation.reached_tokens(31) == 0, "fewer than ten became longer"

    def test_answers_that_were_cut_are_no_samples(self):
        reservation = OutputReservation()
        for _ in range(100):
            reservation.observe(1, was_cut=True)
        assert reservation.typical_tokens == 512

    @pytest.mark.parametrize("answers", [30, 31, 33, 512, 700])
    def test_the_quantile_of_the_last_512(self, answers):
        reservation, lengths = OutputReservation(), Random(answers)
        observed = [lengths.randrange(2_000) for _ in range(answers)]
        for tokens in observed:
            reservation.observe(tokens, was_cut=False)
        recent = sorted(observed[-512:])
        assert reservation.typical_tokens == recent[ceil(0.75 * len(recent)) - 1]

    def test_never_more_than_the_client_asked_for(self):
        assert OutputReservation().tokens(VisionRequest("m", max_tokens=16), 100, 4_096) == 16

    def test_never_more_than_the_remainder_of_the_context(self):
        assert OutputReservation().tokens(OPEN_ENDED, 4_000, 4_096) == 96

    def test_the_prior_when_nothing_bounds_it(self):
        assert OutputReservation().tokens(OPEN_ENDED, 4_000, None) == 512
        assert OutputReservation().tokens(VisionRequest("m", max_tokens=4_096), 4, 32_768) == 512

    def test_at_least_one_even_when_the_prompt_may_be_too_long(self):
        assert OutputReservation().tokens(OPEN_ENDED, 5_000, 4_096) == 1

    @pytest.mark.parametrize("rule", ReservationRule)
    def test_nothing_where_nothing_is_generated(self, rule):
        assert OutputReservation().tokens(VisionRequest("m", wants_output=False), 4, 4_096, rule) == 0

    @pytest.mark.parametrize(
        ("max_tokens", "max_model_len", "most"),
        [(None, 32_768, 32_668), (4_000, 32_768, 4_000), (4_000, None, 4_000), (16, 110, 10), (16, 50, 1)],
    )
    def test_the_most_that_an_answer_may_have_where_that_is_the_rule(self, max_tokens, max_model_len, most):
        request = VisionRequest("m", max_tokens=max_tokens)
        assert OutputReservation().tokens(request, 100, max_model_len, ReservationRule.MAX) == most

    def test_the_prior_where_the_most_is_the_rule_and_nobody_knows_it(self):
        assert OutputReservation().tokens(OPEN_ENDED, 100, None, ReservationRule.MAX) == 512

    @pytest.mark.parametrize("max_tokens", [None, 1, 4_000])
    def test_one_token_where_nothing_is_reserved(self, max_tokens):
        request = VisionRequest("m", max_tokens=max_tokens)
        assert OutputReservation().tokens(request, 100, 32_768, ReservationRule.NONE) == 1


class TestLikelyTokens:
    def test_the_middle_of_what_was_seen_once_there_are_enough(self):
        reservation = OutputReservation()
        for tokens in range(29):
            reservation.observe(tokens, was_cut=False)
        assert reservation.likely_tokens == 0
        reservation.observe(1_000, was_cut=False)
        assert reservation.likely_tokens == 15


class TestMostOutputTokens:
    @pytest.mark.parametrize(
        ("max_tokens", "max_model_len", "most"),
        [(None, None, None), (16, None, 16), (None, 4_096, 3_996), (16, 4_096, 16), (8_000, 4_096, 3_996)],
    )
    def test_the_lesser_bound(self, max_tokens, max_model_len, most):
        assert most_output_tokens(VisionRequest("m", max_tokens=max_tokens), 100, max_model_len) == most


class TestEventTokens:
    def test_one_until_streams_say_otherwise(self):
        tokens = EventTokens()
        assert tokens.per_event == 1.0
        for _ in range(1_000):
            tokens.observe(300, 100)
        assert tokens.per_event == pytest.approx(3.0, rel=0.01)

    def test_forgets(self):
        tokens = EventTokens()
        for each in (4, 1):
            for _ in range(1_000):
                tokens.observe(100 * each, 100)
        assert tokens.per_event == pytest.approx(1.0, rel=0.05)

    def test_never_less_than_one(self):
        tokens = EventTokens()
        for _ in range(1_000):
            tokens.observe(50, 100)
        assert tokens.per_event == 1.0

    @pytest.mark.parametrize(("output_tokens", "events"), [(10, 0), (10, -1), (0, 10)])
    def test_nothing_from_a_stream_without_tokens_or_events(self, output_tokens, events):
        tokens = EventTokens()
        tokens.observe(output_tokens, events)
        tokens.observe(400, 100)
        assert tokens.per_event == 2.0


class TestAnswerSpeed:
    def test_starts_at_twenty(self):
        assert AnswerSpeed().tokens_per_second == 20.0

    def test_learns_and_forgets(self):
        speed = AnswerSpeed()
        for tokens_per_second in (100, 5):
            for _ in range(1_000):
                speed.observe(10 * tokens_per_second, 10.0)
            assert speed.tokens_per_second == pytest.approx(tokens_per_second, rel=0.01)

    def test_a_long_answer_weighs_as_much_as_many_short_ones(self):
        long, short = AnswerSpeed(), AnswerSpeed()
        long.observe(1_000, 10.0)
        for _ in range(10):
            short.observe(100, 1.0)
        assert long.tokens_per_second == pytest.approx(short.tokens_per_second, rel=0.01)

    @pytest.mark.parametrize(("tokens", "seconds"), [(0, 1.0), (10, 0.0), (-1, 1.0)])
    def test_what_says_nothing_teaches_nothing(self, tokens, seconds):
        speed = AnswerSpeed()
        speed.observe(tokens, seconds)
        assert speed.tokens_per_second == 20.0

    def test_what_was_generated_follows_the_clock_up_to_the_bound(self):
        speed = AnswerSpeed()
        assert [speed.generated_tokens(now, 10.0, 500) for now in (10.0, 12.5, 35.0, 1_000.0)] == [0, 50, 500, 500]
        assert speed.generated_tokens(1_010.0, 10.0, None) == 20_000
