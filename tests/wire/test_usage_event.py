"""The client gets the stream that vLLM would have sent unasked, however what was sent is cut."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.chat import parse_chat
from gateway.wire.completions import parse_completions
from gateway.wire.splice import splice
from gateway.wire.usage_event import UsageEventFilter, ask_for_usage

STREAMS = {
    name: text.encode()
    for name, text in json.loads((Path(__file__).parents[1] / "data/wire/streams.json").read_text()).items()
}

FINGERPRINT = b',"system_fingerprint":"vllm-0.32.0-5d51bd32"'
DONE = b"data: [DONE]"
TOKEN = b'data: {"id":"1","choices":[{"index":0,"delta":{"content":" nax"},"finish_reason":null}]}'
NAMES = b'data: {"choices":[{"index":0,"delta":{"content":"\\"usage\\":{ \\"finish_reason\\":\\"stop\\""}}]}'
NO_USAGE = b'data: {"choices":[],"usage":null,"prompt_filter_results":[]}'
FINISH = b'data: {"id":"1","choices":[{"index":0,"delta":{"content":"."},"finish_reason":"stop"}]}'
USAGE = b'data: {"id":"1","choices":[],"usage":{"prompt_tokens":9,"total_tokens":13,"completion_tokens":4}%s}'
ERROR = b'data: {"error": {"message": "EngineCore \\"usage\\" died", "code": 500}}'
PING = b": still here"
OTHER = b"event: x\nid: 1\ndata: {}"
LINE_ENDS = (b"\n", b"\r\n", b"\r")


def filtered(*chunks: bytes) -> bytes:
    sieve = UsageEventFilter()
    return b"".join([*map(sieve.feed, chunks), sieve.flush()])


def cut(stream: bytes, places: set[int]) -> list[bytes]:
    borders = [0, *sorted(places), len(stream)]
    return [stream[start:end] for start, end in pairwise(borders)]


def stream_of(events: list[bytes], line_end: bytes) -> bytes:
    return b"".join(event + 2 * line_end for event in events)


def without_usage(stream: bytes, usage_event: bytes) -> bytes:
    assert stream.count(usage_event) == 1
    return stream.replace(usage_event, b"")


class TestAStream:
    @pytest.mark.parametrize("line_end", LINE_ENDS)
    @given(
        tokens=st.lists(
            st.sampled_from([TOKEN, NAMES, NO_USAGE, ERROR, PING, b"event: x\nid: 1\ndata: {}"]), max_size=6
        ),
        has_finish=st.booleans(),
        behind=st.sampled_from([[DONE], [], [DONE, PING], [ERROR, DONE]]),
        data=st.data(),
    )
    def test_loses_exactly_the_usage_event_wherever_it_is_cut(self, line_end, tokens, has_finish, behind, data):
        usage = USAGE % b""
        stream = stream_of([*tokens, *[FINISH] * has_finish, usage, *behind], line_end)
        places = data.draw(st.sets(st.integers(0, len(stream)), max_size=20))

        assert filtered(*cut(stream, places)) == without_usage(stream, usage + 2 * line_end)

    @pytest.mark.parametrize("line_end", LINE_ENDS)
    @given(tokens=st.lists(st.sampled_from([TOKEN, NAMES, NO_USAGE, PING]), max_size=4), data=st.data())
    def test_gets_its_fingerprint_back_where_vllm_writes_it_unasked(self, line_end, tokens, data):
        asked = stream_of([*tokens, FINISH, USAGE % FINGERPRINT, DONE], line_end)
        unasked = stream_of([*tokens, FINISH[:-1] + FINGERPRINT + b"}", DONE], line_end)
        places = data.draw(st.sets(st.integers(0, len(asked)), max_size=20))

        assert filtered(*cut(asked, places)) == unasked

    @given(data=st.data())
    def test_without_such_an_event_comes_out_as_it_is(self, data):
        events = st.sampled_from([TOKEN, NAMES, NO_USAGE, FINISH, ERROR, PING, DONE, b"", b"\n", b"data: {", b"\r"])
        stream = stream_of(data.draw(st.lists(events, max_size=12)), data.draw(st.sampled_from(LINE_ENDS)))
        stream = stream[: data.draw(st.integers(0, len(stream)))]
        places = data.draw(st.sets(st.integers(0, len(stream)), max_size=20))

        assert filtered(*cut(stream, places)) == stream

    @pytest.mark.parametrize(
        "junk", [b"data: [", b'data: {"choices":[],"usage":[]}', b'data: {"usage":' + b"[" * 5_000]
    )
    def test_that_cannot_be_read_passes(self, junk):
        stream = stream_of([b'"usage"', b"data: " + junk + b'"usage"', b"data: " + junk, DONE], b"\n")
        assert filtered(*cut(stream, set(range(0, len(stream), 7)))) == stream

    def test_keeps_the_empty_lines_between_events(self):
        stream = b"\n" + TOKEN + b"\n\n\n" + USAGE % b"" + b"\n\n\n" + DONE + b"\n\n"
        assert filtered(stream) == b"\n" + TOKEN + b"\n\n\n\n" + DONE + b"\n\n"

    def test_that_ends_behind_the_usage_without_an_empty_line_loses_it_too(self):
        whole = stream_of([TOKEN, FINISH], b"\n")
        assert filtered(whole + USAGE % b"") == whole
        assert filtered(whole + USAGE % FINGERPRINT) == stream_of([TOKEN, FINISH[:-1] + FINGERPRINT + b"}"], b"\n")

    def test_of_captured_events_is_the_one_that_was_captured_unasked(self):
        asked = STREAMS["include_usage"]
        events = [event for event in asked.split(b"\n\n") if event]
        (finish,) = (event for event in events if b'"finish_reason":"' in event)
        (usage,) = (event for event in events if b'"usage"' in event)
        unasked = asked.replace(usage + b"\n\n", b"").replace(finish, finish[:-1] + FINGERPRINT + b"}")

        assert filtered(asked) == filtered(*cut(asked, set(range(len(asked))))) == unasked
        assert filtered(STREAMS["plain"]) == STREAMS["plain"]

    @pytest.mark.parametrize("name", ["continuous_usage_stats", "queue_limit_error"])
    @given(data=st.data())
    def test_whose_server_counts_in_every_event_unasked_passes_whole(self, name, data):
        stream = STREAMS[name]
        assert filtered(*cut(stream, data.draw(st.sets(st.integers(0, len(stream)), max_size=12)))) == stream


class TestAnEvent:
    def test_passes_at_once_as_the_object_that_came(self):
        sieve = UsageEventFilter()
        for event in (TOKEN + b"\n\n", TOKEN + b"\r\n\r\n", 3 * (TOKEN + b"\n\n")):
            assert sieve.feed(event) is event

    def test_that_ends_the_answer_waits_for_the_one_behind_it(self):
        sieve = UsageEventFilter()
        assert sieve.feed(FINISH + b"\n\n") == b""
        assert sieve.feed(DONE + b"\n\n") == FINISH + b"\n\n" + DONE + b"\n\n"

    def test_that_ends_the_answer_and_has_its_fingerprint_does_not_wait(self):
        finish = FINISH[:-1] + FINGERPRINT + b"}\n\n"
        assert UsageEventFilter().feed(finish) == finish

    def test_that_is_not_whole_waits_for_its_end(self):
        sieve = UsageEventFilter()
        assert sieve.feed(TOKEN) == b""
        assert sieve.feed(b"\n") == b""
        assert sieve.feed(b"\n" + TOKEN[:5]) == TOKEN + b"\n\n"
        assert sieve.flush() == TOKEN[:5]

    @pytest.mark.parametrize("chunk_bytes", [1, 999, 10**6])
    def test_that_is_long_is_not_kept_and_hides_no_later_one(self, chunk_bytes):
        long = stream_of([FINISH, b'data: {"usage":{},"choices":[],"x":"' + b"x" * 200_000 + b'"}'], b"\r\n")
        stream = long + stream_of([USAGE % b"", DONE], b"\r\n")
        sieve = UsageEventFilter()
        out = bytearray()
        for start in range(0, len(stream), chunk_bytes):
            out += sieve.feed(stream[start : start + chunk_bytes])
            assert len(sieve._partial) <= 65_536
        assert out + sieve.flush() == long + DONE + b"\r\n\r\n"


def asked(body: bytes, *, has: bool) -> bytes:
    return b"".join(splice(body, ask_for_usage(body, has_stream_options=has)))


class TestAsking:
    def test_comes_last_in_a_body_without_options(self):
        body = b' {"prompt":"}", "stream":true }\r\n'
        assert asked(body, has=False) == (
            b' {"prompt":"}", "stream":true ,"stream_options":{"include_usage":true}}\r\n'
        )

    @pytest.mark.parametrize(
        ("options", "becomes"),
        [
            (b"null", b'{"include_usage":true}'),
            (b"{}", b'{"include_usage":true}'),
            (b"{ }", b'{ "include_usage":true}'),
            (b'{"include_usage" : false }', b'{"include_usage" : true }'),
            (b'{"include_usage":null,"x":[1 ,2]}', b'{"include_usage":true,"x":[1 ,2]}'),
            (b'{"x":1,"x":2 }', b'{"x":1,"x":2 ,"include_usage":true}'),
            (b'{"include_usage":true,"include_usage":false}', b'{"include_usage":true,"include_usage":true}'),
            (b'{"include\\u005fusage":false}', b'{"include\\u005fusage":true}'),
            (b'{"continuous_usage_stats":false}', b'{"continuous_usage_stats":false,"include_usage":true}'),
            (
                b'{"continuous_usage_stats":true,"include_usage":false}',
                b'{"continuous_usage_stats":false,"include_usage":true}',
            ),
            (b'{"continuous_usage_stats":null}', b'{"continuous_usage_stats":null,"include_usage":true}'),
        ],
    )
    def test_changes_only_what_the_options_lack(self, options, becomes):
        body = b'{"stream_options":7, "stream":true,"stream_options": %s ,"messages":[]}'
        assert asked(body % options, has=True) == body % becomes
        assert asked(bytearray(body % options), has=True) == body % becomes

    @pytest.mark.parametrize("value", [b"1", b'"yes"', b"[]", b'"true"'])
    def test_leaves_a_word_alone_that_only_vllm_can_judge(self, value):
        assert ask_for_usage(b'{"stream_options":{"continuous_usage_stats":%s}}' % value, has_stream_options=True) == []


@pytest.mark.parametrize(
    ("options", "has_them", "has_usage"),
    [
        (b"", False, False),
        (b',"stream_options":null', True, False),
        (b',"stream_options":{}', True, False),
        (b',"stream_options":{"include_usage":false}', True, False),
        (b',"stream_options":{"include_usage":true}', True, True),
        (b',"stream_options":{"include_usage":true},"stream_options":null', True, False),
    ],
)
def test_what_the_body_says_of_it_is_known(options, has_them, has_usage):
    chat = parse_chat(b'{"messages":[{"role":"user","content":"Hi."}],"stream":true%s}' % options)
    completion = parse_completions(b'{"prompt":"Hi.","stream":true%s}' % options)
    for request in (chat, completion):
        assert (request.has_stream_options, request.include_usage) == (has_them, has_usage)
