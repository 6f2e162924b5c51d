"""A pooling server: its answers to what a real vLLM 0.32 was asked, key for key, and what it takes beside that."""

import base64
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.emulator.config import EmulatorConfig
from gateway.emulator.serve import running_emulator
from tests.support.pictures import data_url, encoded, picture

CAPTURES = Path(__file__).parents[1] / "data" / "vllm_captures"
CAPTURED: dict[str, Any] = json.loads((CAPTURES / "pooling_qwen2_5_vl.json").read_text())
IMAGE = {"type": "image_url", "image_url": {"url": data_url(encoded(picture(280, 140)))}}
SMALL = [
    {"type": "image_url", "image_url": {"url": data_url(encoded(picture(56, 56, seed=seed)))}} for seed in range(5)
]
TEXT = {"type": "text", "text": "hi"}
B = {"type": "text", "text": "b"}
BAD = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGVsbG8="}}
LARGE = {"type": "image_url", "image_url": {"url": data_url(encoded(picture(560, 560)))}}
MESSAGES = [{"role": "user", "content": [TEXT, IMAGE]}]
ASKED = {
    "embeddings_text": ("/v1/embeddings", {"input": "hi"}),
    "embeddings_messages_image": ("/v1/embeddings", {"messages": MESSAGES}),
    "pooling_messages_image": ("/pooling", {"messages": MESSAGES, "task": "embed"}),
    "score_text": ("/score", {"text_1": "a", "text_2": "b"}),
    "score_image": ("/score", {"text_1": "a", "text_2": {"content": [IMAGE]}}),
    "rerank_image": ("/v1/rerank", {"query": "a", "documents": [{"content": [IMAGE]}, {"content": [B]}]}),
    "embed_cohere": ("/v2/embed", {"texts": ["hi"], "input_type": "search_query"}),
    "tokenize": ("/tokenize", {"messages": MESSAGES}),
    "chat": ("/v1/chat/completions", {"messages": MESSAGES}),
    "embeddings_bad_image": ("/v1/embeddings", {"messages": [{"role": "user", "content": [BAD]}]}),
    "embeddings_too_many": ("/v1/embeddings", {"messages": [{"role": "user", "content": SMALL}]}),
}  # fmt: skip


@pytest.fixture(scope="module")
def pooling() -> Iterator[httpx.Client]:
    config = EmulatorConfig.fast(runner="pooling", image_limit=4, encoder_cache_size=200)
    with running_emulator(config) as running, httpx.Client(base_url=running.base_url, trust_env=False) as http:
        yield http


def ask(client: httpx.Client, path: str, **body: Any) -> Any:
    response = client.post(path, json={"model": "tiny", **body})
    assert response.status_code == 200, response.text
    return response.json()


@pytest.mark.parametrize("name", ASKED)
def test_what_vllm_was_asked_is_answered_alike(pooling: httpx.Client, name: str) -> None:
    path, body = ASKED[name]
    response = pooling.post(path, json={"model": "tiny", **body})
    answer, captured = response.json(), CAPTURED[name]
    assert response.status_code == captured["status"]
    assert list(answer) == list(captured["body"])
    for key in ("object", "usage", "error", "detail", "count"):
        assert answer.get(key) == captured["body"].get(key)
    for items in ("data", "results"):
        for one, theirs in zip(answer.get(items, ()), captured["body"].get(items, ()), strict=True):
            assert list(one) == list(theirs)


def test_classes(pooling: httpx.Client) -> None:
    [found] = ask(pooling, "/classify", messages=MESSAGES)["data"]
    assert sum(found["probs"]) == pytest.approx(1)
    assert found["label"] in {"LABEL_0", "LABEL_1"}


def test_every_prompt_of_a_batch_is_pooled_by_itself(pooling: httpx.Client) -> None:
    one = ask(pooling, "/v1/embeddings", messages=MESSAGES)
    for body in ({"messages": [MESSAGES, MESSAGES]}, {"input": [MESSAGES, MESSAGES]}):
        both = ask(pooling, "/v1/embeddings", **body)
        assert [item["embedding"] for item in both["data"]] == [one["data"][0]["embedding"]] * 2
        assert both["usage"]["prompt_tokens"] == 2 * one["usage"]["prompt_tokens"] == 196
    assert ask(pooling, "/v1/embeddings", input=MESSAGES)["data"] == one["data"]
    assert ask(pooling, "/v1/embeddings", input=[[1, 2], [3]])["usage"]["total_tokens"] == 3
    assert ask(pooling, "/v1/embeddings", input=[1, 2])["usage"]["total_tokens"] == 2
    assert ask(pooling, "/v1/embeddings", input=["a", "bc"])["usage"]["total_tokens"] == 3


def test_base64(pooling: httpx.Client) -> None:
    plain = ask(pooling, "/v1/embeddings", input="hi")["data"][0]["embedding"]
    packed = ask(pooling, "/v1/embeddings", input="hi", encoding_format="base64")["data"][0]["embedding"]
    assert struct.unpack("<64f", base64.b64decode(packed)) == pytest.approx(plain)


