"""What a tenant may have in a minute and at once: nothing above it is let in, and what was not used comes back."""

import contextlib
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.bill import Bill
from gateway.domain.errors import Code, GatewayError
from gateway.domain.outcome import Reason
from gateway.domain.quota import Amounts, Quantity, Quota, QuotaLimits, Shortage

SIXTY = QuotaLimits(requests=60)


def opened(quota, now=0.0):
    bill = Bill(quota, "team-a")
    bill.open(now)
    return bill


def used(quota, now):
    return [level.limit - level.remaining for level in quota.levels(now)]


class TestAMinutesWorth:
    def test_may_come_at_once_and_then_comes_back_evenly(self):
        quota = Quota(SIXTY)
        for _ in range(60):
            opened(quota).sent(0.0)
        with pytest.raises(GatewayError) as refused:
            opened(quota)
        assert (refused.value.code, refused.value.reason) == (Code.RATE_LIMIT_EXCEEDED, Reason.TENANT_QUOTA)
        assert (refused.value.retry_after_seconds, refused.value.is_promise) == (pytest.approx(1.0), True)
        assert refused.value.message == (
            "The tenant 'team-a' may have 60 requests per minute (tenants[].quota.requests_per_minute); 60 are used "
            "and this request needs 1. There is room for it in 1.0 seconds."
        )
        opened(quota, 1.0)

    def test_what_one_request_can_never_have_is_refused_for_good(self):
        bill = opened(Quota(QuotaLimits(tokens=100)))
        with pytest.raises(GatewayError) as refused:
            bill.price(0.0, tokens=101, images=0, pixels=0)
        assert (refused.value.status, refused.value.code) == (400, Code.REQUEST_EXCEEDS_BUDGET)
        assert refused.value.reason is Reason.TENANT_QUOTA
        assert "101" in refused.value.message

    def test_a_charge_is_taken_whole_or_not_at_all(self):
        quota = Quota(QuotaLimits(tokens=100, images=2))
        assert quota.charge(0.0, Amounts(tokens=50, images=2)) is None
        assert quota.charge(0.0, Amounts(tokens=10, images=1)) == Shortage(Quantity.IMAGES, 2, 1, 2, 30.0)
        assert used(quota, 0.0) == [50, 2]

    def test_of_several_the_one_is_named_that_takes_longest(self):
        quota = Quota(QuotaLimits(tokens=100, images=2, pixels=10))
        quota.charge(0.0, Amounts(0, 100, 1, 10))
        shortage = quota.charge(0.0, Amounts(0, 90, 1, 1))
        assert shortage is not None
        assert (shortage.quantity, shortage.wait_seconds) == (Quantity.TOKENS, pytest.approx(54.0))

    def test_after_more_than_was_expected_the_next_wait_longer_and_beyond_a_minute_nothing_is_promised(self):
        quota = Quota(QuotaLimits(tokens=60))
        bill = opened(quota)
        bill.price(0.0, tokens=60, images=0, pixels=0)
        bill.sent(0.0)
        bill.close(0.0, tokens=120)
        assert quota.levels(0.0)[0].remaining == 0
        with pytest.raises(GatewayError) as refused:
            opened(quota).price(0.0, tokens=1, images=0, pixels=0)
        assert (refused.value.retry_after_seconds, refused.value.is_promise) == (pytest.approx(61.0), False)

    def test_levels_tell_what_is_left_and_when_all_of_it_is_back(self):
        quota = Quota(QuotaLimits(requests=60, tokens=600))
        bill = opened(quota)
        bill.price(0.0, tokens=100, images=0, pixels=0)
        requests, tokens = quota.levels(0.0)
        assert (requests.limit, requests.remaining, requests.reset_seconds) == (60, 59, 1.0)
        assert (tokens.limit, tokens.remaining, tokens.reset_seconds) == (600, 500, 10.0)
        assert quota.used_shares(0.0) == {Quantity.REQUESTS: 1 / 60, Quantity.TOKENS: 1 / 6}


