"""An answer that comes too late for a status: what goes in, and what the client reads."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.errors import Code, GatewayError
from gateway.wire.begun_stream import BegunStream
from gateway.wire.errors import error_body, error_headers
from gateway.wire.voices import ANTHROPIC, OPENAI

STREAM = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"x-request-id", b"a")]
JSON = [(b"content-type", b"application/json"), (b"content-length", b"7")]
QUOTED = 'The model server refused the request with status 401: {"error": {"message": "busy"}}'
END = b"\n\ndata: [DONE]\n\n"


def told(status, headers, *pieces):
    stream = BegunStream(OPENAI)
    said = [stream.head(status, headers)]
    return said + [stream.body(piece, is_last=index == len(pieces) - 1) for index, piece in enumerate(pieces)]


def event_of(said: bytes):
    assert said.startswith(b"data: ")
    assert said.endswith(END)
    line = said[len(b"data: ") : -len(END)]
    assert b"\n" not in line
    assert b"\r" not in line
    return json.loads(line)["error"]


def test_a_stream_goes_on_as_it_is():
    assert told(200, STREAM, b"data: {}\n\n", b"data: [DO", b"NE]\n\n") == [
        b"",
        b"data: {}\n\n",
        b"data: [DO",
        b"NE]\n\n",
    ]


def test_what_other_answers_say_in_headers_stands_in_comments():
    headers = [*STREAM, (b"x-gateway-queue-ms", b"5200"), (b"retry-after", b"7"), (b"server", b"x")]
    assert told(200, headers, b"")[0] == b": x-gateway-queue-ms: 5200\n: retry-after: 7\n\n"


def test_a_comment_is_no_event():
    assert OPENAI.waiting.startswith(b":")
    assert OPENAI.waiting.endswith(b"\n\n")


def test_a_refusal_of_the_gateway_is_the_last_event():
    error = GatewayError(Code.SERVER_IS_OVERLOADED, "It waited 30 s.")
    body = error_body(error)
    head, event = told(503, error_headers(error, body, 0.0), body)
    assert b": x-gateway-reason: deadline_passed\n" in head
    assert b": x-should-retry: false\n" in head
    assert event_of(event) == json.loads(body)["error"]


def test_an_error_of_the_upstream_keeps_its_words_in_one_line_however_it_is_cut():
    error = {"message": "too long:\n5", "type": "BadRequestError", "param": None, "code": 400}
    text = json.dumps({"error": error}, indent=2).replace("\n", "\r\n").encode()
    *nothing, event = told(400, JSON, *(bytes([byte]) for byte in text))
    assert set(nothing) == {b""}
    assert event_of(event) == error


@pytest.mark.parametrize("body", [b"", b"<html>\n\xff", b'{"error": "Unauthorized"}', b'{"detail": "no"}', b"[" * 5000])
def test_what_has_another_shape_is_quoted(body):
    error = event_of(told(401, JSON, body)[1])
    assert error["code"] == 401
    assert error["message"].startswith("The model server refused the request with status 401: ")
    assert body[:40].decode(errors="replace") in error["message"]
    assert len(error["message"]) < 600


def test_an_error_without_end_is_not_kept():
    stream = BegunStream(OPENAI)
    stream.head(500, JSON)
    assert {stream.body(b"x" * 60_000, is_last=False) for _ in range(100)} == {b""}
    assert len(stream._kept) == 65_536
    assert event_of(stream.body(b"x", is_last=True))["code"] == 500


@pytest.mark.parametrize("headers", [JSON, []])
def test_an_answer_that_is_no_stream_cannot_be_told_in_one(headers):
    error = event_of(told(200, headers, b'{"choices": []}')[1])
    assert error["code"] == "upstream_error"
    assert "without a stream" in error["message"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"type": "error",\n "error": {"type": "x", "message": "busy"}}', {"type": "x", "message": "busy"}),
        (b'{"error": {"message": "busy"}}', {"type": "authentication_error", "message": QUOTED}),
    ],
    ids=["its own shape", "another shape"],
)
def test_a_route_of_anthropics_tells_it_in_anthropics_shape(body, said):
    stream = BegunStream(ANTHROPIC)
    stream.head(401, JSON)
    name, data = stream.body(body, is_last=True).removesuffix(b"\n\n").split(b"\n")
    assert name == b"event: error"
    assert json.loads(data.removeprefix(b"data: ")) == {"type": "error", "error": said}


def test_a_stream_with_the_status_of_an_error_is_one():
    event = told(503, STREAM, b'{"error": {"message": "busy"}}')[1]
    assert event_of(event) == {"message": "busy"}


PIECES = st.lists(st.integers(0, 400), max_size=6)


def cut(text: bytes, places):
    edges = sorted({min(place, len(text)) for place in places} | {0, len(text)})
    return [text[start:end] for start, end in pairwise(edges)] or [b""]


@given(st.binary(max_size=300), PIECES)
def test_whatever_streams_comes_out_as_it_went_in(text, places):
    assert b"".join(told(200, STREAM, *cut(text, places))) == text


@given(
    st.integers(400, 599),
    st.one_of(
        st.binary(max_size=300),
        st.recursive(
            st.none() | st.booleans() | st.text(max_size=8),
            lambda inner: st.dictionaries(st.sampled_from(["error", "message", "code", "x"]), inner, max_size=3),
        ).map(lambda value: json.dumps(value, indent=1).encode()),
    ),
    PIECES,
)
def test_whatever_refuses_is_one_event_and_the_end(status, body, places):
    said = b"".join(told(status, JSON, *cut(body, places)))
    assert set(event_of(said)) >= {"message"}
    assert said.count(b"\n") == 4
    assert b"\r" not in said
