"""What admission needs of several conversations at once; images are in test_conformance.py."""

import json

import pytest

from gateway.domain.errors import Code, GatewayError
from gateway.wire.dialects.batch import BATCH, parse_batch

HI = [{"role": "user", "content": "hi"}]
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGVsbG8="}}
SHOWN = [{"role": "system", "content": "s"}, {"role": "user", "content": [PICTURE]}]


def body_of(*conversations, **fields):
    return json.dumps({"model": "m", "messages": list(conversations)} | fields).encode()


def test_each_conversation_is_a_prompt_with_one_answer():
    request = parse_batch(body_of(HI, SHOWN, max_tokens=5, max_completion_tokens=7, priority=3))
    assert (request.prompts, request.n, request.max_tokens, request.stream) == (2, 1, 7, False)
    assert request.conversation_lengths == (1, 2)
    assert [[message.role for message in each] for each in request.conversations] == [["user"], ["system", "user"]]
    assert [image.param for image in request.images] == ["messages[1][1].content[0].image_url.url"]


def test_what_stands_beside_the_messages_counts_for_each():
    words = {"chat_template_kwargs": {"a": 1}}
    once, twice = parse_batch(body_of(HI, **words)), parse_batch(body_of(HI, HI, **words))
    assert once.extra_text_bytes == len('{"a": 1}')
    assert twice.extra_text_bytes == twice.uncertain_extra_bytes == 2 * once.extra_text_bytes


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [HI, []]}, "messages"),
        ({"messages": HI}, "messages[0]"),
        ({"stream": True}, "stream"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"n": 2}, "n"),
        ({"messages": [[{"role": 5}]]}, "messages[0][0].role"),
    ],
)
def test_what_is_refused(fields, param):
    with pytest.raises(GatewayError) as refused:
        parse_batch(body_of(HI, **fields))
    assert (refused.value.code, refused.value.param.replace("...", "0")) == (Code.INVALID_REQUEST, param)


def test_a_part_of_a_wrong_type_is_named_as_in_a_chat():
    with pytest.raises(GatewayError) as refused:
        parse_batch(body_of([{"role": "user", "content": [5]}]))
    assert refused.value.code is Code.INVALID_CONTENT_PART


def test_null_means_the_default():
    assert parse_batch(body_of(HI, n=None, stream=None, tools=None)).n == 1


def test_the_templates_see_each_alone_with_what_stands_beside():
    chats = BATCH.chats(body_of(HI, SHOWN, temperature=0.5), None)
    assert [json.loads(chat) for chat in chats] == [
        {"model": "m", "messages": messages, "temperature": 0.5} for messages in (HI, SHOWN)
    ]


def test_nothing_of_it_grows_so_all_of_it_is_its_beginning():
    body = body_of(HI, SHOWN)
    span = BATCH.opening(body, parse_batch(body))
    assert json.loads(body[span.start : span.end]) == [HI, SHOWN]
