"""Who is refused because it would be late, who waits, and what is told of it."""

from math import inf

import pytest

from gateway.domain.admission import Admission
from gateway.domain.decision import Refusal, Verdict
from gateway.domain.errors import Code
from gateway.domain.forecast import Forecast
from gateway.domain.holdings import Holdings
from gateway.domain.outcome import Reason
from gateway.domain.priority import Priority
from gateway.domain.promise import NO_PROMISE
from gateway.domain.quantities import Amounts, Capacity
from gateway.domain.queue import QueuePolicy
from gateway.domain.slo import ServiceLevel
from gateway.domain.ticket import Newcomer, Ticket

ADMITTED, WAITING = Verdict.ADMITTED, Verdict.WAITING
NOTHING_KNOWN = Forecast()


def known(*, first_token_per_second=1_000.0, token_seconds=0.01) -> Forecast:
    """The pace to the first token, and from token to token at any load."""
    forecast = Forecast()
    for _ in range(40):
        forecast.first_token.observe(int(first_token_per_second), 1.0)
        forecast.token.observe(100, 100 * token_seconds, 4)
    return forecast


def door(forecast=NOTHING_KNOWN, *, sequences=2, **policy) -> Admission:
    return Admission(
        Holdings(Capacity(None, sequences)),
        QueuePolicy(**policy),
        jitter=lambda: 0.0,
        forecast=forecast.copy(),
    )


def ticket(tokens=600, *, now=0.0, first=inf, total=inf, wait=30.0, pixels=0, **fields) -> Ticket:
    due = {"first_token_by": now + first, "answer_by": now + total}
    return Ticket(Amounts(1, 1, 0, pixels).with_prefill(tokens), now, now + wait, cost_tokens=tokens, **due | fields)


def busy(forecast, *, a_second=2.0, tokens=600) -> Admission:
    """Both seats are taken and nobody waits; the line was seen to move: `a_second` requests of 600 tokens."""
    one = door(forecast)
    holders = [ticket(), ticket()]
    assert [one.offer(each, -20.0) for each in holders] == [ADMITTED, ADMITTED]
    now = -20.0
    while now < 0.0:
        waiter = ticket(tokens, now=now)
        assert one.offer(waiter, now) is WAITING
        one.tick(now)
        now += 1.0 / a_second
        one.give_back(holders.pop(0).amounts)
        assert one.tick(now) == [(waiter, ADMITTED)]
        holders.append(waiter)
    for each in holders:
        one.give_back(Amounts(prefill_tokens=each.prefill_tokens))
    return one


def refusal_of(decision) -> Refusal:
    assert isinstance(decision, Refusal)
    return decision


