import msgspec
import pytest

from gateway.domain.errors import Code, GatewayError
from gateway.domain.priority import Priority
from gateway.wire import read


@pytest.mark.parametrize(("value", "expected"), [(None, None), (16, 16), (16.0, 16), (1, 1), (2**63 - 1, 2**63 - 1)])
def test_whole_numbers_are_read_as_vllm_reads_them(value, expected):
    assert read.integer(value, "max_tokens", minimum=1) == expected


@pytest.mark.parametrize("value", [0, -1, 2**63, 1e30, 16.5, "16", True, False, [16], {}])
def test_anything_else_is_refused_as_a_number(value):
    with pytest.raises(GatewayError) as refused:
        read.integer(value, "max_tokens", minimum=1)
    assert (refused.value.code, refused.value.param) == (Code.INVALID_REQUEST, "max_tokens")
    assert "at least 1" in refused.value.message


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (-1, Priority.INTERACTIVE),
        (-(2**63), Priority.INTERACTIVE),
        (0, Priority.DEFAULT),
        (0.0, Priority.DEFAULT),
        (7, Priority.BATCH),
    ],
)
def test_of_vllms_priorities_the_lowest_number_is_the_most_urgent(value, expected):
    assert read.priority(value) is expected


@pytest.mark.parametrize("value", ["critical", "-1", True, 0.5, 2**63, -(2**63) - 1])
def test_a_priority_that_is_no_whole_number_is_refused(value):
    with pytest.raises(GatewayError) as refused:
        read.priority(value)
    assert (refused.value.code, refused.value.param) == (Code.INVALID_REQUEST, "priority")


@pytest.mark.parametrize(("value", "expected"), [(None, False), (True, True), (False, False)])
def test_booleans(value, expected):
    assert read.boolean(value, "stream") is expected


@pytest.mark.parametrize("value", ["yes", 1, 0, "true", []])
def test_what_pydantic_would_turn_into_a_boolean_is_refused(value):
    with pytest.raises(GatewayError, match="must be true or false") as refused:
        read.boolean(value, "stream")
    assert refused.value.param == "stream"


def test_strings():
    assert read.string("m", "model") == "m"
    assert read.string(None, "model") is None
    with pytest.raises(GatewayError, match="`model` must be a string"):
        read.string(5, "model")


@pytest.mark.parametrize(
    ("value", "expected"), [(None, 0), ("abc", 3), ("äß€😀", 11), ({"ä": 1}, 8), (5, 1), (10**30, 31), ([], 2)]
)
def test_rendered_bytes(value, expected):
    assert read.rendered_bytes(value) == expected


@pytest.mark.parametrize("empty", [b"", bytearray()])
def test_an_empty_body_is_told_as_such(empty):
    with pytest.raises(GatewayError, match="it is empty") as refused:
        read.decode_body(msgspec.json.Decoder(), empty)
    assert refused.value.code is Code.INVALID_JSON


def test_a_value_too_deep_to_be_written_is_refused():
    value = []
    for _ in range(5_000):
        value = [value]
    with pytest.raises(GatewayError) as refused:
        read.rendered_bytes(value)
    assert refused.value.code is Code.INVALID_JSON


def test_json_bytes_count_what_is_there():
    assert read.json_bytes(read.ABSENT, msgspec.Raw(b"null"), msgspec.Raw(b'{"a": 1}'), msgspec.Raw(b'"nullx"')) == 15


def test_ids_that_would_replace_the_prompt_are_refused():
    read.refuse_hidden_prompt(None)
    read.refuse_hidden_prompt({"do_remote_decode": msgspec.Raw(b"true"), "prompt_token_ids": msgspec.Raw(b"null")})
    with pytest.raises(GatewayError) as refused:
        read.refuse_hidden_prompt({"prompt_token_ids": msgspec.Raw(b"[1]")})
    assert refused.value.param == "kv_transfer_params.prompt_token_ids"
