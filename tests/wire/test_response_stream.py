"""Streams of /v1/responses as captured from vLLM 0.32, cut in every way."""

import json
from pathlib import Path

import pytest

from gateway.wire.response_stream import AnswerId, ResponsesObserver, responses_usage_of
from gateway.wire.usage import Usage

CAPTURES = Path(__file__).parents[1] / "data" / "vllm_captures" / "responses_qwen2_5_vl.json"
CAPTURED = json.loads(CAPTURES.read_text())
STREAM = CAPTURED["stream"]["body"].encode()
WHOLE = json.dumps(CAPTURED["text"]["body"], separators=(",", ":")).encode()
USAGE = CAPTURED["text"]["body"]["usage"]
FAILED = b'event: response.failed\ndata: {"response":{"error":{"code":"server_error","message":"no"}}}\n\n'


def pieces(stream, size):
    return [stream[start : start + size] for start in range(0, len(stream), size)]


@pytest.mark.parametrize("size", [1, 7, 100, len(STREAM)])
class TestAStream:
    def test_is_counted_by_its_pieces(self, size):
        observer = ResponsesObserver()
        for piece in pieces(STREAM, size):
            observer.feed(piece)
        assert observer.events == STREAM.count(b"event: response.output_text.delta")
        assert (observer.is_done, observer.error) == (True, None)
        assert observer.usage == responses_usage_of(STREAM)

    def test_names_its_answer_first(self, size):
        answer_id = AnswerId()
        for piece in pieces(STREAM, size):
            if not answer_id.is_over:
                answer_id.feed(piece)
        assert answer_id.found == json.loads(STREAM.split(b"data: ")[1].splitlines()[0])["response"]["id"]

    def test_begins_with_its_first_piece(self, size):
        """VLLM writes two events before the engine has been asked."""
        head, delta, rest = STREAM.partition(b"event: response.output_text.delta\n")
        observer = ResponsesObserver()
        for piece in pieces(head, size):
            observer.feed(piece)
        assert (observer.has_begun, observer.is_done, observer.usage) == (False, False, None)
        observer.feed(delta + rest)
        assert observer.has_begun


def test_an_answer_that_repeats_all_of_a_long_text_still_tells_its_usage():
    observer = ResponsesObserver()
    observer.feed(b'event: response.completed\ndata: {"response":{"output":"' + b"x" * 200_000)
    observer.feed(b'","usage":{"input_tokens":5,"output_tokens":7},"user":null},"type":"response.completed"}\n\n')
    assert (observer.is_done, observer.usage) == (True, Usage(5, 7))


@pytest.mark.parametrize(
    ("event", "message", "status"),
    [
        (FAILED, "no", None),
        (b'event: error\ndata: {"type":"error","code":503,"message":"busy"}\n\n', "busy", 503),
        (b'data: {"error":{"message":"bad","code":400}}\n\n', "bad", 400),
    ],
)
def test_what_broke_inside_of_it(event, message, status):
    observer = ResponsesObserver()
    observer.feed(b"event: response.created\ndata: {}\n\n" + event)
    assert (observer.error.message, observer.error.status) == (message, status)


def test_a_whole_answer_tells_its_usage():
    cached = USAGE["input_tokens_details"]["cached_tokens"]
    expected = Usage(USAGE["input_tokens"], USAGE["output_tokens"], cached_tokens=cached)
    assert responses_usage_of(WHOLE[-2000:]) == expected


@pytest.mark.parametrize("tail", [b"{}", b'{"usage":null}', b'{"usage":{"input_tokens":"a"}}', b'{"usage":{"inp'])
def test_what_tells_none(tail):
    assert responses_usage_of(tail) is None


def test_an_answer_without_an_id_is_looked_through_no_longer_than_its_head():
    answer_id = AnswerId()
    answer_id.feed(b"x" * 2000)
    assert (answer_id.found, answer_id.is_over) == (None, True)
