import json

import pytest

from gateway.domain.errors import Code, GatewayError
from gateway.wire.splice import splice
from gateway.wire.tokenize import TokenizeBody, count_header, count_tokens_answer, parse_tokenize, tokenize_answer


def parsed(**fields):
    return parse_tokenize(json.dumps(fields).encode())


def test_a_prompt_gets_special_tokens_unless_it_says_no():
    assert parsed(prompt="hi") == TokenizeBody(None, "hi", adds_special_tokens=True, wants_strings=False)
    asked = parsed(model="m", prompt="", add_special_tokens=False, return_token_strs=True)
    assert asked == TokenizeBody("m", "", adds_special_tokens=False, wants_strings=True)


def test_a_conversation_is_left_to_the_reader_of_chats():
    assert parsed(messages=[{"role": "user", "content": 5}], prompt=None).prompt is None


def test_what_only_templates_of_chats_see_is_taken_out():
    fields = {"documents": [{"text": "x"}], "reasoning_effort": "none"}
    body = json.dumps({"messages": [{"documents": 1}]} | fields).encode()
    left = json.loads(b"".join(splice(body, parse_tokenize(body).splices)))
    assert left == {"messages": [{"documents": 1}], "documents": None, "reasoning_effort": None}
    assert parsed(prompt="a", **fields).splices == ()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "prompt"),
        ({"prompt": None, "messages": None}, "prompt"),
        ({"prompt": "a", "messages": []}, "prompt"),
        ({"prompt": ["a"]}, "prompt"),
        ({"prompt": "a", "add_special_tokens": "no"}, "add_special_tokens"),
        ({"prompt": "a", "return_token_strs": 1}, "return_token_strs"),
        ({"prompt": "a", "model": 5}, "model"),
    ],
)
def test_what_is_neither_is_refused(fields, param):
    with pytest.raises(GatewayError) as refused:
        parsed(**fields)
    assert (refused.value.code, refused.value.param) == (Code.INVALID_REQUEST, param)


def test_answers_have_the_shapes_of_their_routes():
    assert json.loads(tokenize_answer(2, 32_768, [7, 9], None)) == {
        "count": 2,
        "max_model_len": 32_768,
        "tokens": [7, 9],
        "token_strs": None,
    }
    assert json.loads(count_tokens_answer(109)) == {"input_tokens": 109}


def test_the_header_says_how_sure_the_count_is():
    assert count_header(9, 9, is_exact=True) == (b"x-gateway-tokens", b"exact")
    assert count_header(5, 90, is_exact=False)[1] == b"estimate; lower=5; upper=90"
    assert count_header(5, None, is_exact=False)[1] == b"estimate; lower=5"