class TestNewcomers:
    def test_what_is_not_known_refuses_nobody(self):
        one = door(sequences=1)
        one.offer(ticket(), 0.0)
        for _ in range(50):
            assert one.offer(ticket(first=0.5), 0.0) is WAITING

    def test_an_idle_engine_refuses_nobody(self):
        assert door(known()).offer(ticket(50_000, first=1.0, total=1.0), 0.0) is ADMITTED

    def test_its_own_prompt_beside_others_takes_too_long(self):
        one = door(known())
        one.offer(ticket(), 0.0)
        refusal = refusal_of(one.offer(ticket(3_000, first=4.0), 0.0))
        assert (refusal.reason, refusal.miss.what, refusal.ahead) == (Reason.WOULD_MISS_DEADLINE, "first token", 0)
        assert refusal.miss.expected_seconds == pytest.approx(1.5 * 3.6, rel=0.01)
        assert one.offer(ticket(1_000, first=4.0), 0.0) is ADMITTED

    def test_a_line_that_moves_too_slowly(self):
        one = busy(known(first_token_per_second=10_000.0))
        decisions = [one.offer(ticket(first=4.0), 0.0) for _ in range(9)]
        assert decisions[:3] == [WAITING] * 3
        last = refusal_of(decisions[-1])
        assert last.ahead == decisions.count(WAITING) < 7
        room = 1.0 + 1.5 * (last.ahead / 16) ** 2
        assert last.miss.expected_seconds == pytest.approx(room * (last.ahead + 1) / 2.0, rel=0.2)

    def test_a_short_line_keeps_little_room_for_a_slow_engine(self):
        one = busy(known(first_token_per_second=10_000.0), a_second=0.5)
        assert one.offer(ticket(first=3.0), 0.0) is WAITING
        assert refusal_of(one.offer(ticket(first=3.0), 0.0)).ahead == 1

    def test_who_is_more_urgent_does_not_wait_for_the_others(self):
        one = busy(known(first_token_per_second=10_000.0))
        for _ in range(20):
            one.offer(ticket(priority=Priority.BATCH), 0.0)
        assert refusal_of(one.offer(ticket(first=4.0, priority=Priority.BATCH), 0.0)).ahead == 20
        assert one.offer(ticket(first=4.0, priority=Priority.INTERACTIVE), 0.0) is WAITING

    def test_an_answer_that_would_end_too_late(self):
        one = door(known(token_seconds=0.1))
        one.offer(ticket(), 0.0)
        assert one.offer(ticket(total=15.0), 0.0) is ADMITTED
        miss = refusal_of(one.offer(ticket(total=15.0, likely_tokens=200), 0.0)).miss
        assert (miss.what, miss.due_seconds) == ("end of the answer", 15.0)
        assert miss.expected_seconds > 20.0

    def test_it_is_told_with_the_numbers_and_without_a_promise(self):
        one = busy(known(first_token_per_second=10_000.0))
        for _ in range(20):
            one.offer(ticket(), 0.0)
        error = refusal_of(one.offer(ticket(first=4.0), 0.0)).error(one.policy)
        assert (error.code, error.status, error.is_promise) == (Code.RATE_LIMIT_EXCEEDED, 429, False)
        assert error.retry_after_seconds == NO_PROMISE.seconds
        assert error.message.startswith("The first token is expected within 2")
        assert "and is due in 4.0 s; 20 requests go before this one." in error.message

    def test_who_only_asks_is_told_the_same_and_moves_nothing(self):
        one = busy(known(first_token_per_second=10_000.0))
        for _ in range(20):
            one.offer(ticket(), 0.0)
        assert refusal_of(one.would_decide(ticket(first=4.0), 0.0).decision).reason is Reason.WOULD_MISS_DEADLINE
        assert one.would_decide(ticket(first=60.0), 0.0).decision is WAITING
        assert one.statistics(0.0).queue_depth == 20


class TestWaiters:
    def test_who_can_no_longer_be_served_in_time_is_refused_before_it_is_sent(self):
        one = busy(known(first_token_per_second=1_000.0))
        waiter = ticket(first=4.0)
        assert one.offer(waiter, 0.0) is WAITING
        assert one.tick(0.0) == []
        assert one.next_deadline == pytest.approx(4.0 - 1.5 * 0.6, rel=0.01)
        ((lost, decision),) = one.tick(one.next_deadline)
        assert lost is waiter
        assert refusal_of(decision).reason is Reason.WOULD_MISS_DEADLINE
        assert "could no longer be served in time" in decision.error(one.policy).message

    def test_who_waited_for_as_long_as_anybody_may_waited_in_vain(self):
        one = busy(known(first_token_per_second=1_000.0))
        one.offer(ticket(first=40.0), 0.0)
        ((_, decision),) = one.tick(30.0)
        assert refusal_of(decision).reason is Reason.DEADLINE_PASSED

    def test_those_that_are_overtaken_by_the_more_urgent_are_refused_as_soon_as_that_is_sure(self):
        one = busy(known(first_token_per_second=10_000.0))
        waiter = ticket(first=4.0)
        assert one.offer(waiter, 0.0) is WAITING
        assert one.tick(0.0) == []
        for _ in range(30):
            assert one.offer(ticket(priority=Priority.INTERACTIVE), 0.1) is WAITING
        assert [lost for lost, _ in one.tick(0.2)] == [waiter]

    def test_one_that_is_late_is_not_let_in_although_there_is_room(self):
        forecast = known(first_token_per_second=10_000.0)
        one = busy(forecast)
        waiter = ticket(first=4.0)
        assert one.offer(waiter, 0.0) is WAITING
        one.tick(3.85)
        for _ in range(60):
            forecast.first_token.observe(100, 1.0)
        one.give_back(Amounts(1, 1))
        assert [(lost, decision.reason) for lost, decision in one.tick(3.9)] == []
        assert [lost for lost, _ in one.tick(3.96)] == [waiter]