def test_coheres_shapes(pooling: httpx.Client) -> None:
    url = IMAGE["image_url"]["url"]
    texts = ask(pooling, "/v2/embed", texts=["hi", "ho"])
    assert (texts["texts"], len(texts["embeddings"]["float"])) == (["hi", "ho"], 2)
    assert texts["meta"]["billed_units"] == {"input_tokens": 4, "image_tokens": 0}
    images = ask(pooling, "/v2/embed", images=[url])
    mixed = ask(pooling, "/v2/embed", inputs=[{"content": [IMAGE, {**TEXT, "image_url": {"url": url}}]}])
    assert images["meta"]["billed_units"]["image_tokens"] == 96
    assert mixed["meta"]["billed_units"]["image_tokens"] == 98
    cut = ask(pooling, "/v2/embed", texts=["a" * 90], max_tokens=5, truncate="START")
    assert cut["meta"]["billed_units"]["input_tokens"] == 5
    assert ask(pooling, "/v2/embed", texts=["a"], truncate="NONE")["texts"] == ["a"]


def test_scores_are_of_pairs(pooling: httpx.Client) -> None:
    content = {"content": [IMAGE, TEXT, TEXT]}
    same = ask(pooling, "/score", data_1=content, data_2=content)
    assert same["data"][0]["score"] == pytest.approx(1)
    assert same["usage"]["prompt_tokens"] == 2 * (52 + len("hi\nhi"))
    for names in (("queries", "documents"), ("queries", "items"), ("text_1", "text_2")):
        assert len(ask(pooling, "/v1/score", **dict(zip(names, ("a", ["b", "c"]), strict=True)))["data"]) == 2
    assert len(ask(pooling, "/score", text_1=["a", "b"], text_2=["c", "d"])["data"]) == 2
    best = ask(pooling, "/v2/rerank", query="a", documents=["b", "a"], top_n=1)["results"]
    assert [(each["index"], each["document"]["text"]) for each in best] == [(1, "a")]
    assert len(ask(pooling, "/rerank", query="a", documents="b")["results"]) == 1


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/v1/embeddings", {}, "Field required"),
        ("/v1/embeddings", [], "valid dictionary"),
        ("/v1/embeddings", {"input": []}, "at least one prompt"),
        ("/v1/embeddings", {"input": 5}, "validation error"),
        ("/v1/embeddings", {"input": "a" * 40_000}, "maximum context length is 32768"),
        ("/v1/embeddings", {"messages": [{"role": "user", "content": ["a" * 32_720, SMALL[0]]}]}, "Input length"),
        ("/v1/embeddings", {"messages": [{"role": "user", "content": [LARGE]}]}, "encoder cache size 200"),
        ("/pooling", {"data": {}}, "No IOProcessor plugin"),
        ("/pooling", {"input": [MESSAGES]}, "validation error"),
        ("/v2/embed", {}, "Exactly one of"),
        ("/v2/embed", {"texts": ["a"], "images": ["b"]}, "Exactly one of"),
        ("/v2/embed", {"texts": ["abc"], "truncate": "NONE", "max_tokens": 2}, "3 tokens exceeds max_tokens=2"),
        ("/v2/embed", {"inputs": [{"content": [{"type": "video_url"}]}]}, "validation error"),
        ("/score", {"text_1": "a"}, "Field required"),
        ("/score", {"text_1": ["a", "b"], "text_2": "c"}, "1:1, 1:N or N:N"),
        ("/score", {"text_1": [], "text_2": "c"}, "At least one text element"),
        ("/score", {"text_1": "a", "text_2": []}, "At least one text_pair element"),
        ("/score", {"text_1": "a", "text_2": {"content": [{"image_url": "x"}]}}, "Input should be"),
        ("/score", {"text_1": "a", "text_2": {"content": SMALL}}, "At most 4 image"),
    ],
)  # fmt: skip
def test_refusals(pooling: httpx.Client, path: str, body: Any, message: str) -> None:
    response = pooling.post(path, json=body)
    assert response.status_code == 400
    assert message in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("body", "object_"),
    [
        ({"messages": MESSAGES}, "embedding"),
        ({"input": "a"}, "embedding"),
        ({"text_1": "a", "text_2": "b"}, "score"),
    ],
)
def test_invocations_stand_for_the_route_that_the_body_is_for(pooling: httpx.Client, body: Any, object_: str) -> None:
    assert ask(pooling, "/invocations", **body)["data"][0]["object"] == object_


def test_invocations_rerank_too(pooling: httpx.Client) -> None:
    assert ask(pooling, "/invocations", query="a", documents=["b"])["results"]
    assert pooling.post("/invocations", json=[]).status_code == 400


def test_invocations_of_a_generating_server(client: httpx.Client) -> None:
    assert ask(client, "/invocations", messages=MESSAGES)["object"] == "chat.completion"
    assert ask(client, "/invocations", prompt="a")["object"] == "text_completion"


def test_nothing_is_generated_and_nothing_stays_held(pooling: httpx.Client) -> None:
    ask(pooling, "/v1/embeddings", input=["a"] * 40)
    text = pooling.get("/metrics").text
    assert 'vllm:generation_tokens_total{engine="0",model_name="tiny"} 0.0' in text
    assert 'vllm:kv_cache_usage_perc{engine="0",model_name="tiny"} 0.0' in text


def test_caches_are_emptied_in_dev_mode_only(pooling: httpx.Client) -> None:
    assert pooling.post("/reset_mm_cache").status_code == 404
    with running_emulator(EmulatorConfig.fast(dev_mode=True)) as running:
        assert httpx.post(f"{running.base_url}/reset_mm_cache", trust_env=False).status_code == 200
