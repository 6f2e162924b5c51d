"""What the status page keeps of refusals."""

from datetime import UTC, datetime

from gateway.domain.outcome import Fate, Outcome, Reason
from gateway.telemetry.last_refusals import LastRefusals
from gateway.telemetry.request_log import RequestRecord


def record(number=0, **fields):
    base = {"time": datetime(2026, 1, 2, tzinfo=UTC), "request_id": f"gw-{number}", "outcome": Outcome.REFUSED}
    return RequestRecord(**base, endpoint="/v1/chat/completions", **fields)


def refusal(**fields):
    refusals = LastRefusals()
    refusals.note(record(**fields))
    [one] = refusals.newest_first()
    return one


def test_the_newest_first_and_not_too_many():
    refusals = LastRefusals(most=3)
    for number in range(5):
        refusals.note(record(number, reason=Reason.QUEUE_FULL))
    assert [each.request_id for each in refusals.newest_first()] == ["gw-4", "gw-3", "gw-2"]


def test_what_was_not_refused_is_not_kept():
    refusals = LastRefusals()
    refusals.note(record())
    assert refusals.newest_first() == []


def test_it_says_what_the_log_says():
    one = refusal(reason=Reason.KV_BUDGET, status=429, message="Full.", short="kv_blocks", images=2, queue_ms=1.5)
    assert (one.reason, one.status, one.message, one.short) == ("kv_budget", 429, "Full.", "kv_blocks")
    assert (one.images, one.queue_ms, one.is_told) == (2, 1.5, False)


def test_in_shadow_mode_what_would_have_been_refused():
    one = refusal(shadow=Fate.REFUSED, shadow_reason=Reason.QUEUE_FULL, status=200)
    assert (one.reason, one.is_told) == ("queue_full", True)


def test_long_and_odd_sentences_are_cut_to_what_can_be_shown():
    assert refusal(reason=Reason.BAD_REQUEST, message="x" * 401).message == "x" * 400 + "…"
    assert refusal(reason=Reason.BAD_REQUEST, message="\ud800").message == "?"
