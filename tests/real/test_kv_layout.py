"""KV groups as vLLM's own functions make them: of layers as published models have them, by their config.json alone."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from gateway.domain.kv_layers import read_layers
from gateway.domain.kv_layout import Kind, Layer, group_layers
from tests.real.vllm_server import ENVIRONMENT

pytestmark = pytest.mark.real

SCRIPT = Path(__file__).with_name("kv_groups_of_vllm.py")
HEADS = {"num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128}
CONTEXT_TOKENS, BATCHED_TOKENS = 131_072, 8_192
MODELS = {
    "Qwen2.5-VL-7B": HEADS | {"num_hidden_layers": 28, "use_sliding_window": False, "sliding_window": 32_768},
    "Mistral 7B of 2023": HEADS | {"model_type": "mistral", "num_hidden_layers": 32},
    "Gemma 2 9B": {"model_type": "gemma2", "num_hidden_layers": 42},
    "Gemma 3 4B": {"model_type": "gemma3_text", "num_hidden_layers": 34, "sliding_window": 1024},
    "Gemma 3 12B": {"model_type": "gemma3_text", "num_hidden_layers": 48, "sliding_window": 1024},
    "Gemma 3 27B": {"model_type": "gemma3_text", "num_hidden_layers": 62, "sliding_window": 1024},
    "Gemma 3n E4B": {"model_type": "gemma3n_text", "num_hidden_layers": 35},
    "Gemma 4 31B": HEADS | {"model_type": "gemma4_text", "num_hidden_layers": 60, "sliding_window": 1024},
    "GPT-OSS 20B": HEADS | {"model_type": "gpt_oss", "num_hidden_layers": 24},
    "Command A Vision": HEADS | {"model_type": "cohere2", "num_hidden_layers": 64, "sliding_window": 4096},
    "Llama 4 Scout": HEADS | {"model_type": "llama4_text", "num_hidden_layers": 48},
    "almost as many of both": HEADS
    | {
        "num_hidden_layers": 25,
        "layer_types": ["sliding_attention", "full_attention"] * 12 + ["full_attention"],
        "sliding_window": 128,
    },
}
CLASSES = {
    Kind.FULL: "FullAttentionSpec",
    Kind.SLIDING: "SlidingWindowSpec",
    Kind.CHUNKED: "ChunkedLocalAttentionSpec",
}


@pytest.fixture(scope="module")
def of_vllm(report_line):
    """By model, block size and whether windows are used; all with one start of the interpreter."""
    asked = [
        (name, block, without_windows) for name in MODELS for block in (16, 128) for without_windows in (False, True)
    ]
    models = [
        {
            "layers": [spelled(layer) for layer in read_layers(MODELS[name])],
            "block": block,
            "without_windows": without_windows,
            "batched": BATCHED_TOKENS,
            "context": CONTEXT_TOKENS,
        }
        for name, block, without_windows in asked
    ]
    run = subprocess.run(
        [os.environ["VLLM_PYTHON"], str(SCRIPT)],
        input=json.dumps(models),
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | ENVIRONMENT,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    report_line(f"KV layouts asked of vLLM's own functions: {len(asked)}")
    return dict(zip(asked, json.loads(run.stdout.splitlines()[-1]), strict=True))


def spelled(layer: Layer) -> dict:
    """One head as wide as all of the layer's: vLLM multiplies the two anyway."""
    return {"kind": layer.kind, "span": layer.span_tokens, "kv_heads": 1, "head_size": layer.token_bytes // 4}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("block", [16, 128])
def test_groups_and_what_a_long_request_needs(of_vllm, name, block):
    layout = group_layers(read_layers(MODELS[name]))
    theirs = of_vllm[name, block, False]
    assert [(CLASSES[group.kind], group.layers, block * group.block_factor) for group in layout.groups] == [
        (group["kind"], group["layers"], group["block"]) for group in theirs["groups"]
    ]
    assert layout.token_bytes * block == theirs["block_bytes"]
    assert layout.longest_blocks(block, BATCHED_TOKENS, CONTEXT_TOKENS) == theirs["longest_blocks"]


@pytest.mark.parametrize("name", MODELS)
def test_without_windows_there_is_one_group(of_vllm, name):
    theirs = of_vllm[name, 16, True]
    if "Mistral" not in name:  # where no layer is of full attention, the window stays
        assert (len(theirs["groups"]), theirs["longest_blocks"]) == (1, CONTEXT_TOKENS // 16)
