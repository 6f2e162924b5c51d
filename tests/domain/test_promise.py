import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.priority import Priority
from gateway.domain.promise import NO_PROMISE, DrainRate, Promises, departures_to_count_on
from gateway.domain.ticket import Newcomer

ANYBODY = Newcomer()
NONE = (0, 0, 0, 0)


class TestDrainRate:
    def test_unknown_until_five_left(self):
        rate = DrainRate()
        rate.resume(0.0)
        for second in range(1, 5):
            rate.count(float(second))
        assert rate.per_second(4.0) is None
        rate.count(5.0)
        assert rate.per_second(5.0) == pytest.approx(1.0, rel=0.2)

    def test_follows_a_change(self):
        rate = DrainRate()
        rate.resume(0.0)
        for step in range(1, 201):
            rate.count(step * 0.5)
        assert rate.per_second(100.0) == pytest.approx(2.0, rel=0.05)
        for step in range(1, 1_001):
            rate.count(100.0 + step * 0.1)
        assert rate.per_second(200.0) == pytest.approx(10.0, rel=0.05)

    def test_falls_while_nothing_comes(self):
        rate = DrainRate()
        rate.resume(0.0)
        for second in range(1, 21):
            rate.count(float(second))
        assert rate.per_second(80.0) < 0.1

    def test_time_without_waiters_does_not_count(self):
        rate = DrainRate()
        rate.resume(0.0)
        for second in range(1, 21):
            rate.count(float(second))
        before = rate.per_second(20.0)
        rate.pause(20.0)
        assert rate.per_second(1_000.0) == before
        rate.resume(1_000.0)
        rate.resume(1_000.5)
        rate.count(1_001.0)
        assert rate.per_second(1_001.0) == pytest.approx(before, rel=0.1)

    def test_how_long_nothing_came(self):
        rate = DrainRate()
        assert rate.idle_seconds(5.0) == 0.0
        rate.resume(10.0)
        assert rate.idle_seconds(12.0) == 2.0
        rate.count(12.0)
        assert rate.idle_seconds(15.0) == 3.0
        rate.pause(16.0)
        assert rate.idle_seconds(20.0) == 0.0

    def test_five_at_one_instant_are_no_rate_yet(self):
        rate = DrainRate()
        rate.resume(3.0)
        for _ in range(5):
            rate.count(3.0)
        assert rate.per_second(3.0) is None