def full_line() -> Admission:
    """One runs and one waits, of whom each second one was seen to leave; more may not wait."""
    full = door(sequences=1, requests=1)
    for second in range(21):
        now = float(second)
        holder, waiter = ticket(now=now), ticket(now=now)
        assert [full.offer(holder, now), full.offer(waiter, now)] == [ADMITTED, WAITING]
        full.tick(now)
        if second < 20:
            full.give_back(holder.amounts)
            full.tick(now + 0.99)
            full.give_back(waiter.amounts)
    return full


class TestPromises:
    def test_no_place_is_promised_for_when_it_is_of_no_use(self):
        full = full_line()
        assert refusal_of(full.offer(ticket(now=20.0), 20.0)).advice.is_promise
        assert refusal_of(full.offer(ticket(now=20.0, first=1.0), 20.0)).advice == NO_PROMISE

    def test_the_time_of_one_that_comes_back_runs_since_it_came_first(self):
        full = full_line()
        first_try = refusal_of(full.offer(ticket(now=20.0, first=10.0, total=15.0, tenant="a"), 20.0))
        back = 20.0 + first_try.advice.seconds
        again = ticket(now=back, first=10.0, total=15.0, tenant="a", is_return=True)
        full.offer(again, back)
        assert (again.first_token_by, again.answer_by) == (30.0, 35.0)

    def test_what_waiting_would_take_is_no_reason_to_refuse_one_that_comes_back(self):
        full = full_line()
        seconds = refusal_of(full.offer(ticket(now=20.0, first=9.0), 20.0)).advice.seconds
        full.tick(20.0)
        full.give_back(Amounts(1, 1))
        full.tick(20.0)
        back = 20.0 + seconds
        assert refusal_of(full.offer(ticket(now=back, first=1.5), back)).reason is Reason.WOULD_MISS_DEADLINE
        again = ticket(now=back, first=9.0, is_return=True)
        assert full.offer(again, back) is WAITING
        assert again.keeps_place

    def test_none_is_promised_to_one_whose_flow_has_its_turns_too_slowly(self):
        one = busy(known(first_token_per_second=10_000.0))
        for _ in range(3):
            assert one.offer(ticket(3_000), 0.0) is WAITING
        own, other = Newcomer(first_token_by=10.0), Newcomer(first_token_by=10.0, tenant="b")
        assert one.promise_after(own, 0.0, 0.0, is_kept=False) == NO_PROMISE
        assert one.promise_after(other, 0.0, 0.0, is_kept=False).is_promise

    def test_newcomers_count_those_that_will_come_back(self):
        one = busy(known(first_token_per_second=10_000.0))
        assert one.offer(ticket(first=4.0), 0.0) is WAITING
        before = one.would_decide(ticket(first=4.0), 0.0).decision
        for _ in range(6):
            one.promise_after(Newcomer(), 0.0, 0.0, is_kept=True)
        after = refusal_of(one.would_decide(ticket(first=4.0), 0.0).decision)
        assert (before, after.ahead) == (WAITING, 7)


class TestImagesBesideTexts:
    def test_images_leave_room_for_the_next_text_while_texts_come(self):
        one = door(sequences=2)
        assert one.offer(ticket(first=9.0), 0.0) is ADMITTED
        assert one.offer(ticket(first=9.0, pixels=1_000), 1.0) is WAITING
        assert one.tick(1.0) == []
        assert one.offer(ticket(first=9.0, tokens=50), 2.0) is WAITING
        assert len(one.tick(2.0)) == 1

    def test_not_where_no_text_came_lately_and_not_where_nothing_was_asked_of_them(self):
        one = door(sequences=2)
        one.offer(ticket(first=99.0), 0.0)
        assert one.offer(ticket(first=9.0, now=11.0, pixels=1_000), 11.0) is ADMITTED
        two = door(sequences=2)
        two.offer(ticket(), 0.0)
        assert two.offer(ticket(pixels=1_000), 1.0) is ADMITTED


