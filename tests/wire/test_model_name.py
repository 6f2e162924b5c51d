"""Another model's name goes where vLLM reads it; all else of the body stays as it came."""

import json

import pytest

from gateway.domain.errors import GatewayError
from gateway.wire.max_tokens import cap_answer
from gateway.wire.model_name import name_model
from gateway.wire.splice import splice
from gateway.wire.usage_event import ask_for_usage


def named(body, name="small", *others):
    return b"".join(splice(body, [name_model(body, name), *others]))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"model":"large","n":1}', b'{"model":"small","n":1}'),
        (b'{"n": 1, "model" : "large" }', b'{"n": 1, "model" : "small" }'),
        (b'{"model":null}', b'{"model":"small"}'),
        (b'{"mod\\u0065l":"large"}', b'{"mod\\u0065l":"small"}'),
        (b'{"model":"first","model":"last"}', b'{"model":"first","model":"small"}'),
        (b' {"n":1}', b' {"model":"small","n":1}'),
    ],
    ids=["first", "with blanks", "null", "escaped", "twice, of which vLLM reads the last", "not there"],
)
def test_where_it_goes(body, expected):
    assert named(body) == expected


def test_a_name_is_spelled_as_json():
    assert json.loads(named(b'{"model":"large"}', 'a"b\\c é')) == {"model": 'a"b\\c é'}


def test_beside_all_else_that_is_written_where_keys_are_missing():
    body = b'{"stream":true,"messages":[]}'
    cap = cap_answer(body, None, 16)
    body = named(body, "small", cap.splice, *ask_for_usage(body, has_stream_options=False))
    assert json.loads(body) == {
        "model": "small",
        "max_tokens": 16,
        "stream": True,
        "messages": [],
        "stream_options": {"include_usage": True},
    }


def test_what_is_no_json_is_said_so():
    with pytest.raises(GatewayError, match="JSON"):
        name_model(b'{"model"', "small")
