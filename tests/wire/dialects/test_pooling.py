"""What `/v1/embeddings`, `/pooling` and `/classify` hold: texts, ids or conversations, each a sequence of its own."""

import json

import pytest

from gateway.domain.errors import Code, GatewayError
from gateway.domain.priority import Priority
from gateway.domain.request import Span
from gateway.wire.dialects.pooling import EMBEDDINGS, parse_embeddings, parse_pooling
from gateway.wire.messages import Rendering

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
MESSAGE = {"role": "user", "content": "hi"}
SEEN = {"role": "user", "content": ["hi", IMAGE]}
BOTH = pytest.mark.parametrize("parse", [parse_embeddings, parse_pooling])


def body(**fields):
    return json.dumps(fields).encode()


def refused(parse, **fields):
    with pytest.raises(GatewayError) as caught:
        parse(body(**fields))
    return caught.value


@BOTH
@pytest.mark.parametrize(
    ("value", "prompts", "token_ids", "text_bytes"),
    [("abc", 1, 0, 3), (["a", "b"], 2, 0, 2), ([1, 2], 1, 2, 0), ([[1], [2, 3]], 2, 3, 0)],
)
def test_text_and_ids(parse, value, prompts, token_ids, text_bytes):
    request = parse(body(input=value, model="m"))
    assert (request.prompts, request.prompt_token_ids, request.text_bytes) == (prompts, token_ids, text_bytes)
    assert (request.model, request.wants_output, request.max_tokens) == ("m", False, None)


@BOTH
def test_one_conversation(parse):
    request = parse(body(messages=[MESSAGE, SEEN]))
    assert (request.prompts, request.conversation_lengths, len(request.images)) == (1, (), 1)
    assert [message.text_bytes for message in request.messages] == [2, 2]
    assert request.images[0].param == "messages[1].content[1].image_url.url"


@pytest.mark.parametrize("key", ["messages", "input"])
def test_only_embeddings_take_several_conversations(key):
    request = parse_embeddings(body(**{key: [[MESSAGE, SEEN], [SEEN]]}))
    assert (request.prompts, request.conversation_lengths, request.prompt_name) == (2, (2, 1), key)
    assert [image.param for image in request.images] == [
        f"{key}[0][1].content[1].image_url.url",
        f"{key}[1][0].content[1].image_url.url",
    ]
    refusal = refused(parse_pooling, **{key: [[MESSAGE, SEEN], [SEEN]]})
    assert (refusal.code, refusal.param) == (Code.INVALID_REQUEST, key)
    assert "several conversations" in refusal.message


def test_only_embeddings_take_messages_as_input():
    assert len(parse_embeddings(body(input=[SEEN])).images) == 1
    assert "messages as `input`" in refused(parse_pooling, input=[SEEN]).message


@BOTH
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "input"),
        ({"input": None}, "input"),
        ({"input": 5}, "input"),
        ({"input": []}, "input"),
        ({"input": [["a"]]}, "input[0][0]"),
        ({"input": ["a", 1]}, "input"),
        ({"messages": []}, "messages"),
        ({"input": "a", "messages": [MESSAGE]}, "input"),
        ({"input": "a", "padding": "longest"}, "padding"),
        ({"messages": [{"role": 5, "content": "a"}]}, "messages[0].role"),
    ],
)
def test_what_is_no_request_of_them(parse, fields, param):
    refusal = refused(parse, **fields)
    assert (refusal.code, refusal.param) == (Code.INVALID_REQUEST, param)


@pytest.mark.parametrize(
    "value",
    [["a", MESSAGE], [MESSAGE, [MESSAGE]], [[MESSAGE], []], [[MESSAGE, 1]], [1, [MESSAGE]]],
)
def test_messages_stand_among_messages_only(value):
    refusal = refused(parse_embeddings, input=value)
    assert (refusal.code, refusal.param) == (Code.INVALID_REQUEST, "input")


def test_empty_conversations():
    assert refused(parse_embeddings, messages=[[]]).param == "messages"


def test_what_plugins_read_is_refused_even_where_it_is_null():
    assert refused(parse_pooling, data=None, input="a").param == "data"


def test_as_many_prompts_as_sequences_of_any_request():
    assert parse_embeddings(body(input=["a"] * 16_384)).prompts == 16_384
    for fields in ({"input": [[1]] * 16_385}, {"messages": [[MESSAGE]] * 16_385}):
        refusal = refused(parse_embeddings, **fields)
        assert (refusal.code, refusal.param) == (Code.INVALID_REQUEST, next(iter(fields)))
        assert "16385 prompts, and at most 16384" in refusal.message


def test_scalars():
    request = parse_embeddings(body(input="a", priority=-1, truncate_prompt_tokens=512, padding="max_length"))
    assert (request.priority, request.truncate_prompt_tokens, request.pads_prompts) == (Priority.INTERACTIVE, 512, True)
    assert parse_embeddings(body(input="a")).priority is None
    assert not parse_embeddings(body(input="a", padding="do_not_pad")).pads_prompts


def test_arguments_of_the_template_may_be_printed_with_each_conversation():
    request = parse_embeddings(body(input=[[MESSAGE], [MESSAGE]], chat_template_kwargs={"a": "1234"}))
    as_sent = len(b'{"a": "1234"}')
    assert (request.text_bytes, request.uncertain_text_bytes) == (2 * (2 + as_sent), 2 * as_sent)


def chats(**fields):
    return [json.loads(chat) for chat in EMBEDDINGS.chats(body(**fields), Rendering)]


def test_the_template_opens_no_answer():
    assert chats(messages=[MESSAGE]) == [{"messages": [MESSAGE], "add_generation_prompt": False}]
    [first, second] = chats(input=[[MESSAGE], [SEEN]], add_generation_prompt=True)
    assert (first["messages"], second["messages"], first["add_generation_prompt"]) == ([MESSAGE], [SEEN], True)
    assert chats(messages=None, input=[SEEN])[0]["messages"] == [SEEN]
    assert chats(input="a") == [{"input": "a"}]
    assert chats(input=["a"]) == [{"input": ["a"]}]


def test_there_is_no_history_that_grows():
    sent = body(model="m", input=[SEEN])
    start = sent.index(b"[")
    assert EMBEDDINGS.opening(sent, parse_embeddings(sent)) == Span(start, len(sent) - 1)
