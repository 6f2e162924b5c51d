"""`/tokenize` where vLLM answers it: its pictures are looked at as those of a chat."""

import json

import pytest

from gateway.domain.errors import GatewayError
from gateway.wire.dialects.tokenize import TOKENIZE, parse_tokenize_sent_on
from gateway.wire.messages import Rendering

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


def parse(**fields):
    return parse_tokenize_sent_on(json.dumps(fields).encode())


def test_a_prompt_holds_nothing():
    request = parse(prompt="abc", messages=None)
    assert (request.needs_engine, request.images) == (False, ())


def test_a_conversation_with_pictures_has_them_looked_at():
    request = parse(messages=[{"role": "user", "content": ["abc", IMAGE]}], stream=True)
    assert not request.stream  # vLLM knows no streams here
    assert (len(request.images), request.needs_engine, request.wants_output) == (1, False, False)
    assert request.images[0].param == "messages[0].content[1].image_url.url"


def test_the_template_sees_less_of_it_than_of_a_chat():
    body = {"messages": [{"role": "user", "content": "a"}], "documents": [{}], "reasoning_effort": "low", "tools": []}
    [chat] = TOKENIZE.chats(json.dumps(body).encode(), Rendering)
    assert json.loads(chat) == {"messages": body["messages"], "tools": []}


def test_not_both():
    with pytest.raises(GatewayError) as refused:
        parse(prompt="abc", messages=[{"role": "user", "content": [IMAGE]}])
    assert (refused.value.status, refused.value.param) == (400, "prompt")
