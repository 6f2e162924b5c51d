from dataclasses import replace

import pytest

from gateway.domain.memory import advice
from gateway.domain.memory.plan import Flags, Version
from gateway.domain.memory.planning import make_plan
from tests.support.memory import GEMMA_4B, LLAMA_8B, QWEN_7B, card, spec


def plan(name, gpu="A100-80GB", **flags):
    """Of a checkpoint that is quantised as the flags say."""
    model = replace(spec(name), quantization=flags.get("quantization"))
    return make_plan(model, card(gpu), Flags(**flags), Version(0, 23))


def test_what_takes_the_card():
    found = plan(QWEN_7B)
    shares = advice.shares(found)
    assert list(shares) == ["weights", "encoder profile", "CUDA graphs", "non-torch"]
    assert advice.top_term(found) == "weights"
    assert sum(shares.values()) + found.kv_pool.expected == pytest.approx(found.budget)


@pytest.mark.parametrize(
    ("name", "gpu", "flags", "term"),
    [
        (QWEN_7B, "A100-80GB", {}, advice.ENCODER),
        (QWEN_7B, "A100-80GB", {"skip_mm_profiling": True}, advice.SAMPLER),
        (GEMMA_4B, "H100", {"max_model_len": 8192}, advice.SAMPLER),
        (LLAMA_8B, "H100", {"max_num_seqs": 1, "max_num_batched_tokens": 16_384}, advice.LANGUAGE_MODEL),
    ],
)
def test_which_part_makes_the_profiles_peak(name, gpu, flags, term):
    assert advice.peak_term(plan(name, gpu, **flags)) == term


def test_what_flags_would_give_the_least_loss_first():
    found = advice.reliefs(plan(QWEN_7B, max_model_len=128_000))
    assert [each.flag for each in found] == [
        "--limit-mm-per-prompt '{\"video\": 0}'",
        "--mm-processor-kwargs '{\"max_pixels\": 1638400}'",
        "--max-num-seqs 6",
        "--enforce-eager",
        "--gpu-memory-utilization 0.95",
        "--quantization fp8",
        "--tensor-parallel-size 2",
    ]
    video = found[0]
    assert (video.loss, video.pool_gib) == ("videos", pytest.approx(15.34 - 2.29, abs=0.02))


def test_the_flag_that_takes_most_off_the_largest_term():
    found = advice.best_for_top_term(advice.reliefs(plan(QWEN_7B)))
    assert found.flag == "--tensor-parallel-size 2"
    assert found.top_term_gib == pytest.approx(15.62 / 2, abs=0.15)
    assert advice.best_for_top_term([]) is None


def test_fewer_rows_and_smaller_batches_where_they_are_the_peak():
    rows = {each.flag: each for each in advice.reliefs(plan(GEMMA_4B, "H100", max_model_len=8192))}
    # As many as the pool could feed at full length; then the tower makes the peak, and fewer graphs are captured.
    assert rows["--max-num-seqs 54"].pool_gib == pytest.approx(3.92 - 2.70 + 34 * 0.018 * 35 / 51, abs=0.02)
    tokens = {
        each.flag for each in advice.reliefs(plan(LLAMA_8B, "H100", max_num_seqs=1, max_num_batched_tokens=16_384))
    }
    assert "--max-num-batched-tokens 2048" in tokens


def test_what_gives_nothing_or_cannot_be_planned_is_left_out():
    found = plan(LLAMA_8B, "H100", enforce_eager=True, gpu_memory_utilization=0.95, quantization="fp8",
                 max_num_seqs=1, max_num_batched_tokens=2048, tensor_parallel_size=32)  # fmt: skip
    assert advice.reliefs(found) == []


def test_where_the_peak_passes_to_another_part_that_one_is_what_remains():
    found = plan(QWEN_7B, "B200", max_model_len=128_000, quantization="awq")
    assert advice.top_term(found) == advice.ENCODER
    best = advice.best_for_top_term(advice.reliefs(found))
    assert best.flag == "--limit-mm-per-prompt '{\"video\": 0}'"
