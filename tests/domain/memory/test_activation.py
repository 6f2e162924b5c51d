"""Peaks of the sampler and the language model, against activations that vLLM 0.19 printed on H100."""

import pytest

from gateway.domain.memory.activation import language_model_peak, sampler_peak
from gateway.domain.memory.calibration import Calibration
from gateway.domain.memory.plan import Flags, Version
from tests.support.memory import GEMMA_4B, LLAMA_8B, QWEN3_8B, spec

V19 = Calibration(Version(0, 19))


@pytest.mark.parametrize(
    ("name", "flags", "printed_gib"),
    [
        (LLAMA_8B, {}, 1.89),
        (LLAMA_8B, {"tensor_parallel_size": 4}, 1.89),  # the whole vocabulary on every rank
        (LLAMA_8B, {"dtype": "float32"}, 2.20),  # 80 x 0.95 - weights - pool - 0.25 of non-torch
        (GEMMA_4B, {}, 3.89),
        ("gemma-3-27b-it", {}, 3.99),
        ("Phi-4", {}, 1.52),
    ],
)
def test_the_sampler_of_1024_rows(name, flags, printed_gib):
    found = sampler_peak(spec(name).text, Flags(max_num_seqs=1024, **flags), V19)
    assert found.expected == pytest.approx(printed_gib, rel=0.035)
    assert found.low <= printed_gib <= found.high


def test_rows_and_nothing_else_make_the_sampler_larger():
    few, many = (sampler_peak(spec(LLAMA_8B).text, Flags(max_num_seqs=rows), V19).expected for rows in (64, 1024))
    assert many == pytest.approx(16 * few)


def test_before_017_every_logit_was_sorted():
    old = sampler_peak(spec("Qwen3-14B").text, Flags(max_num_seqs=1024), Calibration(Version(0, 16)))
    assert old.expected == pytest.approx(5.64, rel=0.01)  # a published table of 0.15 and 0.16


def test_a_start_of_0102_printed_as_much():
    # Qwen3-8B with 256 sequences: activation_peak_gib 1.4
    old = sampler_peak(spec("Qwen3-8B").text, Flags(max_num_seqs=256), Calibration(Version(0, 10, 2)))
    assert old.expected == pytest.approx(1.4, rel=0.02)


def test_the_workspace_of_experts_stays_while_the_sampler_runs():
    text, flags = spec("Qwen3-30B-A3B").text, Flags(max_num_seqs=1024, max_num_batched_tokens=8192)
    dense = 1024 * 151_936 * 15.5 / 2**30
    more = sampler_peak(text, flags, V19).expected - dense
    assert more == pytest.approx(8192 * 8 * (3 * 768 + 2048) * 2 / 2**30)
    assert 0.4 <= more <= 0.75  # as a published report of 0.19 has it
    assert sampler_peak(text, flags, Calibration(Version(0, 16))).expected == 1024 * 151_936 * 39 / 2**30


def test_the_newest_may_take_much_less():
    new = sampler_peak(spec(LLAMA_8B).text, Flags(max_num_seqs=1024), Calibration(Version(0, 32)))
    assert new.low == pytest.approx(new.expected / 2)


def test_the_language_model_by_its_batch_and_ranks():
    # 8192 tokens x 2 bytes x (2 x 4096 + 3 x 14336)
    one = language_model_peak(spec(LLAMA_8B).text, Flags(max_num_batched_tokens=8192))
    assert one.expected == 8192 * 2 * (2 * 4096 + 3 * 14_336) / 2**30
    two = language_model_peak(spec(LLAMA_8B).text, Flags(max_num_batched_tokens=8192, tensor_parallel_size=2))
    assert two.expected == 8192 * 2 * (2 * 4096 + 3 * 7168) / 2**30


def test_the_language_model_stays_below_what_a_start_with_16384_tokens_printed():
    assert language_model_peak(spec(QWEN3_8B).text, Flags(max_num_batched_tokens=16_384)).expected < 1.51


@pytest.mark.parametrize(
    ("name", "inner"),
    [
        ("Qwen3-30B-A3B", 8 * 768),  # each token is in eight experts
        ("Llama-4-Scout-17B-16E-Instruct", 8192 + 8192),  # one, and the shared one
        ("Llama-4-Maverick-17B-128E-Instruct", 16_384 + 8192),  # every other layer is dense, and wider
    ],
)
def test_experts_widen_the_inner_layer_by_as_many_as_a_token_is_in(name, inner):
    text = spec(name).text
    found = language_model_peak(text, Flags(max_num_batched_tokens=1))
    assert found.expected == pytest.approx(2 * (2 * text.hidden + 3 * inner) / 2**30)
