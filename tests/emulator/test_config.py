"""Settings that cannot work are refused; budgets follow from the others as in vLLM."""

import pytest

from gateway.emulator.config import EmulatorConfig


def test_an_unknown_family_and_a_pool_without_a_usable_block_are_refused() -> None:
    with pytest.raises(ValueError, match="family 'gpt' is not one of qwen2_vl, qwen2_5_vl, qwen3_vl"):
        EmulatorConfig(family="gpt")
    with pytest.raises(ValueError, match="num_gpu_blocks is 1"):
        EmulatorConfig(num_gpu_blocks=1)


def test_the_encoder_budget_is_the_batch_or_the_largest_image() -> None:
    assert EmulatorConfig().encoder_budget_tokens == 16_384
    assert EmulatorConfig(max_pixels=802_816).encoder_budget_tokens == 2_048
    assert EmulatorConfig(encoder_cache_size=100).encoder_budget_tokens == 100


def test_a_fast_server_spends_no_time() -> None:
    config = EmulatorConfig.fast(model="m")

    assert config.model == "m"
    assert config.step_cost.base_seconds == 0
    assert 1e12 / config.preprocess_pixels_per_second == 0


def test_an_unknown_runner_is_refused() -> None:
    with pytest.raises(ValueError, match="runner 'draft' is not one of generate, pooling"):
        EmulatorConfig(runner="draft")
