"""Streams event for event as captured: order, keys, framing, and where usage stands."""

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

from gateway.emulator.config import EmulatorConfig
from gateway.emulator.serve import running_emulator
from tests.support.pictures import data_url, encoded

CAPTURES = Path(__file__).parents[1] / "data" / "vllm_captures"
CAPTURED: dict[str, Any] = json.loads((CAPTURES / "streaming_qwen2_5_vl.json").read_text())
ENDPOINTS: dict[str, Any] = json.loads((CAPTURES / "endpoints_qwen2_5_vl.json").read_text())
EXTRAS: dict[str, Any] = json.loads((CAPTURES / "extras_qwen2_5_vl.json").read_text())

PICTURE = data_url(encoded(Image.new("RGB", (280, 140))))
MESSAGES = [
    {
        "role": "user",
        "content": [{"type": "text", "text": "hi"}, {"type": "image_url", "image_url": {"url": PICTURE}}],
    }
]
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "include_usage": {"stream_options": {"include_usage": True}},
    "continuous_usage_stats": {"stream_options": {"include_usage": True, "continuous_usage_stats": True}},
    "continuous_only": {"stream_options": {"continuous_usage_stats": True}},
}
MADE_UP = re.compile(r'("id":"(chat)?cmpl-)[^"]+|("created":)\d+|("(content|text|system_fingerprint)":)"[^"]*"')


def neutral(stream: str) -> str:
    """The stream without what no two servers share: ids, times, words."""
    return MADE_UP.sub(lambda match: next(group for group in match.groups() if group), stream)


@pytest.mark.parametrize("name", OPTIONS)
def test_a_chat_stream_is_the_captured_one_but_for_ids_times_and_words(client: httpx.Client, name: str) -> None:
    request = {"model": "tiny", "messages": MESSAGES, "max_tokens": 4, "stream": True, **OPTIONS[name]}

    response = client.post("/v1/chat/completions", json=request)

    assert neutral(response.text) == neutral(CAPTURED[name]["text"])
    assert response.headers.keys() == CAPTURED[name]["headers"].keys()
    assert response.headers["content-type"] == CAPTURED[name]["headers"]["content-type"]


def test_a_completion_stream_is_the_captured_one(client: httpx.Client) -> None:
    request = {"model": "tiny", "prompt": "hi", "max_tokens": 3, "stream": True, **OPTIONS["include_usage"]}

    response = client.post("/v1/completions", json=request)

    assert neutral(response.text) == neutral(CAPTURED["completions"]["text"])


def test_usage_can_be_forced_into_every_event_and_hold_details() -> None:
    config = EmulatorConfig.fast(block_size=128, enable_force_include_usage=True, enable_prompt_tokens_details=True)
    with running_emulator(config) as server:
        request = {"messages": [_describe()], "max_tokens": 2, "stream": True}
        stream = httpx.post(f"{server.base_url}/v1/chat/completions", json=request).text

    usage = [event["usage"] for event in events(stream)]
    captured = [event["usage"] for event in events(EXTRAS["force_include_usage_stream"])]
    assert [list(each) for each in usage] == [list(each) for each in captured]
    assert list(usage[-1]["prompt_tokens_details"]) == list(captured[-1]["prompt_tokens_details"])
    assert usage[-1]["prompt_tokens_details"]["multimodal_tokens"] == {"image": 391}


def _describe() -> dict[str, Any]:
    picture = data_url(encoded(Image.new("RGB", (640, 480))))
    image = {"type": "image_url", "image_url": {"url": picture}}
    return {"role": "user", "content": [{"type": "text", "text": "describe"}, image]}


def events(stream: str) -> list[dict[str, Any]]:
    """The JSON events before [DONE]."""
    return [json.loads(line[6:]) for line in stream.split("\n\n") if line.startswith("data: {")]


def test_details_of_the_prompt_are_those_captured() -> None:
    config = EmulatorConfig.fast(block_size=128, enable_prompt_tokens_details=True)
    with running_emulator(config) as server:
        request = {"messages": [_describe()], "max_tokens": 1}
        usage = [httpx.post(f"{server.base_url}/v1/chat/completions", json=request).json()["usage"] for _ in range(2)]

    assert usage == EXTRAS["usage_details_cached_twice"]


def test_two_answers_at_once_are_told_apart_by_index(client: httpx.Client) -> None:
    request = {"messages": MESSAGES, "max_tokens": 3, "n": 2, "stream": True}

    chunks = events(client.post("/v1/chat/completions", json=request).text)

    assert [chunk["choices"][0]["index"] for chunk in chunks[:2]] == [0, 1]
    assert sorted(chunk["choices"][0]["index"] for chunk in chunks) == [0] * 4 + [1] * 4
    refused = client.post("/v1/chat/completions", json={**request, "temperature": 0})
    assert refused.text == CAPTURED["n2"]["text"]


def test_an_error_found_before_the_stream_is_a_plain_one(client: httpx.Client) -> None:
    broken = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": data_url(b"hello")}}]}

    response = client.post("/v1/chat/completions", json={"messages": [broken], "stream": True})

    assert (response.status_code, response.text) == (400, CAPTURED["error_before_stream"]["text"])


def test_an_image_over_the_encoder_cache_is_refused_inside_the_200() -> None:
    with running_emulator(EmulatorConfig.fast(encoder_cache_size=100)) as server:
        url = f"{server.base_url}/v1/chat/completions"
        streamed = httpx.post(url, json={"messages": [_describe()], "stream": True})
        plain = httpx.post(url, json={"messages": [_describe()]})

    assert streamed.status_code == 200
    assert streamed.text.startswith(
        'data: {"error": {"message": "The decoder prompt contains a(n) image item with 391 '
    )
    assert streamed.text.endswith('"code": 400}}\n\ndata: [DONE]\n\n')
    assert plain.status_code == 400
    assert "exceeds the pre-allocated encoder cache size 100." in plain.json()["error"]["message"]


