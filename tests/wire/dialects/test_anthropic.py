"""What admission needs of /v1/messages, and how its streams and answers are read; images are in test_conformance.py."""

import json

import pytest

from gateway.domain.errors import Code, GatewayError
from gateway.wire.dialects.anthropic import MESSAGES, parse_message_tokens, parse_messages
from gateway.wire.max_tokens import cap_answer
from gateway.wire.splice import splice
from gateway.wire.sse import AnthropicObserver, StreamError
from gateway.wire.usage import Usage, anthropic_usage_of
from gateway.wire.voices import ANTHROPIC

PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGVsbG8="}}
ASKED = {"role": "user", "content": "Hm?"}


def body_of(*messages, **fields):
    return json.dumps({"model": "m", "max_tokens": 9, "messages": list(messages or [ASKED])} | fields).encode()


def text(words):
    return {"type": "text", "text": words}


def outlined(*messages, **fields):
    request = parse_messages(body_of(*messages, **fields))
    return [(message.role, message.text_bytes, message.images) for message in request.messages]


class TestRead:
    def test_the_fields_of_an_answer(self):
        request = parse_messages(body_of(stream=True, max_tokens=7))
        assert (request.model, request.stream, request.max_tokens, request.n) == ("m", True, 7, 1)
        assert request.wants_output
        assert request.needs_engine

    def test_a_count_ignores_them_and_needs_no_engine(self):
        request = parse_message_tokens(body_of(stream="x", max_tokens="y"))
        assert (request.stream, request.max_tokens) == (False, None)
        assert not request.wants_output
        assert not request.needs_engine

    def test_messages_are_those_that_the_model_sees(self):
        use = {"type": "tool_use", "id": "t", "name": "look", "input": {"a": 1}}
        result = {"type": "tool_result", "tool_use_id": "t", "content": [text("1234"), PICTURE]}
        reference = {"type": "tool_result", "content": [{"type": "tool_reference", "name": "zoom"}]}
        thought = {"type": "thinking", "thinking": "hm"}
        turns = [
            {"role": "assistant", "content": [thought, text("é"), use]},
            {"role": "user", "content": [PICTURE, result, text("abc")]},
            {"role": "user", "content": [reference]},
        ]
        assert outlined(*turns, system=[text("Be "), text("brief.")]) == [
            ("system", 9, ()),
            ("assistant", 2 + 2 + 4 + len('{"a":1}'), ()),
            ("tool", 4, ()),
            ("user", 0, (0,)),
            ("user", 3, (1,)),
            ("tool", 0, ()),
            ("tool", 4, ()),
        ]

    def test_what_answers_said_may_be_left_out(self):
        request = parse_messages(body_of({"role": "assistant", "content": "1234"}, ASKED))
        assert [message.uncertain_text_bytes for message in request.messages] == [4, 0]

    def test_tools_and_a_schema_count_as_text_that_may_be_left_out(self):
        tools = [{"name": "f", "input_schema": {"type": "object"}}]
        schema = {"format": {"type": "json_schema", "schema": {"type": "object"}}}
        bare, full = parse_messages(body_of()), parse_messages(body_of(tools=tools, output_config=schema))
        assert (bare.extra_text_bytes, bare.uncertain_extra_bytes) == (0, 0)
        assert full.extra_text_bytes == full.uncertain_extra_bytes > len(json.dumps(tools)) + 20

    @pytest.mark.parametrize(
        ("fields", "param"),
        [
            ({"max_tokens": None}, "max_tokens"),
            ({"max_tokens": 0}, "max_tokens"),
            ({"stream": "yes"}, "stream"),
            ({"messages": []}, "messages"),
            ({"messages": [{"role": "user", "content": []}]}, "messages"),
            ({"kv_transfer_params": {"prompt_token_ids": [1]}}, "kv_transfer_params.prompt_token_ids"),
        ],
    )
    def test_what_is_refused(self, fields, param):
        with pytest.raises(GatewayError) as refused:
            parse_messages(body_of(**fields))
        assert (refused.value.code, refused.value.param) == (Code.INVALID_REQUEST, param)

    def test_a_name_with_an_escaped_slash_is_a_media_type(self):
        source = b'{"type":"image","source":{"media_type":"image\\/png","data":"aGVs"}}'
        body = b'{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[%b]}]}' % source
        [image] = parse_messages(body).images
        assert body[image.media_type.start : image.media_type.end] == b'"image\\/png"'


