"""Families beside Qwen2.5-VL, each served by a vLLM of its own, one after another: what the gateway predicts offline,
knowing nothing but the model's folder, is what vLLM counts.

The file's name sorts before those of the tests that share one server, so no two servers run at a time.
"""

import os
import re
import time

import httpx
import openai
import pytest

from gateway.domain.kv_layout import Kind, KvCharge, charges_of
from gateway.models.processor_config import read_model_folder
from gateway.wire.vllm_metrics import EngineReport, parse_metrics
from tests.real import vllm_server
from tests.real.comparison import compare
from tests.real.tiny_families import TINY_FAMILIES, WINDOW_TOKENS
from tests.real.varied_requests import varied_requests
from tests.support.processes import metrics, running_gateway

pytestmark = pytest.mark.real

IMAGE_LIMIT = 4
CONTEXT_TOKENS = 32_768
BLOCK_TOKENS = 128
WRONG = {
    "qwen3_vl": {"patch_size": 14},
    "internvl_hf": {"max_patches": 6},
    "llava_1_5": {"patch_size": 16},
    "gemma3": {"image_seq_length": 255},
}
"""A planted fault for each, that changes what its images cost."""


@pytest.fixture(scope="module", params=TINY_FAMILIES, ids=lambda tiny: tiny.family)
def tiny(request):
    return request.param


@pytest.fixture(scope="module")
def server(tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp(tiny.family)
    tiny.write(folder)
    python = os.environ["VLLM_PYTHON"]
    work = tmp_path_factory.mktemp("vllm")
    with vllm_server.running(python, folder, work, images=IMAGE_LIMIT, more=tiny.arguments) as running:
        yield running


def settings(server, **more):
    """The family is not named: the folder says it."""
    model = {"name": server.model, "folder": str(server.folder), **more}
    return {"models": [model], "images": {"max_forwarded": IMAGE_LIMIT}}


@pytest.fixture(scope="module")
def cases():
    """Every size, several images, histories, orientations, formats, texts beside pictures. Tools and roles are tested
    with Qwen2.5-VL.
    """
    kinds = "size |orientation|format |text |detail |history|[0-4] images"
    return [case for case in varied_requests() if re.match(kinds, case.name) and not case.headers]


def test_every_prediction_is_exact(tiny, server, tmp_path, cases, report_line):
    with running_gateway(server.url, tmp_path, settings(server)) as gateway:
        comparison = compare(gateway.url, server.model, cases)
    report_line(f"{tiny.family}: {comparison}")
    assert comparison.differences == []
    assert comparison.compared >= 100


def test_a_wrong_number_is_noticed(tiny, server, tmp_path, cases, report_line):
    sizes = [case for case in cases if case.name.startswith("size ")][::3]
    wrong = settings(server, processor=WRONG[tiny.family])
    with running_gateway(server.url, tmp_path, wrong) as gateway:
        comparison = compare(gateway.url, server.model, sizes)
    report_line(f"{tiny.family}: {comparison} (planted fault: {WRONG[tiny.family]})")
    assert comparison.differences


def report_of(server) -> EngineReport:
    return parse_metrics(httpx.get(f"{server.url}/metrics", timeout=30).text)


def charges_at(server) -> tuple[KvCharge, ...]:
    layout = read_model_folder(server.folder).text.kv_layout
    return charges_of(layout, BLOCK_TOKENS, CONTEXT_TOKENS, report_of(server).longest_request_blocks)


def test_kv_groups_are_those_of_the_server(tiny, server, report_line):
    """By the folder alone, checked against how often vLLM says that its context fits its pool."""
    groups = read_model_folder(server.folder).text.kv_layout.groups
    charges = charges_at(server)
    report_line(f"{tiny.family}: KV groups {len(groups)}, charged by {charges}")
    assert sum(charge.groups for charge in charges) == len(groups)
    assert [group.kind for group in groups].count(Kind.SLIDING) == (5 if tiny.family == "gemma3" else 0)


def test_kv_blocks_in_use_are_those_that_are_predicted(tiny, server, report_line):
    """While a long answer is written, and with a prompt longer than a window."""
    charges = charges_at(server)
    samples = list(sample_usage(server))
    pool_blocks = report_of(server).num_gpu_blocks - 1
    wrong = [
        (tokens, usage)
        for tokens, usage in samples
        if round(usage * pool_blocks) not in {blocks_of(charges, near) for near in range(tokens - 2, tokens + 2)}
    ]
    report_line(
        f"{tiny.family}: samples of KV blocks in use: {len(samples)}, as predicted: {len(samples) - len(wrong)}"
    )
    assert wrong == []
    assert len(samples) >= 3
    if tiny.family == "gemma3":
        as_if_full = sum(charge.groups for charge in charges) * -(-samples[-1][0] // BLOCK_TOKENS)
        assert round(samples[-1][1] * pool_blocks) < as_if_full


def blocks_of(charges, computed: int) -> int:
    """Held in the step that computes one token more."""
    whole = -(-(computed + 1) // BLOCK_TOKENS)
    before_window = max(0, computed - WINDOW_TOKENS + 1) // BLOCK_TOKENS
    held = [whole - (before_window if charge.most_blocks else 0) for charge in charges]
    for charge, blocks in zip(charges, held, strict=True):
        assert charge.later_blocks is None or blocks <= charge.later_blocks, "never more than is charged"
    return sum(charge.groups * blocks for charge, blocks in zip(charges, held, strict=True))


def sample_usage(server):
    """Tokens in the sequence, and the share of the pool that is in use, several times during one answer."""
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=120)
    before = total(server, "vllm:generation_tokens_total")
    prompt = "word " * 700
    stream = client.chat.completions.create(
        model=server.model,
        messages=[{"role": "user", "content": prompt}],
        max_tokens=3_000,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"ignore_eos": True},
    )
    taken = []
    with client, stream:
        for _ in stream:
            values = metrics(server.url)
            generated = int(total_of(values, "vllm:generation_tokens_total") - before)
            usage = total_of(values, "vllm:kv_cache_usage_perc")
            if generated and usage:
                taken.append((generated, usage))
            if len(taken) >= 12:
                break
            time.sleep(0.15)
    counted = client_prompt_tokens(server, prompt)
    return [(counted + generated - 1, usage) for generated, usage in taken]


def client_prompt_tokens(server, prompt: str) -> int:
    body = {"model": server.model, "messages": [{"role": "user", "content": prompt}]}
    return httpx.post(f"{server.url}/tokenize", json=body, timeout=30).json()["count"]


def total(server, name: str) -> float:
    return total_of(metrics(server.url), name)


def total_of(values, name: str) -> float:
    return sum(value for key, value in values.items() if key.startswith(f"{name}{{"))
