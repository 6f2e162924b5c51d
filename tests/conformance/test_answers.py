"""Answers come through the gateway as the model server gave them."""

import re

import httpx
import pytest

from tests.conformance.harness import MODEL, sdk
from tests.support.pictures import data_url, encoded, picture

VOLATILE = re.compile(rb'"(id|created|system_fingerprint)": ?("[^"]*"|\d+|null)')
IMAGE = {"type": "image_url", "image_url": {"url": data_url(encoded(picture(280, 140)))}}
QUESTION = {"role": "user", "content": [{"type": "text", "text": "What is this?"}, IMAGE]}
REQUEST = {"model": MODEL, "messages": [QUESTION], "max_tokens": 6, "temperature": 0, "ignore_eos": True}

CHAT = "/v1/chat/completions"


def post(url, body, path=CHAT):
    return httpx.post(f"{url}{path}", json=body, timeout=60)


def without_ids(answer: bytes) -> bytes:
    return VOLATILE.sub(rb'"\1": -', answer)


def same_through_the_gateway(upstream, gateway, body, path=CHAT):
    """Ask directly and through the gateway. Asked once before, so that both find the same in vLLM's caches."""
    post(upstream.url, body, path)
    direct, through = post(upstream.url, body, path), post(gateway.url, body, path)
    assert through.status_code == direct.status_code
    assert through.headers["content-type"] == direct.headers["content-type"]
    assert without_ids(through.content) == without_ids(direct.content)
    return through


def test_an_answer_in_one_piece(upstream, gateway):
    answer = same_through_the_gateway(upstream, gateway, REQUEST)
    assert answer.json()["usage"]["completion_tokens"] == 6


def test_a_stream_event_by_event(upstream, gateway):
    answer = same_through_the_gateway(upstream, gateway, REQUEST | {"stream": True})
    assert b'"usage"' not in answer.content
    assert answer.content.endswith(b"data: [DONE]\n\n")


def test_a_stream_with_the_usage_that_was_asked_for(upstream, gateway):
    body = REQUEST | {"stream": True, "stream_options": {"include_usage": True}}
    answer = same_through_the_gateway(upstream, gateway, body)
    assert answer.content.count(b'"usage":{') == 1


def test_two_answers_to_one_question(gateway):
    answer = post(gateway.url, REQUEST | {"n": 2, "temperature": 1})
    assert [choice["index"] for choice in answer.json()["choices"]] == [0, 1]
    assert answer.json()["usage"]["completion_tokens"] == 12


def test_a_text_completion(upstream, gateway):
    body = {"model": MODEL, "prompt": "Once upon a time", "max_tokens": 5, "temperature": 0, "ignore_eos": True}
    same_through_the_gateway(upstream, gateway, body, "/v1/completions")


def test_the_sdk_reads_answers_and_streams(gateway):
    question = {"model": MODEL, "messages": [QUESTION], "max_tokens": 4, "extra_body": {"ignore_eos": True}}
    with sdk(gateway.url) as client:
        answer = client.chat.completions.create(**question)
        *events, last = client.chat.completions.create(**question, stream=True, stream_options={"include_usage": True})
    assert answer.choices[0].finish_reason == events[-1].choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == last.usage.completion_tokens == 4


@pytest.mark.parametrize(
    "wrong",
    [{"max_tokens": 1_000_000}, {"temperature": -1}, {"top_p": 7}, {"n": 2}],
    ids=lambda wrong: next(iter(wrong)),
)
def test_what_the_server_refuses_stays_as_it_said(upstream, gateway, wrong):
    answer = same_through_the_gateway(upstream, gateway, REQUEST | wrong)
    assert answer.status_code == 400


def test_the_list_of_models(upstream, gateway):
    direct, through = (httpx.get(f"{url}/v1/models").json() for url in (upstream.url, gateway.url))
    assert [model["id"] for model in through["data"]] == [model["id"] for model in direct["data"]]
    assert through["data"][0]["max_model_len"] == direct["data"][0]["max_model_len"]