class TestOpening:
    def test_it_is_what_was_said_before_the_first_answer(self):
        result = {"role": "user", "content": [{"type": "tool_result", "content": [PICTURE]}]}
        body = body_of(result, ASKED, {"role": "assistant", "content": "a"}, ASKED)
        span = MESSAGES.opening(body, parse_messages(body))
        assert json.loads(b"[" + body[span.start : span.end] + b"]") == [result, ASKED]

    def test_or_the_answer_where_it_is_the_first(self):
        answer = {"role": "assistant", "content": [PICTURE]}
        body = body_of(answer, ASKED)
        span = MESSAGES.opening(body, parse_messages(body))
        assert json.loads(body[span.start : span.end]) == answer


@pytest.mark.parametrize(
    ("fields", "bound"),
    [
        ({"max_tokens": 9000}, 512),
        ({"max_tokens": 9000, "thinking": {"type": "enabled", "budget_tokens": 2048}}, 2049),
        ({"max_tokens": 9000, "thinking": {"type": "enabled", "budget_tokens": "many"}}, 512),
        ({"max_tokens": 9000, "thinking": {"type": "disabled"}}, 512),
        ({"max_tokens": 100}, None),
    ],
)
def test_the_bound_stays_above_what_may_be_thought(fields, bound):
    body = body_of(**fields)
    cap = cap_answer(body, fields["max_tokens"], 512, MESSAGES.bound_keys, MESSAGES.least_bound)
    assert (cap and cap.tokens) == bound
    if cap is not None:
        assert json.loads(b"".join(splice(body, [cap.splice]))) == json.loads(body) | {"max_tokens": bound}


def event(name, **fields):
    return (
        f"event: {name}\ndata: ".encode()
        + json.dumps({"type": name} | fields, separators=(",", ":")).encode()
        + b"\n\n"
    )


DELTA = event(
    "content_block_delta", index=0, delta={"type": "text_delta", "text": 'event: content_block_delta\n"usage":'}
)
STREAM = b"".join([
    event("message_start", message={"usage": {"input_tokens": 7, "output_tokens": 0}}),
    event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
    *[DELTA] * 3,
    event("content_block_stop", index=0),
    event("message_delta", delta={"stop_reason": "end_turn"}, usage={"input_tokens": 7, "output_tokens": 3}),
    event("message_stop"),
])  # fmt: skip


class TestStreams:
    @pytest.mark.parametrize("piece_bytes", [1, 7, 40, 10_000])
    def test_pieces_of_the_answer_usage_and_end_however_it_is_cut(self, piece_bytes):
        observer = AnthropicObserver()
        for start in range(0, len(STREAM), piece_bytes):
            assert not observer.is_done or STREAM[start:].isspace()
            observer.feed(STREAM[start : start + piece_bytes])
        assert (observer.events, observer.usage, observer.is_done, observer.error) == (3, Usage(7, 3), True, None)

    def test_it_has_begun_with_its_first_event(self):
        observer = AnthropicObserver()
        assert not observer.has_begun
        observer.feed(event("message_start"))
        assert (observer.has_begun, observer.events, observer.usage) == (True, 0, None)

    def test_an_error_ends_it_and_has_no_status(self):
        observer = AnthropicObserver()
        observer.feed(DELTA + event("error", error={"type": "internal_error", "message": "it died"}))
        assert observer.error == StreamError("it died", None)
        assert not observer.is_done

    def test_the_gateways_own_error_is_read_as_one(self):
        observer = AnthropicObserver()
        observer.feed(DELTA)
        observer.feed(ANTHROPIC.last_event(GatewayError(Code.UPSTREAM_ERROR, "it broke off"), is_at_border=True))
        assert observer.error == StreamError("it broke off", None)


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"input_tokens": 109, "output_tokens": 3}, Usage(109, 3)),
        ({"input_tokens": 9, "output_tokens": 3, "cache_read_input_tokens": 96}, Usage(105, 3, cached_tokens=96)),
        (
            {"input_tokens": 1, "cache_read_input_tokens": 2, "cache_creation_input_tokens": 4},
            Usage(7, 0, cached_tokens=2),
        ),
        (None, None),
    ],
)
def test_usage_counts_what_came_out_of_a_cache_too(usage, expected):
    whole = json.dumps({"type": "message", "content": [], "usage": usage}).encode()
    assert anthropic_usage_of(whole) == expected
    assert anthropic_usage_of(b"cut off" + whole) == expected


class TestVoice:
    def test_a_refusal_in_a_stream_is_an_event_of_its_name(self):
        told = ANTHROPIC.last_event(GatewayError(Code.SERVER_IS_OVERLOADED, "Come back."))
        name, data = told.strip().split(b"\n")
        assert name == b"event: error"
        assert json.loads(data.removeprefix(b"data: ")) == {
            "type": "error",
            "error": {"type": "overloaded_error", "message": "Come back."},
        }

    def test_who_waits_is_pinged(self):
        name, data = ANTHROPIC.waiting.strip().split(b"\n")
        assert (name, json.loads(data.removeprefix(b"data: "))) == (b"event: ping", {"type": "ping"})
