"""Questions about a prompt's tokens, and their answers."""

import base64
import json

import pytest

from gateway.wire.calibration import (
    LOWEST_PRIORITY,
    completion_count,
    completion_question,
    refusal_message,
    tokenize_count,
    tokenize_question,
)

TEXT = {"type": "text", "text": "What is this?"}
PICTURE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{base64.b64encode(b'png').decode()}"}}


def asked(*parts):
    return {"model": "m", "messages": [{"role": "user", "content": list(parts)}]}


def test_questions_differ_by_the_picture_alone():
    assert json.loads(tokenize_question("m", None)) == asked(TEXT)
    assert json.loads(tokenize_question("m", b"png")) == asked(TEXT, PICTURE)


def test_an_answer_of_one_token_is_asked_for_when_nobody_else_waits():
    one_token = {"max_tokens": 1, "temperature": 0}
    assert json.loads(completion_question("m", b"png", None)) == asked(TEXT, PICTURE) | one_token
    lowest = one_token | {"priority": LOWEST_PRIORITY}
    assert json.loads(completion_question("m", None, LOWEST_PRIORITY)) == asked(TEXT) | lowest


def test_counts():
    assert tokenize_count(b'{"count":109,"max_model_len":32768,"tokens":[1],"token_strs":null}') == 109
    assert completion_count(b'{"choices":[],"usage":{"prompt_tokens":109,"completion_tokens":1}}') == 109


@pytest.mark.parametrize("body", [b"", b"null", b"{}", b'{"count":-1}', b'{"count":"9"}', b'{"usage":null}'])
def test_what_tells_no_count(body):
    assert (tokenize_count(body), completion_count(body)) == (None, None)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error":{"message":"At most 0\\n image(s)","code":400}}', "At most 0 image(s)"),
        (json.dumps({"error": {"message": "x" * 500}}).encode(), "x" * 200),
        (b'{"error":{}}', ""),
        (b'{"detail":"Not Found"}', ""),
        (b'{"error":' + b"[" * 5_000, ""),
        (b"oops", ""),
    ],
)
def test_refusals_say_why_in_one_line(body, message):
    assert refusal_message(body) == message
