"""A real pooling server behind the gateway: prompt tokens predicted for pictures are those that vLLM reports."""

import os

import httpx
import pytest

from tests.real.test_exact_tokens import settings
from tests.real.tiny_model import write
from tests.real.vllm_server import running
from tests.support.pictures import data_url, encoded, picture
from tests.support.processes import running_gateway

pytestmark = pytest.mark.real


def image(width, height, seed=0):
    return {"type": "image_url", "image_url": {"url": data_url(encoded(picture(width, height, seed=seed)))}}


def text(words):
    return {"type": "text", "text": words}


def asked(*parts):
    return [{"role": "user", "content": list(parts)}]


ONE, TWO = asked(text("What is this?"), image(280, 140)), asked(image(300, 500, 1), text("µ"), image(64, 64, 2))
EXACT = {
    "one conversation": ("/v1/embeddings", {"messages": ONE}),
    "a system message": ("/v1/embeddings", {"messages": [{"role": "system", "content": "Look."}, *ONE]}),
    "opening an answer": ("/v1/embeddings", {"messages": ONE, "add_generation_prompt": True}),
    "several conversations": ("/v1/embeddings", {"messages": [ONE, TWO]}),
    "messages as input": ("/v1/embeddings", {"input": TWO}),
    "conversations as input": ("/v1/embeddings", {"input": [TWO, ONE, ONE]}),
    "ids": ("/v1/embeddings", {"input": [[1, 2, 3], [4]]}),
    "pooling": ("/pooling", {"messages": TWO}),
}
BOUNDED = {
    "texts": ("/v1/embeddings", {"input": ["one", "another"]}),
    "score": ("/score", {"text_1": "a", "text_2": [{"content": [image(280, 140)]}, "b"]}),
    "score of pictures": ("/score", {"data_1": {"content": [image(90, 90)]}, "data_2": {"content": [image(280, 140)]}}),
    "rerank": ("/v1/rerank", {"query": "a", "documents": [{"content": [image(280, 140), text("b")]}, "c"]}),
    "embed images": ("/v2/embed", {"images": [image(280, 140)["image_url"]["url"]]}),
    "embed inputs": ("/v2/embed", {"inputs": [{"content": [text("a"), image(280, 140)]}]}),
}  # fmt: skip


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    work = tmp_path_factory.mktemp("pooling")
    write(work / "model")
    with (
        running(
            os.environ["VLLM_PYTHON"], work / "model", work, max_model_len=4096, more=("--runner", "pooling")
        ) as vllm,
        running_gateway(vllm.url, work, settings(vllm)) as gateway,
        httpx.Client(base_url=gateway.url, timeout=120, trust_env=False) as http,
    ):
        yield http


def reported(answer):
    found = answer.json()
    if "usage" in found:
        return found["usage"]["prompt_tokens"]
    return sum(found["meta"]["billed_units"].values())


@pytest.mark.parametrize("name", EXACT)
def test_prompts_are_counted_exactly(client, name, report_line):
    path, body = EXACT[name]
    answer = client.post(path, json={"model": "tiny", **body})
    assert answer.status_code == 200, answer.text
    assert int(answer.headers["x-gateway-prompt-tokens"]) == reported(answer)
    report_line(f"pooling, {name}: {reported(answer)} tokens, as predicted")


@pytest.mark.parametrize("name", BOUNDED)
def test_pictures_in_other_prompts_are_counted_exactly(client, name):
    path, body = BOUNDED[name]
    answer = client.post(path, json={"model": "tiny", **body})
    assert answer.status_code == 200, answer.text
    visual = int(answer.headers.get("x-gateway-visual-tokens", 0))
    assert visual <= reported(answer) <= visual + 2 * len(str(body)) // 3
    assert abs(int(answer.headers["x-gateway-prompt-tokens"]) - reported(answer)) < 120
