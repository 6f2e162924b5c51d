"""Which of the fields with rules a body has, and how much of each."""

import json

import msgspec
import pytest

from gateway.domain.errors import GatewayError
from gateway.domain.fields import EVERYTHING, FIELDS
from gateway.domain.request import OwnSalt
from gateway.wire.watched import NOTHING, Watched, find_watched

DECODER = msgspec.json.Decoder(Watched)


def found(body, *, is_chat=True):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    return find_watched(DECODER.decode(body), body, is_chat=is_chat)


def uses(body, *, is_chat=True):
    return {use.name: use.amount for use in found(body, is_chat=is_chat).uses}


def test_a_body_without_them_has_none():
    assert found({"model": "m", "messages": [], "temperature": 1, "max_tokens": 5, "stream": True}) is NOTHING


def test_every_field_of_the_table_is_looked_for():
    names = set(Watched.__struct_fields__) - {"echo", "cache_salt"}
    assert {field.name.partition(".")[0] for field in FIELDS} | {"repetition_detection"} == names


PRESENT = {
    "mm_processor_kwargs": {"max_pixels": 1},
    "media_io_kwargs": {"image": {}},
    "chat_template": "{{ x }}",
    "kv_transfer_params": {"remote_host": "a"},
    "ec_transfer_params": {"a": 1},
    "use_beam_search": True,
    "guided_decoding_backend": "outlines",
}


@pytest.mark.parametrize("name", PRESENT)
def test_what_is_there(name):
    assert uses({name: PRESENT[name]}) == {name: 1}
    for nothing in (None, False, 0, "", {}, []):
        assert uses({name: nothing}) == {}


@pytest.mark.parametrize(("value", "amount"), [(3, 3), (-1, EVERYTHING), (5.0, 5), (1, 1)])
def test_numbers(value, amount):
    assert uses({"top_logprobs": value}) == {"top_logprobs": amount}
    assert uses({"logprobs": value}, is_chat=False) == {"logprobs": amount}
    assert uses({"logprobs": None, "top_logprobs": None}) == {}
    assert uses({"logprobs": 0, "best_of": 0, "n": 1, "stream_interval": 1}, is_chat=False) == {}


def test_in_a_chat_logprobs_is_no_number():
    assert uses({"logprobs": True}) == {}


@pytest.mark.parametrize("field", ["top_logprobs", "best_of", "n", "stream_interval", "priority"])
@pytest.mark.parametrize("value", ["5", True, 1.5, [1], 10**400])
def test_a_number_that_is_none(field, value):
    with pytest.raises(GatewayError) as caught:
        found({field: value})
    assert (caught.value.code, caught.value.param) == ("invalid_request", field)


@pytest.mark.parametrize(("value", "amount"), [(-7, 7), (0, None), (3, None), (None, None)])
def test_how_far_a_priority_is_below_zero(value, amount):
    assert uses({"priority": value}) == ({} if amount is None else {"priority": amount})


def test_bytes_are_those_of_the_json_as_it_came():
    body = b'{"stop": ["a" , "b"], "logit_bias": {"5":  1}, "bad_words": null}'
    assert uses(body) == {"stop": len('["a" , "b"]'), "logit_bias": len('{"5":  1}')}


@pytest.mark.parametrize("value", [0, 1, -1, "x"])
def test_any_word_of_prompt_logprobs_counts_but_null(value):
    assert uses({"prompt_logprobs": value}) == {"prompt_logprobs": 1}
    assert uses({"prompt_logprobs": None}) == {}


ECHOES = [
    ({"echo": True}, True, True),
    ({"echo": True, "top_logprobs": 0}, True, True),
    ({"echo": True}, False, False),
    ({"echo": True, "logprobs": 1}, False, True),
    ({"echo": True, "logprobs": 0}, False, True),
    ({"echo": True, "logprobs": None}, False, False),
    ({"echo": False, "logprobs": 1}, False, False),
    ({"echo": None}, True, False),
    ({"echo": True, "prompt_logprobs": None}, True, True),
]


@pytest.mark.parametrize(("body", "is_chat", "asks"), ECHOES)
def test_echo_asks_for_logprobs_of_the_prompt_as_vllm_has_it(body, is_chat, asks):
    asked = [use.asked_by for use in found(body, is_chat=is_chat).uses if use.name == "prompt_logprobs"]
    assert asked == (["echo"] if asks else [])


def test_what_stands_inside():
    body = {
        "structured_outputs": {"regex": "a*", "whitespace_pattern": None, "json": {}},
        "chat_template_kwargs": {"enable_thinking": False, "chat_template": "{{ x }}"},
        "repetition_detection": {"max_pattern_size": 900, "min_count": 2},
    }
    amounts = uses(body)
    assert amounts["structured_outputs.regex"] == len('"a*"')
    assert amounts["chat_template_kwargs.chat_template"] == 1
    assert amounts["repetition_detection.max_pattern_size"] == 900
    assert "structured_outputs.whitespace_pattern" not in amounts
    assert uses({"chat_template_kwargs": {"enable_thinking": False}}).keys() == {"chat_template_kwargs"}
    assert uses({"structured_outputs": "x", "repetition_detection": [1]}) == {"structured_outputs": 3}


@pytest.mark.parametrize("value", ["x", "", 0, [], ["x"]])
@pytest.mark.parametrize("name", ["kv_transfer_params", "ec_transfer_params"])
def test_what_is_for_connectors_is_seen_among_the_extra_arguments_too(name, value):
    assert uses({"vllm_xargs": {name: value, "ngram_size": 30}})[f"vllm_xargs.{name}"] == 1
    assert f"vllm_xargs.{name}" not in uses({"vllm_xargs": {"ngram_size": 30}})


def test_the_last_of_several_is_found_in_its_place_however_it_is_spelled():
    body = b'{"n": 1, "x": {"n": 7}, "\\u006e" : 300 }'
    (use,) = found(body).uses
    assert (use.name, use.amount) == ("n", 300)
    assert body[use.span.start : use.span.end] == b"300"


def test_ids_in_the_place_of_the_prompt_are_refused_whatever_is_allowed():
    with pytest.raises(GatewayError) as caught:
        found({"kv_transfer_params": {"prompt_token_ids": [1]}})
    assert caught.value.param == "kv_transfer_params.prompt_token_ids"
    assert uses({"kv_transfer_params": {"prompt_token_ids": None}}) == {"kv_transfer_params": 1}


def test_the_clients_own_salt():
    body = b'{"cache_salt": "mine", "n": 1}'
    salt = found(body).salt
    assert salt.text == "mine"
    assert body[salt.span.start : salt.span.end] == b'"mine"'
    assert found({"cache_salt": None}).salt.text is None
    assert found({"n": 1}).salt is None
    assert isinstance(found({"cache_salt": "x" * 1024}).salt, OwnSalt)


@pytest.mark.parametrize("salt", ["", 5, True, ["a"], "x" * 1025])
def test_a_salt_that_is_no_text(salt):
    with pytest.raises(GatewayError) as caught:
        found({"cache_salt": salt})
    assert (caught.value.code, caught.value.param) == ("invalid_request", "cache_salt")
