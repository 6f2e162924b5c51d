"""A real vLLM with an adapter: what it lists of it, what the gateway makes of that, and that what it reports is what is
accounted.
"""

import json
import os
import subprocess
import time

import httpx
import pytest

from tests.real import tiny_model, vllm_server
from tests.support.pictures import data_url, encoded, picture
from tests.support.processes import metrics, running_gateway

pytestmark = pytest.mark.real

ADAPTER = "mine"
WRITE_ADAPTER = """
import json, pathlib, sys, torch
from safetensors.torch import save_file
folder, width = pathlib.Path(sys.argv[1]), int(sys.argv[2])
name = "base_model.model.model.language_model.layers.0.self_attn.o_proj"
save_file({f"{name}.lora_A.weight": torch.zeros(8, width), f"{name}.lora_B.weight": torch.zeros(width, 8)},
          str(folder / "adapter_model.safetensors"))
config = {"peft_type": "LORA", "r": 8, "lora_alpha": 8, "target_modules": ["o_proj"], "bias": "none"}
(folder / "adapter_config.json").write_text(json.dumps(config))
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder, adapter = tmp_path_factory.mktemp("model"), tmp_path_factory.mktemp("adapter")
    tiny_model.write(folder)
    width = json.loads((folder / "config.json").read_text())
    width = (width.get("text_config") or width)["hidden_size"]
    python = os.environ["VLLM_PYTHON"]
    subprocess.run([python, "-c", WRITE_ADAPTER, str(adapter), str(width)], check=True, capture_output=True)
    more = ["--enable-lora", "--max-lora-rank", "8", "--lora-modules", f"{ADAPTER}={adapter}"]
    work = tmp_path_factory.mktemp("vllm")
    with vllm_server.running(python, folder, work, max_model_len=8_192, sequences=2, more=more) as running:
        yield running


@pytest.fixture(scope="module")
def gateway(server, tmp_path_factory):
    settings = {
        "models": [
            {"name": server.model, "folder": str(server.folder), "aliases": ["gpt-4o"]},
        ],
    }
    with running_gateway(server.url, tmp_path_factory.mktemp("gateway"), settings) as running:
        yield running


def ask(gateway, model, *, stream=False):
    photo = {"type": "image_url", "image_url": {"url": data_url(encoded(picture(224, 224)))}}
    messages = [{"role": "user", "content": [{"type": "text", "text": "What is it?"}, photo]}]
    body = {"model": model, "messages": messages, "max_tokens": 4, "stream": stream}
    answer = httpx.post(f"{gateway.url}/v1/chat/completions", json=body, timeout=120)
    assert answer.status_code == 200, answer.text
    return answer


def counted_after(gateway, before):
    """Once there is more: the books are made when the client has its answer."""
    give_up_at = time.monotonic() + 30
    while (now := counted(gateway)) == before:
        assert time.monotonic() < give_up_at
    return now


def counted(gateway):
    """Tokens that were reported, by model and kind."""
    found = {}
    for name, value in metrics(gateway.url).items():
        if name.startswith("gateway_tokens_total") and 'source="reported"' in name and value:
            pairs = dict(pair.split("=") for pair in name.partition("{")[2].strip("}").replace('"', "").split(","))
            found[pairs["model"], pairs["kind"]] = int(value)
    return found


def test_vllm_names_the_parent_of_an_adapter_and_not_its_context(server, report_line):
    cards = {card["id"]: card for card in httpx.get(f"{server.url}/v1/models").json()["data"]}
    adapter = cards[ADAPTER]
    report_line(f"vLLM lists of an adapter: parent {adapter['parent']}, max_model_len {adapter['max_model_len']}")
    assert (adapter["parent"], adapter["max_model_len"]) == (server.model, None)


def test_the_gateway_lists_it_with_its_parents_limits_and_the_alias(gateway, server):
    cards = {card["id"]: card["vlm_gateway"] for card in httpx.get(f"{gateway.url}/v1/models").json()["data"]}
    assert [*cards] == [server.model, "gpt-4o", ADAPTER]
    assert {card["max_model_len"] for card in cards.values()} == {8_192}
    assert {card["family"] for card in cards.values()} == {"qwen2_5_vl"}
    assert cards["gpt-4o"]["alias_of"] == server.model


@pytest.mark.parametrize(("asked", "served"), [("tiny", "tiny"), ("gpt-4o", "tiny"), (ADAPTER, ADAPTER)])
def test_each_name_is_served_and_what_is_accounted_is_what_vllm_reports(gateway, asked, served, report_line):
    before = counted(gateway)
    answer = ask(gateway, asked)
    usage, predicted = answer.json()["usage"], int(answer.headers["x-gateway-prompt-tokens"])
    now = counted_after(gateway, before)
    took = {kind: now[served, kind] - before.get((served, kind), 0) for kind in ("text", "visual", "output")}
    report_line(
        f"{asked}: vLLM reported {usage['prompt_tokens']} + {usage['completion_tokens']} tokens, counted {took}"
    )
    assert answer.json()["model"] == served
    assert predicted == usage["prompt_tokens"] == took["text"] + took["visual"]
    assert took["visual"] == usage["prompt_tokens_details"]["multimodal_tokens"]["image"] + 2
    assert took["output"] == usage["completion_tokens"]


def test_a_stream_is_accounted_too(gateway):
    before = counted(gateway)
    assert ask(gateway, "tiny", stream=True).text.endswith("data: [DONE]\n\n")
    now = counted_after(gateway, before)
    assert now["tiny", "output"] - before.get(("tiny", "output"), 0) == 4
