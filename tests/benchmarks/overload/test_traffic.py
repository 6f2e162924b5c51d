from dataclasses import replace

import pytest

from benchmarks.overload.traffic import (
    KINDS,
    Habits,
    Stream,
    endless,
    mean_work_seconds,
    merged,
    requests,
)
from benchmarks.overload.upstream import MIXED

MIX = Stream("mix", 3.0, ("a", "b"))


def first(count, stream=MIX, seed=1):
    source = endless(seed, stream)
    return [next(source) for _ in range(count)]


def test_the_same_seed_asks_the_same_and_another_does_not():
    assert first(50) == first(50)
    assert first(50) != first(50, seed=2)


def test_a_higher_rate_is_the_same_traffic_faster():
    slow, fast = list(requests(1, MIX, 10.0, 20.0)), list(requests(1, MIX, 20.0, 10.0))
    assert [replace(request, at_seconds=0.0) for request in slow] == [
        replace(request, at_seconds=0.0) for request in fast
    ]
    assert [request.at_seconds for request in slow] == pytest.approx([2 * request.at_seconds for request in fast])


def test_arrivals_come_at_their_rate_and_in_order():
    times = [request.at_seconds for request in requests(1, MIX, 50.0, 100.0)]
    assert len(times) == pytest.approx(5_000, rel=0.05)
    assert times == sorted(times)
    assert times[-1] < 100.0


def test_kinds_come_in_their_shares_and_tenants_alike():
    many = first(4_000)
    for kind, (share, _) in KINDS.items():
        assert sum(request.kind == kind for request in many) / len(many) == pytest.approx(share, abs=0.03)
    assert sum(request.tenant == "a" for request in many) / len(many) == pytest.approx(0.5, abs=0.03)


def test_a_conversation_comes_twice_with_one_picture_more():
    histories = [request for request in first(200) if request.kind == "history"]
    one, two = histories[:2]
    assert one.session == two.session
    assert (len(one.images), len(two.images)) == (4, 5)
    assert histories[2].session == one.session + 1


def test_half_of_the_clients_retry_and_a_few_of_those_are_the_sdk_itself():
    many = first(4_000)
    assert sum(request.retries == 2 for request in many) / len(many) == pytest.approx(0.5, abs=0.03)
    assert all(request.retries for request in many if request.is_sdk)
    assert 0 < sum(request.is_sdk for request in many) < 0.05 * len(many)


def test_max_tokens_is_exact_or_four_times_too_large_or_missing():
    ratios = [request.max_tokens and request.max_tokens / request.output_tokens for request in first(1_000)]
    assert set(ratios) == {1.0, 4.0, None}


def test_habits_fix_kind_length_and_pictures():
    habits = Habits(kind="own", images=((224, 224),), output_median=90, output_spread=0.0, retrying=0.0)
    for request in first(20, Stream("fixed", 1.0, ("a",), habits)):
        assert (request.kind, request.images, request.output_tokens, request.retries) == ("own", ((224, 224),), 90, 0)


def test_mean_work_is_that_of_the_requests():
    habits = Habits(kind="12mp")
    mean = mean_work_seconds(1, habits, MIXED, count=200)
    many = first(200, Stream("mean", 1.0, ("anyone",), habits))
    assert mean == pytest.approx(sum(request.work_seconds(MIXED) for request in many) / 200)
    assert mean > 10 * mean_work_seconds(1, Habits(kind="text"), MIXED)


def test_streams_merge_in_the_order_of_arrival():
    streams = [requests(1, replace(MIX, name=name), 5.0, 4.0) for name in ("x", "y")]
    together = merged(streams)
    assert [request.at_seconds for request in together] == sorted(request.at_seconds for request in together)
    assert {request.stream for request in together} == {"x", "y"}
