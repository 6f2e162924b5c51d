"""The arithmetic of the tables, on visits that are written down by hand."""

import pytest

from benchmarks.overload import judge
from benchmarks.overload.traffic import Habits, Stream, endless
from benchmarks.overload.upstream import MIXED
from benchmarks.overload.visit import Ending, Record, Slo, Visit

HABITS = Habits(kind="text", output_median=10, output_spread=0.0)
REQUEST = next(endless(1, Stream("any", 1.0, ("a",), HABITS)))
WORK = REQUEST.work_seconds(MIXED)
BAR = judge.Bar(Slo(4.0, 15.0), 20.0, MIXED, capacity=WORK)  # one such request a second


def served(at, first_after=1.0, last_after=2.0, *, refused=0, tenant=None):
    visit = Visit(REQUEST if tenant is None else next(endless(1, Stream("any", 1.0, (tenant,), HABITS))), at)
    for _ in range(refused):
        visit.begin_attempt(at)
        visit.refuse("429 queue_full", at + 0.01, {"retry-after-ms": "300"})
    visit.begin_attempt(at)
    step = (last_after - first_after) / 9
    visit.token_times = [at + first_after + step * place for place in range(10)]
    visit.first_token_at, visit.ended_at, visit.ending = at + first_after, at + last_after, Ending.DONE
    return visit


def refused(at, after=0.01):
    visit = Visit(REQUEST, at)
    visit.begin_attempt(at)
    visit.refuse("429 queue_full", at + after, {})
    return visit


def left(at):
    visit = Visit(REQUEST, at)
    visit.begin_attempt(at)
    visit.leave()
    return visit


def figures(visits, **record):
    return judge.figures([Record(visits, 20.0, **record)], BAR, seed=1)


def test_a_request_a_second_is_all_of_a_capacity_of_one_a_second():
    found = figures([served(float(at)) for at in range(20)])
    assert found["goodput_share"] == pytest.approx(1.0, abs=0.06)
    assert found["goodput_per_second"] == pytest.approx(1.0, abs=0.06)
    low, high = found["goodput_share_interval"]
    assert low <= found["goodput_share"] <= high
    assert (found["sent"], found["answers"], found["in_slo"], found["offered_share"]) == (
        20,
        20,
        20,
        pytest.approx(1.0),
    )


def test_what_ends_outside_the_level_is_no_goodput_and_its_tokens_are_wasted():
    found = figures([served(5.0), served(6.0, first_after=4.5, last_after=5.0)], generated_tokens=20)
    assert (found["answers"], found["in_slo"]) == (2, 1)
    assert found["wasted_share"] == 0.5
    assert found["thrown_away_share"] == 0.0


def test_work_counts_where_it_flows_not_where_it_ends():
    record = Record([served(13.0, first_after=3.0, last_after=12.0), refused(1.0), left(1.0)], 20.0)
    prompt = MIXED.work_seconds(len(REQUEST.text), (), 0)
    token = (WORK - prompt) / 10
    flow = judge.flowing(record, BAR)  # blocks of two seconds from 2.0 on; the tokens come at 16, 17, ... 25
    assert len(flow) == 9
    assert flow == pytest.approx([0.0] * 7 + [prompt + 2 * token, 2 * token])
    assert judge.work_per_second([record], BAR) == pytest.approx(sum(flow) / 18)


def test_who_left_waiting_counts_with_all_his_patience():
    found = figures([served(5.0), left(6.0)])
    assert (found["ttft_p50"], found["ttft_p99"]) == (20.0, 20.0)
    assert found["ttft_p99_of_slo"] == 5.0
    assert found["errors"] == {"left before the first token": 1}


def test_refusals_have_a_latency_and_a_kind_and_are_not_waits():
    found = figures([served(1.0), refused(2.0, after=0.002), refused(3.0, after=0.010)])
    assert found["refusals"] == 2
    assert (found["refusal_p50_ms"], found["refusal_p99_ms"]) == (pytest.approx(10.0), pytest.approx(10.0))
    assert found["refusal_kinds"] == {"429 queue_full": 2}
    assert found["ttft_p99"] == pytest.approx(1.0)


def test_a_broken_stream_and_a_preemption_throw_away_what_was_admitted():
    broken = served(2.0)
    broken.break_off("cut", 4.0)
    found = figures([served(1.0), broken], generated_tokens=40, preemptions=1)
    assert found["refusals_in_200"] == 1
    assert found["thrown_away_share"] == pytest.approx((10 + 10) / 40)


def test_a_promise_is_kept_by_an_answer_in_time_of_the_first_try():
    found = figures([served(1.0, refused=1), served(2.0, first_after=4.5, last_after=6.0, refused=1), served(3.0)])
    assert (found["promised"], found["promises_kept"]) == (2, 0.5)
    assert figures([served(1.0)])["promises_kept"] is None


def test_fairness_goes_by_shares_of_tenants():
    found = figures([served(1.0, tenant="a"), served(1.0, tenant="b"), served(1.0, 5.0, 6.0, tenant="b")])
    assert found["tenants"]["b"] == {"sent": 2, "in_slo": 1, "ttft_p99": 5.0}
    assert found["jain"] == pytest.approx(1.5**2 / (2 * 1.25))


def test_a_record_is_cut_into_blocks_of_two_seconds_with_the_empty_ones():
    parts = judge.blocks(Record([served(0.5), served(3.9), served(19.9)], 20.0))
    assert [len(part) for part in parts] == [1, 1, 0, 0, 0, 0, 0, 0, 0, 1]


@pytest.mark.parametrize(
    ("record", "bound_by"),
    [
        ({}, []),
        ({"arm_cpu": 0.9}, ["proxy CPU"]),
        ({"load_cpu": 0.9}, ["load CPU"]),
        ({"late_p99_seconds": 0.2}, ["late clients"]),
    ],
)
def test_a_cell_that_the_machine_bounded_says_so(record, bound_by):
    assert figures([served(1.0)], **record)["bound_by"] == bound_by


def test_rounds_are_pooled():
    one, two = Record([served(5.0)], 20.0, preemptions=1), Record([refused(5.0)], 20.0, preemptions=2)
    found = judge.figures([one, two], BAR, seed=1)
    assert (found["sent"], found["in_slo"], found["preemptions"]) == (2, 1, 3)
    assert found["goodput_per_second"] == pytest.approx(1 / 36)


def test_the_polite_are_compared_with_themselves_alone():
    alone = figures([served(1.0, tenant="polite0"), served(2.0, tenant="polite1")])
    crowded = figures(
        [served(1.0, tenant="polite0"), served(1.0, 5.0, 6.0, tenant="polite1"), served(1.0, tenant="greedy")]
    )
    results = {"polite alone": {"x": alone}, "greedy": {"x": crowded, "y": figures([served(1.0)])}}
    judge.compare(results)
    assert results["greedy"]["x"]["polite_kept"] == 0.5
    assert results["greedy"]["x"]["polite_ttft_p99"] == 5.0
    assert "polite_kept" not in results["greedy"]["y"]