class TestAtOnce:
    def test_no_more_are_let_in_than_may_be_inside(self):
        quota = Quota(QuotaLimits(concurrency=2))
        first, _ = opened(quota), opened(quota)
        assert quota.used_shares(0.0) == {Quantity.CONCURRENCY: 1.0}
        with pytest.raises(GatewayError) as refused:
            opened(quota)
        assert (refused.value.status, refused.value.reason) == (429, Reason.TENANT_CONCURRENCY)
        assert not refused.value.is_promise
        first.close(0.0)
        opened(quota)

    def test_who_is_refused_for_another_quota_is_not_inside(self):
        quota = Quota(QuotaLimits(requests=1, concurrency=5))
        opened(quota).sent(0.0)
        with pytest.raises(GatewayError):
            opened(quota)
        assert quota.used_shares(0.0)[Quantity.CONCURRENCY] == 0.2


class TestABill:
    def test_one_that_was_never_sent_costs_nothing(self):
        quota = Quota(QuotaLimits(requests=10, tokens=100, images=5, pixels=50))
        bill = opened(quota)
        bill.price(1.0, tokens=30, images=2, pixels=20)
        assert used(quota, 2.0) == [1, 30, 2, 20]
        bill.close(3.0)
        assert used(quota, 3.0) == [0, 0, 0, 0]

    def test_it_is_priced_once_however_many_servers_are_tried(self):
        quota = Quota(QuotaLimits(tokens=100))
        bill = opened(quota)
        bill.price(0.0, tokens=30, images=0, pixels=0)
        bill.sent(0.0)
        bill.price(0.0, tokens=40, images=0, pixels=0)
        bill.sent(0.0)
        assert used(quota, 0.0) == [30]

    @pytest.mark.parametrize(("said", "left"), [({}, 30), ({"tokens": 50}, 50), ({"tokens": 10}, 10)])
    def test_it_is_trued_up_by_what_the_server_counted(self, said, left):
        quota = Quota(QuotaLimits(tokens=100))
        bill = opened(quota)
        bill.price(0.0, tokens=30, images=0, pixels=0)
        bill.sent(0.0)
        bill.close(0.0, **said)
        assert used(quota, 0.0) == [left]

    def test_who_got_no_answer_gets_all_of_it_back(self):
        quota = Quota(QuotaLimits(requests=5, tokens=100))
        bill = opened(quota)
        bill.price(0.0, tokens=30, images=0, pixels=0)
        bill.sent(0.0)
        bill.close(0.0, tokens=30, is_void=True)
        assert used(quota, 0.0) == [0, 0]

    def test_what_has_leaked_meanwhile_is_not_given_back_again(self):
        quota = Quota(QuotaLimits(tokens=60))
        bill = opened(quota)
        bill.price(0.0, tokens=30, images=0, pixels=0)
        bill.sent(0.0)
        quota.charge(20.0, Amounts(tokens=50))
        bill.close(20.0, is_void=True)
        assert used(quota, 20.0) == [50]

    def test_closing_it_again_does_nothing(self):
        quota = Quota(QuotaLimits(requests=5, concurrency=2))
        bill = opened(quota)
        bill.close(0.0)
        bill.close(0.0)
        assert quota.used_shares(0.0) == {Quantity.REQUESTS: 0.0, Quantity.CONCURRENCY: 0.0}

    def test_one_that_is_closed_costs_nothing_though_it_is_sent(self):
        quota = Quota(QuotaLimits(requests=5))
        bill = opened(quota)
        bill.close(0.0)
        bill.sent(0.0)
        assert used(quota, 0.0) == [0]

    @pytest.mark.parametrize("is_ended_first", [True, False])
    def test_one_whose_work_goes_on_is_inside_until_both_are_over(self, is_ended_first):
        quota = Quota(QuotaLimits(concurrency=1))
        bill = opened(quota)
        bill.stay()
        first, second = (lambda: bill.close(0.0), bill.leave)[:: 1 if is_ended_first else -1]
        first()
        assert quota.used_shares(0.0) == {Quantity.CONCURRENCY: 1.0}
        second()
        second()
        assert quota.used_shares(0.0) == {Quantity.CONCURRENCY: 0.0}

    def test_one_that_was_not_opened_has_nothing_to_close(self):
        quota = Quota(QuotaLimits(concurrency=1))
        opened(quota)
        late = Bill(quota, "team-a")
        with pytest.raises(GatewayError):
            late.open(0.0)
        late.close(0.0)
        late.stay()
        late.leave()
        assert quota.used_shares(0.0) == {Quantity.CONCURRENCY: 1.0}


