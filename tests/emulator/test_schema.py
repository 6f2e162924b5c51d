"""The sentences for bodies that are no requests, as far as no capture in test_errors.py has them."""

from typing import Any

import pytest

from gateway.emulator.errors import ApiError, DetailError
from gateway.emulator.schema import ChatRequest, parse_json, parse_request


def refusal(data: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        parse_request(ChatRequest, data)
    return caught.value


@pytest.mark.parametrize(
    ("message", "field", "problem"),
    [("hi", "", "Input should be a valid dictionary"), ({"content": "hi"}, ".role", "Field required")],
)
def test_a_message_of_a_wrong_shape(message: object, field: str, problem: str) -> None:
    error = refusal({"messages": [message]})

    assert error.param == f"body.messages.0.ChatCompletionDeveloperMessageParam{field}"
    assert f"'msg': '{problem}'" in error.message


def test_only_an_assistant_may_have_null_content() -> None:
    assert parse_request(ChatRequest, {"messages": [{"role": "assistant", "content": None}]}).messages
    assert refusal({"messages": [{"role": "user", "content": 7}]}).type == "Bad Request"


def test_many_errors_are_counted_and_ten_are_told() -> None:
    error = refusal({"messages": [], **{field: {"no": "number"} for field in _TYPED_FIELDS}})

    assert error.message.startswith("11 validation errors:\n  {'type': 'int_type', 'loc': 'body.max_tokens'")
    assert error.message.count("\n  {") == 10
    assert error.message.endswith("...and 1 more errors")
    assert "<dict of 1 items>" in error.message


_TYPED_FIELDS = (
    "max_tokens", "min_tokens", "ignore_eos", "n", "stream", "temperature", "top_p", "seed", "priority",
    "max_completion_tokens", "logprobs",
)  # fmt: skip


def test_a_long_input_is_cut_in_the_message() -> None:
    assert "...[truncated]" in refusal({"messages": [], "n": "7" * 300 + "x"}).message


@pytest.mark.parametrize("body", [b'{"a": "\xff"}', b"[" * 200_000])
def test_what_the_framework_cannot_read_has_its_own_shape(body: bytes) -> None:
    with pytest.raises(DetailError) as caught:
        parse_json(body, "application/json; charset=utf-8")

    assert (caught.value.status, caught.value.detail) == (400, "There was an error parsing the body")


def test_json_is_read_as_the_standard_library_reads_it() -> None:
    assert parse_json(b'\xef\xbb\xbf{"a": 1, "a": NaN, "\\u0062": "\\/"}', "application/json").keys() == {"a", "b"}


@pytest.mark.parametrize("salt", ["", 7, "a@b", "a/b", "a\\b", "a\0b", "a" * 129])
def test_a_salt_that_caches_behind_the_engine_could_not_keep_is_refused(salt: object) -> None:
    error = refusal({"messages": [], "cache_salt": salt})
    assert (error.status, error.param) == (400, "cache_salt")


@pytest.mark.parametrize("salt", [None, "a", "a" * 128])
def test_a_salt_that_is_one(salt: str | None) -> None:
    assert parse_request(ChatRequest, {"messages": [], "cache_salt": salt}).cache_salt == salt
