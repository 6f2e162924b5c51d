"""Streams as vLLM 0.32 wrote them, cut in every way."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.errors import Code, GatewayError
from gateway.wire.response_stream import ResponsesObserver
from gateway.wire.sse import AnthropicObserver, StreamError, StreamObserver
from gateway.wire.usage import Usage
from gateway.wire.voices import OPENAI

STREAMS = {
    name: text.encode()
    for name, text in json.loads((Path(__file__).parents[1] / "data/wire/streams.json").read_text()).items()
}
EVENTS = {
    "plain": 5,
    "include_usage": 6,
    "continuous_usage_stats": 6,
    "prompt_token_details": 6,
    "queue_limit_error": 1,
}
USAGE = {
    "plain": None,
    "include_usage": Usage(109, 4),
    "continuous_usage_stats": Usage(109, 4),
    "prompt_token_details": Usage(109, 4, image_tokens=50, cached_tokens=0),
    "queue_limit_error": None,
}


forget = StreamObserver._forget_old_events


def observe(*chunks):
    observer = StreamObserver()
    for chunk in chunks:
        observer.feed(chunk)
    return observer


@pytest.mark.parametrize("name", EVENTS)
def test_captured_streams_at_once(name):
    observer = observe(STREAMS[name])
    assert (observer.events, observer.is_done, observer.is_at_border) == (EVENTS[name], True, True)
    assert observer.usage == USAGE[name]


@pytest.mark.parametrize("name", EVENTS)
@given(data=st.data())
def test_however_a_stream_is_cut_the_same_is_seen(name, data):
    stream = STREAMS[name]
    cuts = sorted(data.draw(st.sets(st.integers(0, len(stream)), max_size=12)))
    chunks = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]

    observer = observe(*chunks)

    assert (observer.events, observer.is_done) == (EVENTS[name], True)
    assert observer.usage == USAGE[name]


@pytest.mark.parametrize("name", EVENTS)
def test_byte_by_byte(name):
    observer = observe(*(bytes([byte]) for byte in STREAMS[name]))
    assert (observer.events, observer.is_done, observer.usage) == (EVENTS[name], True, USAGE[name])


def test_before_the_first_event():
    observer = observe(b"", b": keep-alive\n\n", b"dat")
    assert (observer.events, observer.is_done, observer.usage, observer.error) == (0, False, None, None)
    observer.feed(b"a: {")
    assert (observer.events, observer.usage) == (1, None)


def test_an_error_inside_the_stream():
    observer = observe(STREAMS["queue_limit_error"])
    assert observer.error.status == 503
    assert observer.error.message.startswith("The engine has reached its prefill token backlog limit")


def test_an_error_after_answers():
    events = STREAMS["plain"].partition(b"data: [DONE]")[0]
    error = b'data: {"error": {"message": "EngineCore encountered an issue.", "code": "dead"}}\n\n'

    observer = observe(events, error)
    assert observer.error == StreamError("EngineCore encountered an issue.", None)
    observer.feed(b"data: [DONE]\n\n")
    assert observer.error == StreamError("EngineCore encountered an issue.", None)
    assert (observer.events, observer.is_done) == (6, True)


def test_a_stream_that_was_cut_has_no_end():
    observer = observe(STREAMS["include_usage"][:-30])
    assert (observer.is_done, observer.usage, observer.error) == (False, None, None)


def test_text_that_looks_like_an_event_is_text():
    event = b'data: {"choices":[{"delta":{"content":"\\ndata: [DONE] \\"error\\""}}]}\n\n'
    observer = observe(event)
    assert (observer.events, observer.is_done, observer.error) == (1, False, None)


def test_memory_stays_small_however_long_the_stream():
    observer = observe(*[b'data: {"choices":[]}\n\n'] * 5000, STREAMS["include_usage"])
    assert (observer.events, observer.is_done, observer.usage) == (5006, True, Usage(109, 4))
    assert len(observer._tail) < 16_384


def test_one_long_event_is_kept_whole():
    text = b"x" * 50_000
    event = (
        b'data: {"choices":[{"delta":{"content":"%s"}}],"usage":{"prompt_tokens":1,"completion_tokens":2}}\n\n' % text
    )
    observer = observe(*(event[start : start + 1000] for start in range(0, len(event), 1000)), b"data: [DONE]\n\n")
    assert (observer.events, observer.is_done, observer.usage) == (1, True, Usage(1, 2))


@pytest.mark.parametrize("chunk_bytes", [1_000, 300_000])
def test_an_event_without_end_costs_no_memory_and_hides_no_later_one(chunk_bytes):
    observer = observe(b'data: {"x":"', *[b"x" * chunk_bytes] * 500)
    assert (observer.events, observer.is_done, observer.usage) == (1, False, None)
    assert len(observer._tail) < 600_000
    observer.feed(b'"}\n\n' + STREAMS["include_usage"])
    assert (observer.events, observer.is_done, observer.usage) == (7, True, Usage(109, 4))


def test_an_event_without_end_is_not_searched_with_every_chunk(monkeypatch):
    searches = []
    monkeypatch.setattr(
        StreamObserver, "_forget_old_events", lambda self: searches.append(len(self._tail)) or forget(self)
    )
    observe(b'data: {"x":"', *[b"x"] * 100_000)
    assert len(searches) < 10


@pytest.mark.parametrize("field", [b"usage", b"error", b"other"])
@pytest.mark.parametrize("deep", [b"[" * 2_000, b"[" * 2_000 + b"]" * 2_000, b'{"x":' * 2_000])
def test_no_depth_of_an_event_is_a_fault(field, deep):
    observer = observe(b'data: {"%s":%s}\n\ndata: [DONE]\n\n' % (field, deep))
    assert (observer.usage, observer.error, observer.is_done) == (None, None, True)


@pytest.mark.parametrize("code", [-1, 0, 200, 399, 600, 10**18, 10**40, '"400"', "null"])
def test_a_code_that_is_no_status_of_an_error_is_none(code):
    observer = observe(b'data: {"error":{"message":"x","code":%s}}\n\n' % str(code).encode())
    assert observer.error is None or observer.error == StreamError("x", None)


def test_an_error_event_ends_the_stream():
    error = GatewayError(Code.UPSTREAM_TIMEOUT, "silent for 120 s")
    event = OPENAI.last_event(error, is_at_border=True)
    observer = observe(b'data: {"choices":[]}\n\n', event)
    assert observer.error == StreamError("silent for 120 s", None)
    assert observer.is_done
    assert event.startswith(b"data: {")
    assert event.endswith(b"\n\ndata: [DONE]\n\n")


@pytest.mark.parametrize(
    ("chunks", "is_at_border"),
    [
        ([], True),
        ([b""], True),
        ([b"data: {}\n\n"], True),
        ([b"data: {}\n", b"\n"], True),
        ([b"data: {}\r\n\r\n"], True),
        ([b"data: {}\n\n", b"d"], False),
        ([b"data: {}\n"], False),
        ([b"\n"], True),
        ([b": keep-alive\n"], False),
        ([b'data: {"choi'], False),
    ],
)
def test_where_the_stream_stands(chunks, is_at_border):
    assert observe(*chunks).is_at_border is is_at_border


@pytest.mark.parametrize("cut", [b"da", b'data: {"choi', b'data: {"choices":[]}', b'data: {"choices":[]}\n'])
def test_an_error_after_a_cut_event_is_an_event_of_its_own(cut):
    error = GatewayError(Code.UPSTREAM_ERROR, "it broke off")
    observer = observe(b"data: {}\n\n", cut)
    event = OPENAI.last_event(error, is_at_border=observer.is_at_border)
    blocks = (b"data: {}\n\n" + cut + event).split(b"\n\n")
    assert any(block.lstrip(b"\n").startswith(b'data: {"error"') for block in blocks)
    observer.feed(event)
    assert observer.error == StreamError("it broke off", None)


class TestTheEndOfAStream:
    """However other servers spell it."""

    @pytest.mark.parametrize(
        ("observer", "end"),
        [
            (StreamObserver, b"data: [DONE]\n\n"),
            (StreamObserver, b"data:[DONE]\r\n\r\n"),
            (StreamObserver, b"data: [DONE]"),
            (AnthropicObserver, b'event: message_stop\ndata: {"type":"message_stop"}\n\n'),
            (AnthropicObserver, b'event:message_stop\r\ndata: {"type": "message_stop" }\r\n\r\n'),
            (ResponsesObserver, b'event: response.completed\ndata: {"type":"response.completed"}\n\n'),
            (ResponsesObserver, b"event:response.incomplete\r\ndata: {}\r\n\r\n"),
        ],
    )
    def test_is_known(self, observer, end):
        observed = observer()
        observed.feed(b"event: one\ndata: {}\n\n")
        assert not observed.says_end
        observed.feed(end)
        assert observed.says_end

    @pytest.mark.parametrize(
        ("observer", "half"),
        [
            (StreamObserver, b"data: [DON"),
            (StreamObserver, b'data: {"text":"[DONE]"}\n\n'),
            (AnthropicObserver, b'data: {"type":"message_stop"'),
            (ResponsesObserver, b'event: response.completed\ndata: {"type"'),
        ],
    )
    def test_is_not_taken_for_what_resembles_it(self, observer, half):
        observed = observer()
        observed.feed(half)
        assert not observed.says_end