SECONDS = st.floats(0, 60)
REQUEST = st.tuples(SECONDS, st.integers(1, 80), SECONDS, st.booleans())


def play(limit, requests):
    """Requests come so many seconds after each other, ask for tokens, wait so long, and are sent or not. When what was
    let in was sent, and how much of it.
    """
    quota, bills, sent, come = Quota(QuotaLimits(tokens=limit)), {}, [], 0.0
    events = []
    for number, (gap, _, wait, _) in enumerate(requests):
        come += gap
        events += [(come, 0, number), (come + wait, 1, number)]
    for now, is_end, number in sorted(events):
        _, tokens, _, is_sent = requests[number]
        if not is_end:
            bills[number] = opened(quota, now)
            with contextlib.suppress(GatewayError):
                bills[number].price(now, tokens=tokens, images=0, pixels=0)
        elif bills[number].is_priced and is_sent:
            bills[number].sent(now)
            sent.append((now, tokens))
        if is_end:
            bills[number].close(now)
            bills[number].close(now, is_void=True)
        assert quota.used_shares(now)[Quantity.TOKENS] <= 1 + 1e-6
    return sent


class TestConservation:
    @given(st.integers(1, 100), st.lists(REQUEST, max_size=20))
    def test_in_no_time_more_is_let_in_than_the_limit_and_what_leaks_in_it(self, limit, requests):
        sent = play(limit, requests)
        for first, (start, _) in enumerate(sent):
            for last in range(first, len(sent)):
                tokens = sum(tokens for _, tokens in sent[first : last + 1])
                assert tokens <= limit + limit * (sent[last][0] - start) / 60 + 1e-3

    @given(st.integers(1, 100), st.lists(st.tuples(st.floats(0, 100), st.integers(1, 60)), max_size=8), st.data())
    def test_what_was_held_and_given_back_leaves_no_trace(self, limit, others, data):
        now, asked = 0.0, data.draw(st.integers(1, limit))
        with_it, without = Quota(QuotaLimits(tokens=limit)), Quota(QuotaLimits(tokens=limit))
        bill = opened(with_it)
        bill.price(0.0, tokens=asked, images=0, pixels=0)
        for gap, tokens in others:
            now += gap
            # What both take: the one that holds more may refuse it.
            if with_it.charge(now, Amounts(tokens=tokens)) is None:
                assert without.charge(now, Amounts(tokens=tokens)) is None
                with_it.spend(now, Amounts(tokens=tokens))
                without.spend(now, Amounts(tokens=tokens))
        bill.close(now)
        assert with_it.used_shares(now)[Quantity.TOKENS] == pytest.approx(without.used_shares(now)[Quantity.TOKENS])

    @given(
        st.integers(1, 100),
        st.lists(st.tuples(st.floats(0, 60), st.integers(1, 60)), max_size=8),
        st.integers(1, 100),
        st.integers(0, 100),
    )
    def test_truing_up_never_makes_more_room_than_if_it_had_been_known_before(self, limit, others, expected, really):
        charged, known = Quota(QuotaLimits(tokens=limit)), Quota(QuotaLimits(tokens=limit))
        really = min(really, expected)
        for quota, tokens in ((charged, expected), (known, really)):
            quota.charge(0.0, Amounts())
            quota.true_up(0.0, Amounts(), Amounts(tokens=tokens), 0.0)
        now = 0.0
        for gap, tokens in others:
            now += gap
            for quota in (charged, known):
                quota.true_up(now, Amounts(), Amounts(tokens=tokens), now)
        charged.true_up(now, Amounts(tokens=expected), Amounts(tokens=really), 0.0)
        after, before = charged.used_shares(now)[Quantity.TOKENS], known.used_shares(now)[Quantity.TOKENS]
        assert after >= before - 1e-9
        if not now:
            assert after == pytest.approx(before)


def test_a_clock_that_steps_back_gives_nothing():
    quota = Quota(SIXTY)
    bill = opened(quota, 100.0)
    bill.sent(100.0)
    assert used(quota, 50.0) == [1]
    assert inf > quota.levels(50.0)[0].reset_seconds > 0
