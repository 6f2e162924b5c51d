import json

import pytest

from gateway.domain.errors import Code, GatewayError
from gateway.domain.priority import Priority
from gateway.wire.embeddings import parse_embeddings

MESSAGE = {"role": "user", "content": "hi"}


def parse(**fields):
    return parse_embeddings(json.dumps(fields).encode())


@pytest.mark.parametrize(
    ("value", "prompts", "token_ids", "text_bytes"),
    [("abc", 1, 0, 3), (["a", "b"], 2, 0, 2), ([1, 2], 1, 2, 0), ([[1], [2, 3]], 2, 3, 0)],
)
def test_text_and_ids(value, prompts, token_ids, text_bytes):
    request = parse(input=value, model="m")
    assert (request.prompts, request.prompt_token_ids, request.text_bytes) == (prompts, token_ids, text_bytes)
    assert (request.model, request.wants_output, request.max_tokens) == ("m", False, None)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": [MESSAGE]}, "messages"),
        ({"input": "a", "messages": []}, "messages"),
        ({"input": [MESSAGE]}, "input"),
        ({"input": ["a", MESSAGE]}, "input"),
        ({"input": [[MESSAGE], [MESSAGE]]}, "input"),
    ],
)
def test_messages_are_not_yet_inspected(fields, param):
    with pytest.raises(GatewayError, match="not yet inspected") as refused:
        parse(**fields)
    assert (refused.value.code, refused.value.param) == (Code.INVALID_REQUEST, param)


@pytest.mark.parametrize("fields", [{}, {"input": None}, {"input": 5}, {"input": []}, {"input": [["a"]]}])
def test_other_inputs_are_refused(fields):
    with pytest.raises(GatewayError) as refused:
        parse(**fields)
    assert refused.value.code is Code.INVALID_REQUEST
    assert refused.value.param.startswith("input")


def test_as_many_inputs_as_sequences_of_any_request():
    assert parse(input=["a"] * 16_384).prompts == 16_384
    with pytest.raises(GatewayError, match="16385 prompts, and at most 16384") as refused:
        parse(input=[[1]] * 16_385)
    assert (refused.value.code, refused.value.param) == (Code.INVALID_REQUEST, "input")


def test_priority():
    assert parse(input="a", priority=-1).priority is Priority.INTERACTIVE
    assert parse(input="a").priority is None


def test_truncation():
    assert parse_embeddings(b'{"input": "a", "truncate_prompt_tokens": 512}').truncate_prompt_tokens == 512