def test_the_queue_limit_is_a_503_before_and_an_event_inside_the_stream() -> None:
    captured = json.loads((CAPTURES / "native_admission_max_num_queued_reqs.json").read_text())
    burst = json.loads((CAPTURES / "native_admission_burst_max_num_queued_reqs.json").read_text())
    with running_emulator(EmulatorConfig.fast(max_num_queued_reqs=1)) as server:
        url = server.base_url
        for route, body in (
            ("chat", {"messages": MESSAGES, "n": 2}),
            ("chat_stream", {"messages": MESSAGES, "n": 2, "stream": True}),
            ("completions", {"prompt": "hi", "n": 2}),
        ):
            response = httpx.post(url + captured[route]["request"]["path"], json=body)
            assert (response.status_code, response.text) == (503, captured[route]["body"])
            assert "retry-after" not in response.headers
        two_prompts = {"prompt": ["hi", "ho"], "stream": True}
        inside = httpx.post(f"{url}/v1/completions", json=two_prompts)
        metrics = httpx.get(f"{url}/metrics").text

    assert (inside.status_code, inside.text) == (200, burst["examples"]["200 error-in-stream"])
    assert 'admission_rejections_total{model_name="tiny",reason="max_num_queued_reqs"} 4.0' in metrics


def test_the_token_backlog_limit_has_its_own_sentence() -> None:
    captured = json.loads((CAPTURES / "max_tokens_and_queued_tokens.json").read_text())
    with running_emulator(EmulatorConfig.fast(max_num_queued_tokens=0)) as server:
        response = httpx.post(f"{server.base_url}/v1/chat/completions", json={"messages": MESSAGES})

    example = captured["burst_24_with_max_num_queued_tokens_300"]["example_plain"]
    assert (response.status_code, response.text) == (503, example)


@pytest.mark.parametrize("name", ["completions_text", "completions_list_of_prompts", "chat"])
def test_a_whole_answer_has_the_captured_keys_in_their_order(client: httpx.Client, name: str) -> None:
    captured = ENDPOINTS[name]
    request = {**captured["request"], **({"messages": MESSAGES} if name == "chat" else {})}

    body = client.post(captured["path"], json=request).json()

    assert _shape(body) == _shape(captured["body"])
    assert body["usage"] == captured["body"]["usage"]


def _shape(value: object) -> object:
    if isinstance(value, dict):
        return [(key, _shape(inner)) for key, inner in value.items()]
    return [_shape(inner) for inner in value] if isinstance(value, list) else type(value).__name__


def test_prompts_of_ids_are_counted_and_checked_as_ids(client: httpx.Client) -> None:
    def post(prompt: object) -> httpx.Response:
        return client.post("/v1/completions", json={"prompt": prompt, "max_tokens": 1})

    assert post([65, 66, 67]).json()["usage"]["prompt_tokens"] == 3
    assert post([[65], [66, 67]]).json()["usage"]["prompt_tokens"] == 3
    assert post([512]).status_code == 400
    assert "contains 40000 input tokens" in post([65] * 40_000).json()["error"]["message"]
    assert "at least 32769" in post("x" * 40_000).json()["error"]["message"]
    assert post("").json()["error"]["param"] == "prompt"


def finish(client: httpx.Client, **more: object) -> tuple[int, str]:
    messages = [{"role": "user", "content": more.pop("content", "hi")}]
    headers = {"x-emulator-output-tokens": str(more.pop("header"))} if "header" in more else {}
    body = client.post("/v1/chat/completions", json={"messages": messages, **more}, headers=headers).json()
    return body["usage"]["completion_tokens"], body["choices"][0]["finish_reason"]


def test_the_length_of_an_answer_is_what_the_request_says(client: httpx.Client) -> None:
    assert finish(client, max_tokens=9) == (9, "length")
    assert finish(client, max_completion_tokens=8, max_tokens=9) == (8, "length")
    assert finish(client, max_tokens=9, emulator_output_tokens=4) == (4, "stop")
    assert finish(client, max_tokens=9, header=5) == (5, "stop")
    assert finish(client, max_tokens=9, header=50) == (9, "length")


def test_without_a_limit_the_length_is_drawn_the_same_for_the_same_body(client: httpx.Client) -> None:
    drawn = [finish(client, user=name) for name in "aabcdef"]

    assert drawn[0] == drawn[1]
    assert len(set(drawn)) > 3
    assert {reason for _, reason in drawn} == {"stop"}
    assert finish(client, min_tokens=900) == (900, "stop")
    assert finish(client, content="x" * 32_668, ignore_eos=True) == (45, "length")


def test_token_ids_come_with_the_text_when_asked_for(client: httpx.Client) -> None:
    request = {"messages": MESSAGES, "max_tokens": 9, "emulator_output_tokens": 3, "return_token_ids": True}

    choice = client.post("/v1/chat/completions", json=request).json()["choices"][0]

    assert len(choice["token_ids"]) == 3
    text = client.post("/detokenize", json={"tokens": choice["token_ids"]}).json()["prompt"]
    assert text == choice["message"]["content"] + "<|im_end|>"


def test_the_stream_says_what_the_whole_answer_says(client: httpx.Client) -> None:
    body = json.dumps({"messages": MESSAGES, "max_tokens": 5, "stream": False}).encode()
    whole = client.post("/v1/chat/completions", content=body, headers={"content-type": "application/json"}).json()

    assert whole["choices"][0]["message"]["content"].count(" ") == 5