def bounded_door(tokens=2_000, forecast=NOTHING_KNOWN) -> Admission:
    """So many tokens may be on their way to the first token at once; all images are still decoded."""
    holdings = Holdings(Capacity(None, 128, None, None, tokens, tokens))
    return Admission(holdings, QueuePolicy(), jitter=lambda: 0.0, forecast=forecast.copy())


class TestImagesThatAreDecoded:
    def test_texts_do_not_wait_for_them(self):
        one = bounded_door()
        assert one.offer(ticket(1_900, pixels=1_000), 0.0) is ADMITTED
        assert one.offer(ticket(1_500), 0.0) is ADMITTED

    def test_nor_for_one_that_waits_for_them(self):
        one = bounded_door()
        decoded, image, text = ticket(1_800, pixels=1_000), ticket(1_000, pixels=1_000), ticket(300)
        assert [one.offer(each, 0.0) for each in (decoded, text, image)] == [ADMITTED, ADMITTED, WAITING]
        texts = [ticket(300, tenant=str(number)) for number in range(6)]
        assert [one.offer(each, 0.0) for each in texts] == [WAITING] * 6
        assert one.tick(0.0) == [(each, ADMITTED) for each in texts[:5]]

    def test_nor_is_one_late_for_them(self):
        one = bounded_door(4_000, known(first_token_per_second=1_000.0))
        assert one.offer(ticket(3_000, pixels=1_000), 0.0) is ADMITTED
        assert isinstance(one.offer(ticket(600, first=4.0, pixels=1_000), 0.0), Refusal)
        assert one.offer(ticket(600, first=4.0), 0.0) is ADMITTED

    def test_nor_for_those_that_wait_for_them(self):
        one = busy(known(first_token_per_second=10_000.0))
        for _ in range(9):
            assert one.offer(ticket(pixels=1_000, priority=Priority.INTERACTIVE), 0.0) is WAITING
        assert isinstance(one.would_decide(ticket(first=4.0), 0.0).decision, Refusal)
        one._budget.grow(Amounts(image_prefill_tokens=600))
        assert one.would_decide(ticket(first=4.0), 0.0).decision is WAITING

    def test_images_wait_for_all_that_are_to_begin_before_them(self):
        one = bounded_door()
        text, first, second = ticket(600), ticket(1_000, pixels=1_000), ticket(1_000, pixels=1_000)
        assert [one.offer(each, 0.0) for each in (text, first, second)] == [ADMITTED, ADMITTED, WAITING]
        one.give_back(text.amounts)
        assert one.tick(0.0) == [(second, ADMITTED)]

    def test_one_that_waits_for_a_text_to_begin_is_passed_by_no_more_texts_than_it_costs(self):
        one = bounded_door()
        began, image = ticket(1_500), ticket(1_000, pixels=1_000)
        assert [one.offer(each, 0.0) for each in (began, image)] == [ADMITTED, WAITING]
        texts = [ticket(400, tenant=str(number)) for number in range(3)]
        assert [one.offer(each, 0.0) for each in texts] == [WAITING] * 3
        assert one.tick(0.0) == [(texts[0], ADMITTED)]
        one.give_back(texts[0].amounts)
        assert one.tick(0.0) == [(texts[1], ADMITTED)]
        one.give_back(texts[1].amounts)
        assert one.tick(0.0) == []
        one.give_back(began.amounts)
        assert one.tick(0.0) == [(image, ADMITTED), (texts[2], ADMITTED)]


def test_a_level_leaves_the_engine_an_eighth_of_the_time_to_the_first_token_and_the_rest_to_the_answer():
    forecast = Forecast.of(ServiceLevel(4.0, 15.0))
    assert forecast.first_token.window_tokens == 2_000
    for load in (2, 4, 6, 8, 10):
        forecast.token.observe(100, load, load)
    assert forecast.most_sequences == 11
    assert Forecast.of(ServiceLevel()).first_token.window_tokens is None
    assert Forecast.of(ServiceLevel()).most_sequences is None
    assert Forecast.of(ServiceLevel(total_seconds=8.0)).first_token.window_tokens is None
