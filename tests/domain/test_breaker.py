"""A server that breaks is left alone, tried again one request at a time, and never for being busy."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.breaker import FROZEN_SECONDS, Breaker, Progress


@pytest.fixture
def breaker():
    return Breaker()


def fail(breaker, times, *, at=0.0):
    for _ in range(times):
        breaker.failed(at)


class TestOpening:
    def test_closed_at_first(self, breaker):
        assert breaker.allows(0.0)

    def test_five_failures_open_it(self, breaker):
        fail(breaker, 4)
        assert breaker.allows(0.0)
        fail(breaker, 1)
        assert not breaker.allows(0.0)

    def test_failures_among_many_successes_do_not(self, breaker):
        for now in range(100):
            breaker.failed(float(now))
            for _ in range(3):
                breaker.succeeded(float(now))
        assert breaker.allows(100.0)

    def test_every_other_request_that_fails_does(self, breaker):
        for _ in range(5):
            breaker.succeeded(0.0)
            breaker.failed(0.0)
        assert not breaker.allows(0.0)

    def test_what_was_half_a_minute_ago_is_forgotten(self, breaker):
        fail(breaker, 4, at=0.0)
        fail(breaker, 4, at=30.1)
        assert breaker.allows(30.1)
        fail(breaker, 1, at=30.2)
        assert not breaker.allows(30.2)

    def test_an_engine_that_froze_opens_it_at_once_and_keeps_it_open(self, breaker):
        for now in range(100):
            breaker.froze(float(now))
            assert not breaker.allows(now + 0.9)
        assert breaker.allows(99.0 + 5.0)


class TestTrials:
    @pytest.fixture
    def open_breaker(self, breaker):
        fail(breaker, 5)
        return breaker

    def test_half_open_after_five_seconds_for_one_request_a_second(self, open_breaker):
        assert not open_breaker.allows(4.9)
        assert open_breaker.allows(5.0)
        open_breaker.sent(5.0)
        assert not open_breaker.allows(5.9)
        assert open_breaker.allows(6.0)

    def test_a_trial_that_succeeds_closes_it(self, open_breaker):
        open_breaker.sent(5.0)
        open_breaker.succeeded(5.5)
        assert open_breaker.allows(5.5)
        fail(open_breaker, 5, at=6.0)
        assert not open_breaker.allows(10.9)
        assert open_breaker.allows(11.0)

    def test_each_that_fails_doubles_the_time_up_to_a_minute(self, open_breaker):
        now, waits = 5.0, []
        for _ in range(6):
            open_breaker.failed(now)
            wait = next(seconds for seconds in range(1000) if open_breaker.allows(now + seconds))
            waits.append(wait)
            now += wait
        assert waits == [10, 20, 40, 60, 60, 60]

    def test_what_was_sent_before_it_opened_says_nothing_while_it_is_open(self, open_breaker):
        open_breaker.succeeded(1.0)
        assert not open_breaker.allows(1.0)
        fail(open_breaker, 10, at=4.0)
        assert open_breaker.allows(5.0)

    def test_a_failure_that_is_forgotten_leaves_nothing_behind(self, breaker):
        fail(breaker, 4)
        breaker.succeeded(31.0)
        fail(breaker, 4, at=31.0)
        assert breaker.allows(31.0)

    def test_sending_to_a_server_that_is_well_is_no_trial(self, breaker):
        breaker.sent(0.0)
        assert breaker.allows(0.0)


@given(st.lists(st.tuples(st.sampled_from(["failed", "succeeded", "froze", "sent"]), st.floats(0.0, 20.0))))
def test_whatever_happened_it_is_tried_again_within_a_minute(events):
    breaker, now = Breaker(), 0.0
    for event, later in events:
        now += later
        getattr(breaker, event)(now)
    assert breaker.allows(now + 60.0)


class TestProgress:
    def looks(self, *made, is_owed=True):
        progress = Progress()
        return [progress.is_frozen(float(second), each, is_owed=is_owed) for second, each in enumerate(made)]

    def test_frozen_when_nothing_is_made_for_long_that_is_owed(self):
        frozen = self.looks(*[1] * (int(FROZEN_SECONDS) + 2))
        assert frozen == [False] * int(FROZEN_SECONDS) + [True, True]

    def test_not_while_anything_moves_however_little(self):
        assert not any(self.looks(*(second // 10 for second in range(60))))

    def test_not_while_nothing_is_owed(self):
        assert not any(self.looks(*[1] * 60, is_owed=False))

    def test_time_without_work_does_not_count(self):
        progress = Progress()
        progress.is_frozen(0.0, 1, is_owed=True)
        progress.is_frozen(10.0, 1, is_owed=False)
        assert not progress.is_frozen(20.0, 1, is_owed=True)
        assert progress.is_frozen(25.0, 1, is_owed=True)
