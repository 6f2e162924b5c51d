"""A model with sliding windows: what the gateway holds of the KV pool for a request is what the engine has in use."""

import json

import pytest

from gateway.emulator.config import EmulatorConfig
from gateway.emulator.serve import running_emulator
from tests.conformance import byte_model
from tests.conformance.harness import MODEL, eventually, sdk
from tests.support.processes import metrics, running_gateway

BLOCK_TOKENS, WINDOW_TOKENS, WINDOW_GROUPS = 16, 64, 5
ANSWER_TOKENS = 150
PROMPT = "word " * 500


@pytest.fixture
def folder(tmp_path):
    """Two layers of full attention, and ten with a window."""
    byte_model.write(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    windows = ["sliding_attention"] * WINDOW_GROUPS
    config |= {"num_hidden_layers": 12, "layer_types": [*windows, "full_attention"] * 2}
    config |= {"use_sliding_window": True, "sliding_window": WINDOW_TOKENS}
    (tmp_path / "config.json").write_text(json.dumps(config))
    return tmp_path


@pytest.fixture
def emulator():
    config = EmulatorConfig(
        model=MODEL,
        block_size=BLOCK_TOKENS,
        max_num_batched_tokens=256,
        sliding_window=WINDOW_TOKENS,
        sliding_window_groups=WINDOW_GROUPS,
    )
    with running_emulator(config) as running:
        yield running


def held(gateway) -> float:
    return metrics(gateway.url)['gateway_held{resource="kv_blocks"}']


def in_use(emulator) -> int:
    """Blocks, as the share in use says."""
    values = metrics(emulator.base_url)
    usage = next(value for name, value in values.items() if name.startswith("vllm:kv_cache_usage_perc"))
    return round(usage * (EmulatorConfig().num_gpu_blocks - 1))


def test_what_is_held_is_in_use(folder, emulator, tmp_path_factory):
    settings = {"models": [{"name": MODEL, "family": "qwen2_5_vl", "folder": str(folder)}]}
    ends = -(-len(PROMPT) // BLOCK_TOKENS), -(-(len(PROMPT) + ANSWER_TOKENS + 100) // BLOCK_TOKENS)
    with running_gateway(emulator.base_url, tmp_path_factory.mktemp("gateway"), settings) as gateway:
        stream = sdk(gateway.url).chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": PROMPT}],
            max_tokens=ANSWER_TOKENS,
            stream=True,
            extra_body={"ignore_eos": True},
        )
        for place, _ in enumerate(stream):
            if place == ANSWER_TOKENS // 2:
                before, used, after = held(gateway), in_use(emulator), held(gateway)
        # The rest of its answer is kept for it, and up to two blocks more in each group.
        assert ends[0] + WINDOW_GROUPS <= used <= before == after
        assert after - used <= ANSWER_TOKENS // BLOCK_TOKENS + 2 * (1 + WINDOW_GROUPS)
        assert after <= ends[1] + WINDOW_GROUPS * (WINDOW_TOKENS // BLOCK_TOKENS + 2)
        assert eventually(lambda: (held(gateway), in_use(emulator)) == (0, 0))