class TestPromises:
    def test_no_promise_without_a_rate(self):
        assert Promises().promise(0.0, None, 1, 0.0, ANYBODY) == NO_PROMISE
        assert Promises().promise(0.0, 0.0, 1, 0.0, ANYBODY) == NO_PROMISE
        assert NO_PROMISE == (60.0, False)

    def test_the_first_place_after_as_many_left_as_surely_free_one(self):
        advice = Promises().promise(0.0, 2.0, 1, jitter=0.0, to=ANYBODY)
        assert advice == (departures_to_count_on(1) / 2.0, True)

    def test_places_already_promised_come_first(self):
        promises = Promises()
        seconds = [promises.promise(0.0, 2.0, 1, 0.0, ANYBODY).seconds for _ in range(10)]
        assert seconds == sorted(set(seconds))
        assert seconds[-1] == departures_to_count_on(10) / 2.0

    def test_free_places_make_it_sooner_but_never_now(self):
        assert Promises().promise(0.0, 2.0, -5, 0.0, ANYBODY).seconds == 0.05

    def test_jitter_adds_up_to_a_tenth(self):
        sooner, later = (Promises().promise(0.0, 2.0, 1, jitter, ANYBODY).seconds for jitter in (0.0, 1.0))
        assert later == pytest.approx(1.1 * sooner)

    def test_none_beyond_a_minute(self):
        promises = Promises()
        assert promises.promise(0.0, 2.0, 200, 0.0, ANYBODY) == NO_PROMISE
        assert len(promises) == 0

    def test_who_comes_back_in_time_takes_the_place(self):
        promises = Promises()
        due = promises.promise(0.0, 2.0, 1, 0.0, ANYBODY).seconds
        assert not promises.redeem(due - 0.1, "")
        assert promises.redeem(due, "")
        assert not promises.redeem(due, "")

    def test_who_comes_too_late_does_not(self):
        promises = Promises()
        due = promises.promise(0.0, 2.0, 1, 0.0, ANYBODY).seconds
        assert not promises.redeem(due + 2.1, "")
        assert len(promises) == 0

    def test_newcomers_may_take_what_no_promise_needs(self):
        promises = Promises()
        due = promises.promise(0.0, 2.0, 1, 0.0, ANYBODY).seconds
        assert promises.leave_room(0.0, 2.0, free_places=1)
        assert promises.leave_room(0.0, 2.0, free_places=0)
        assert not promises.leave_room(due - 0.5, 2.0, free_places=0)
        assert not promises.leave_room(0.0, None, free_places=0)
        assert promises.leave_room(due + 3.0, None, free_places=0)
        assert promises.leave_room(due + 3.0, None, free_places=-2)

    def test_the_last_of_many_promises_counts_too(self):
        promises = Promises()
        for _ in range(10):
            promises.promise(0.0, 2.0, 1, 0.0, ANYBODY)
        assert promises.leave_room(0.0, 2.0, free_places=0)
        assert not promises.leave_room(0.0, 2.0, free_places=-1)
        assert not promises.leave_room(0.0, 1.0, free_places=5)
        assert promises.leave_room(0.0, 1.0, free_places=9)

    def test_a_place_is_kept_for_the_tenant_to_which_it_was_promised(self):
        promises = Promises()
        advice = [promises.promise(0.0, 2.0, 1, 0.0, Newcomer(tenant=tenant)) for tenant in ("a", "b", "a")]
        due = advice[-1].seconds
        assert not promises.is_due(due, "c")
        assert promises.redeem(due, "b")
        assert not promises.redeem(due, "b")
        assert promises.redeem(due, "a")
        assert promises.is_due(due, "a")
        assert not promises.is_due(due + 60.0, "a")

    def test_who_comes_back_takes_no_place_of_one_that_must_have_come_back_before_while_there_are_others(self):
        promises = Promises()
        for due in (10.0, 20.0):
            promises.promise(0.0, 1.0, 1, 0.0, Newcomer(first_token_by=due))
        second = departures_to_count_on(2)
        assert promises.redeem(second, "").first_token_by == 20.0
        assert promises.redeem(second, "").first_token_by == 10.0

    def test_only_the_more_urgent_and_equals_are_ahead(self):
        promises = Promises()
        for priority in Priority:
            promises.promise(0.0, 10.0, 1, 0.0, Newcomer(priority=priority))
        assert [promises.ahead_of(priority) for priority in Priority] == [1, 2, 3, 4]

    def test_none_that_the_client_would_come_back_for_in_vain(self):
        seconds = departures_to_count_on(1)
        assert Promises().promise(0.0, 1.0, 1, 0.0, ANYBODY, useful_until=1.3 * seconds) == (seconds, True)
        assert Promises().promise(0.0, 1.0, 1, 0.0, ANYBODY, useful_until=1.2 * seconds) == NO_PROMISE

    def test_who_was_promised_nothing_is_not_bound_by_those_of_one_with_several(self):
        promises = Promises()
        newcomers = [Newcomer(tenant="b", priority=priority) for priority in Priority]
        bound = []
        for _ in range(4):
            promises.promise(0.0, 2.0, 1, 0.0, Newcomer(tenant="a"))
            bound.append([promises.bind(each, waiting=NONE) for each in newcomers])
        assert bound == [[True] * 4] * 3 + [[False] * 4]
        assert promises.bind(Newcomer(tenant="a"), waiting=NONE)
        assert not promises.bind(Newcomer(tenant="a", priority=Priority.INTERACTIVE), waiting=NONE)

    def test_nor_is_one_that_has_a_little_bound_by_those_of_one_with_several_times_as_many(self):
        promises = Promises()
        for _ in range(11):
            promises.promise(0.0, 2.0, 1, 0.0, Newcomer(tenant="a"))
        assert not promises.bind(Newcomer(tenant="b"), waiting=(0, 0, 1, 0))
        assert promises.bind(Newcomer(tenant="b"), waiting=(0, 0, 1, 1))
        assert not promises.bind(Newcomer(tenant="b"), waiting=(0, 0, 0, 9))
        promises.promise(0.0, 4.0, 1, 0.0, Newcomer(tenant="b"))
        assert not promises.bind(Newcomer(tenant="c"), waiting=NONE)
        assert promises.bind(Newcomer(tenant="b"), waiting=NONE)

    def test_where_all_hold_few_everybody_is_bound(self):
        promises = Promises()
        for number in range(40):
            promises.promise(0.0, 100.0, 1, 0.0, Newcomer(tenant=str(number % 20)))
        assert promises.bind(Newcomer(tenant="other"), waiting=NONE)

    @given(rate=st.floats(0.1, 100), missing=st.integers(-20, 100), jitter=st.floats(0, 1), refused=st.integers(1, 80))
    def test_promises_are_within_a_minute_and_in_order(self, rate, missing, jitter, refused):
        promises = Promises()
        advice = [promises.promise(7.0, rate, missing, jitter, ANYBODY) for _ in range(refused)]
        kept = [each.seconds for each in advice if each.is_promise]
        assert kept == sorted(kept)
        assert len(promises) == len(kept)
        assert all(0.05 <= seconds <= 60.0 for seconds in kept)
        assert all(each == NO_PROMISE for each in advice if not each.is_promise)
