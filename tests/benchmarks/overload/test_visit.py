import json

import pytest

from benchmarks.overload.traffic import Stream, endless
from benchmarks.overload.visit import Ending, Slo, StreamReader, Visit, refusal_kind

SLO = Slo(first_token_seconds=4.0, total_seconds=15.0)
REQUEST = next(endless(1, Stream("any", 1.0, ("a",))))


def visit(began_at=0.0):
    made = Visit(REQUEST, began_at)
    made.begin_attempt(began_at)
    return made


def event(**delta):
    return b"data: " + json.dumps({"choices": [{"delta": delta}]}, separators=(",", ":")).encode() + b"\n\n"


def read(*pieces):
    one = visit()
    reader = StreamReader(one)
    for second, piece in enumerate(pieces, start=1):
        reader.feed(piece, float(second))
    return one, reader


def test_a_stream_is_counted_from_its_first_word_to_done():
    one, reader = read(
        event(role="assistant", content=""), event(content="ba"), event(content="ne"), b"data: [DONE]\n\n"
    )
    assert (one.first_token_at, one.token_times, one.ending) == (2.0, [2.0, 3.0], Ending.DONE)
    assert reader.is_over


def test_events_may_come_in_any_pieces_and_with_comments_between():
    whole = b": waiting\n\n" + event(content="ba") + event(content="ne").replace(b"\n", b"\r\n") + b"data: [DONE]\n\n"
    one, reader = read(*(whole[place : place + 7] for place in range(0, len(whole), 7)))
    assert len(one.token_times) == 2
    assert reader.is_over


def test_an_error_inside_a_200_is_a_refusal_that_no_sdk_retries():
    one, reader = read(event(content="ba"), b'data: {"error": {"message": "no", "code": 503, "type": "Busy"}}\n\n')
    assert (one.ending, one.error) == (Ending.BROKEN, "in a 200: Busy")
    assert one.refusals[0].is_in_stream
    assert reader.is_over


def test_a_stream_without_an_end_is_not_over():
    assert not read(event(content="ba"))[1].is_over


@pytest.mark.parametrize(
    ("first", "ended", "is_kept"), [(4.0, 15.0, True), (4.1, 15.0, False), (4.0, 15.1, False), (None, 1.0, False)]
)
def test_the_level_counts_from_the_first_attempt(first, ended, is_kept):
    one = visit(began_at=10.0)
    one.begin_attempt(12.0)
    one.first_token_at = None if first is None else 10.0 + first
    one.ended_at, one.ending = 10.0 + ended, Ending.DONE
    assert one.is_in_slo(SLO) == is_kept


def test_only_a_refusal_with_a_time_is_a_promise_and_only_coming_back_tests_it():
    one = visit()
    one.refuse("429 queue_full", 0.1, {"retry-after-ms": "300"})
    assert not one.came_back_as_promised
    one.begin_attempt(0.4)
    assert one.came_back_as_promised
    for headers in ({}, {"retry-after": "60"}, {"retry-after": "5", "x-should-retry": "false"}):
        other = visit()
        other.refuse("429", 0.1, headers)
        other.begin_attempt(0.4)
        assert not other.came_back_as_promised


def test_whoever_leaves_left_waiting_or_reading():
    waiting, reading = visit(), visit()
    reading.token(1.0)
    waiting.leave()
    reading.leave()
    assert (waiting.ending, reading.ending) == (Ending.LEFT_WAITING, Ending.LEFT_READING)


@pytest.mark.parametrize(
    ("reason", "body", "kind"),
    [
        ("queue_full", b"", "429 queue_full"),
        (None, b'{"error":{"code":"rate_limit_exceeded","type":"t"}}', "429 rate_limit_exceeded"),
        (None, b'{"error":{"code":429,"type":"Busy"}}', "429 Busy"),
        (None, b'{"error":"no"}', "429"),
        (None, b"<html>", "429"),
        (None, b"[]", "429"),
    ],
)
def test_a_refusal_is_named_by_what_tells_most(reason, body, kind):
    assert refusal_kind(429, reason, body) == kind
