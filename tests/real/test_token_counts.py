"""Tokens counted by the gateway are those that vLLM counts itself, on both routes, one by one."""

import base64
import uuid

import httpx
import pytest

from tests.real.test_exact_tokens import settings
from tests.real.varied_requests import varied_requests
from tests.support.pictures import data_url, encoded, picture
from tests.support.processes import running_gateway

pytestmark = pytest.mark.real

ASKED = {"x-gateway-tokens": "estimate"}


def photo(width, height):
    """Unlike those of other tests: vLLM 0.32 notes an image that it only counted as one that its engine has, and then
    answers 500 to the first chat with it ("P0/P1 cache drift").
    """
    return encoded(picture(width, height, seed=4711))


def named(part):
    """The same body with names of their own for its images, by which vLLM notes them instead."""
    if isinstance(part, dict) and "image_url" in part:
        return part | {"uuid": str(uuid.uuid4())}
    if isinstance(part, dict):
        return {key: named(value) for key, value in part.items()}
    return [named(each) for each in part] if isinstance(part, list) else part


def shown(file):
    return {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": base64.b64encode(file).decode()},
    }


def text(words):
    return {"type": "text", "text": words}


def turn(role, *blocks):
    return {"role": role, "content": list(blocks)}


USE = {"type": "tool_use", "id": "t1", "name": "measure", "input": {"from": [1, 2.5], "unit": "µm"}}
TOOLS = [
    {
        "name": "measure",
        "description": "Länge <in> mm",
        "input_schema": {"properties": {"unit": {"enum": ["mm", "µm"]}}},
    },
    {"name": "zoom", "input_schema": {"type": "object"}, "strict": True},
]
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": [text("1 µm"), shown(photo(90, 300)), text("ok")]}
CONVERSATIONS = {
    "text": {"messages": [{"role": "user", "content": "How many people are in front of the door?"}]},
    "a picture": {"messages": [turn("user", text("What is this?"), shown(photo(280, 140)))]},
    "two pictures and a system prompt": {
        "system": [text("x-anthropic-billing-header: 1"), text("Be brief."), text(" Be kind.")],
        "messages": [turn("user", shown(photo(640, 480)), text("or"), shown(photo(57, 55)))],
    },
    "a tool, its result with a picture, and a question behind it": {
        "tools": TOOLS,
        "tool_choice": {"type": "any"},
        "messages": [
            {"role": "user", "content": "Measure it."},
            turn("assistant", text("I measure."), USE),
            turn("user", RESULT, text("And now?")),
        ],
    },
    "an assistant that says nothing and one that answers for a tool": {
        "messages": [
            {"role": "user", "content": "a"},
            turn("assistant", USE),
            turn("user", {"type": "tool_result", "tool_use_id": "t1", "content": "42"}),
            turn("assistant", {"type": "tool_result", "tool_use_id": "t1", "content": "43"}, text("so")),
            {"role": "user", "content": "b"},
        ]
    },
    "thoughts": {
        "thinking": {"type": "disabled"},
        "messages": [
            {"role": "user", "content": "a"},
            turn("assistant", {"type": "thinking", "thinking": "hm", "signature": "x"}, text("so")),
            {"role": "user", "content": "b"},
        ],
    },
    "system messages in between": {
        "system": "Be brief.",
        "output_config": {"effort": "high"},
        "messages": [
            {"role": "user", "content": "a"},
            {"role": "system", "content": "It is noon."},
            turn("user", text("b"), text("c")),
            {"role": "system", "content": [text("It is late.")]},
            {"role": "assistant", "content": "d"},
            {"role": "user", "content": "e"},
        ],
    },
}
PROMPTS = {
    "text": {"prompt": "Größe, Straße: how many people?\n<|im_end|>"},
    "empty": {"prompt": ""},
    "without special tokens": {"prompt": "hello", "add_special_tokens": False},
    "a chat": {
        "messages": [
            turn("user", text("What is this?"), {"type": "image_url", "image_url": {"url": data_url(photo(280, 140))}})
        ]
    },
    "a chat that goes on": {
        "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "Once upon"}],
        "add_generation_prompt": False,
        "continue_final_message": True,
    },
    "a chat with tools": {
        "messages": [{"role": "user", "content": "Measure it."}],
        "tools": [{"type": "function", "function": {"name": "zoom", "parameters": {"type": "object"}}}],
    },
}


@pytest.fixture(scope="module")
def gateway_url(real_vllm, tmp_path_factory):
    with running_gateway(real_vllm.url, tmp_path_factory.mktemp("gateway"), settings(real_vllm)) as gateway:
        yield gateway.url


def both(real_vllm, gateway_url, path, body):
    body = {"model": real_vllm.model} | body
    own = httpx.post(f"{real_vllm.url}{path}", json=body, timeout=60)
    counted = httpx.post(f"{gateway_url}{path}", json=body, headers=ASKED, timeout=60)
    assert (own.status_code, counted.status_code) == (200, 200), (own.text, counted.text)
    assert counted.headers["x-gateway-tokens"] == "exact"
    return own.json(), counted.json()


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_messages(real_vllm, gateway_url, name):
    own, counted = both(real_vllm, gateway_url, "/v1/messages/count_tokens", CONVERSATIONS[name])
    assert counted["input_tokens"] == own["input_tokens"]


def test_tokens_of_every_request_that_users_make(real_vllm, gateway_url, report_line):
    """But for those that ask the gateway to change something. What a chat has and /tokenize has not counts nothing."""
    cases = [case for case in varied_requests() if not case.headers]
    more = {"reasoning_effort": "high", "documents": [{"text": "x"}], "truncate_prompt_tokens": 5, "n": 2}
    compared = 0
    for case in cases:
        body = {"model": real_vllm.model} | case.body | more
        own = httpx.post(f"{real_vllm.url}/tokenize", json=named(body), timeout=60)
        if own.is_success:  # some are spelled so that the gateway has to repair them first
            counted = httpx.post(f"{gateway_url}/tokenize", json=body, headers=ASKED, timeout=60)
            assert (case.name, counted.json()) == (case.name, own.json())
            compared += 1
    report_line(f"token lists compared: {compared}, all equal")
    assert compared >= 130


@pytest.mark.parametrize("name", PROMPTS)
def test_tokens(real_vllm, gateway_url, name):
    own, counted = both(real_vllm, gateway_url, "/tokenize", PROMPTS[name] | {"return_token_strs": True})
    assert counted == own
