"""Whole plans: against observed starts, in each phase that can fail, and in their properties."""

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gateway.domain.memory.defaults import AUTO_LENGTH, NotPlannableError
from gateway.domain.memory.plan import Flags, Outcome, Phase, Span, Version
from gateway.domain.memory.planning import make_plan
from tests.support.memory import (
    GEMMA_4B,
    LLAMA_8B,
    QWEN3_8B,
    QWEN_3B,
    QWEN_7B,
    QWEN_32B,
    card,
    observed,
    spec,
)

NEW = Version(0, 23)


def plan(name, gpu="L4", version=NEW, foreign=0.0, **flags):
    """Of a checkpoint that is quantised as the flags say."""
    model = replace(spec(name), quantization=flags.get("quantization"))
    return make_plan(model, card(gpu, foreign), Flags(**flags), version)


def verdict(*arguments, **flags):
    found = plan(*arguments, **flags).verdict
    return found.outcome, found.phase


@pytest.mark.parametrize(
    ("case_id", "tolerance_gib"),
    [
        ("q25vl7b-l4-v09", 0.02),
        ("q25vl3b-l4-v011", 0.1),
        ("q25vl7b-a100-util022", 0.02),
        ("gemma3-27b-h100", 0.06),
        ("gemma3-4b-mi300x", 0.2),
        ("llama31-8b-h100-fp32", 0.1),
        ("q3vl2b-5070ti", 0.05),
    ],
)
def test_the_pool_that_was_printed(case_id, tolerance_gib):
    case = observed(case_id)
    found = make_plan(case.spec, case.gpu, case.flags, case.version)
    assert found.kv_pool.expected == pytest.approx(case.kv_gib, abs=tolerance_gib)
    assert found.kv_pool.low <= case.kv_gib <= found.kv_pool.high


def test_the_pool_is_what_the_terms_leave_of_the_budget():
    found = plan(QWEN_3B, gpu_memory_utilization=0.9, max_model_len=8192)
    terms = found.terms
    taken = terms.loaded + terms.non_torch.expected + found.peak.expected + terms.graphs.expected
    assert found.budget == 0.9 * 22.03
    assert found.kv_pool.expected == pytest.approx(found.budget - taken)
    assert found.kv_tokens.expected == found.kv_blocks.expected * 16
    assert found.concurrency == pytest.approx(found.kv_tokens.expected / 8192, abs=0.01)


def test_before_021_graphs_are_not_taken_off_the_pool():
    old, new = (
        plan(QWEN_3B, version=version, max_model_len=8192, gpu_memory_utilization=0.9)
        for version in (Version(0, 20), NEW)
    )
    assert (old.graphs_in_budget, new.graphs_in_budget) == (False, True)
    assert old.kv_pool.expected - new.kv_pool.expected == pytest.approx(new.terms.graphs.expected)


@pytest.mark.parametrize(
    ("arguments", "flags", "phase"),
    [
        ((QWEN_7B, "L4"), {"foreign": 5.0, "max_model_len": 2048}, Phase.SNAPSHOT),
        ((QWEN_32B, "L4"), {"max_model_len": 2048}, Phase.LOAD),
        ((QWEN_7B, "RX 7800 XT"), {"max_model_len": 2048, "quantization": "awq"}, Phase.PROFILE),
        ((QWEN_7B, "A100-80GB"), {"gpu_memory_utilization": 0.22}, Phase.KV_SIZING),
        ((QWEN_7B, "L4"), {"max_model_len": 65_536, "limit_mm_per_prompt": {"video": 0}}, Phase.LENGTH_CHECK),
        ((QWEN_3B, "L4", Version(0, 8, 2)), {"gpu_memory_utilization": 0.99, "max_num_seqs": 4, "max_model_len": 2048,
         "limit_mm_per_prompt": {"image": 0, "video": 0}}, Phase.GRAPHS),
        ((QWEN_3B, "L4", Version(0, 16)), {"kv_cache_memory_bytes": 12 * 2**30, "max_num_seqs": 2048,
         "max_model_len": 2048}, Phase.SAMPLER_WARMUP),
        ((QWEN_7B, "L4"), {"gpu_memory_utilization": 0.97, "skip_mm_profiling": True, "max_model_len": 2048,
         "enforce_eager": True, "max_num_seqs": 4}, Phase.SERVING),
    ],
)  # fmt: skip
def test_each_phase_can_fail(arguments, flags, phase):
    assert verdict(*arguments, **flags) == (Outcome.DOES_NOT_FIT, phase)


def test_a_failure_is_told_with_its_numbers():
    found = plan(QWEN_7B, "A100-80GB", gpu_memory_utilization=0.22)
    assert str(found.verdict) == "does not fit in kv_cache_sizing"
    assert found.verdict.why.startswith("-14.30 GiB remain for the KV pool; left are -14.3")


def test_between_its_limits_a_plan_is_too_close():
    tight = plan(QWEN_7B, max_model_len=2048, gpu_memory_utilization=0.9)
    length = int(tight.kv_pool.expected * 2**30 // 57_344)
    found = plan(QWEN_7B, max_model_len=length, gpu_memory_utilization=0.9, limit_mm_per_prompt={"video": 0})
    assert (found.verdict.outcome, found.verdict.phase) == (Outcome.TOO_CLOSE, Phase.LENGTH_CHECK)
    assert str(found.verdict) == "too close"


def test_a_plan_that_fits_says_what_is_left():
    found = plan(QWEN_3B, max_model_len=8192)
    assert (found.verdict.outcome, found.verdict.phase) == (Outcome.FITS, None)
    assert "of the KV pool are left beside one request of full length" in found.verdict.why


def test_a_failure_for_sure_is_named_before_one_that_may_be():
    found = plan(QWEN_7B, "A100-PCIE-40GB", max_model_len=128_000, gpu_memory_utilization=0.999, max_num_seqs=512)
    assert found.verdict.phase is Phase.LENGTH_CHECK


def test_of_a_sure_failure_the_first_phase_that_is_expected_to_fail_is_named():
    """The pool may be a little above nothing, and a full request has no place in it for sure."""
    found = plan(QWEN_7B, max_model_len=128_000, gpu_memory_utilization=0.835, limit_mm_per_prompt={"video": 0})
    assert found.kv_pool.expected < 0 < found.kv_pool.high < found.kv_needed
    assert found.verdict.phase is Phase.KV_SIZING


def test_the_folklore_of_3b_and_7b_has_no_place():
    """Same tower, same profile, same sampler; less KV a token, and a smaller cache of embeddings."""
    small, large = (plan(name, "A100-80GB", max_model_len=8192, max_num_seqs=64) for name in (QWEN_3B, QWEN_7B))
    assert small.terms.encoder == large.terms.encoder
    assert small.terms.encoder_cache == 64 / 1024
    assert large.terms.encoder_cache == 112 / 1024
    assert small.terms.sampler.expected == pytest.approx(large.terms.sampler.expected, rel=0.001)
    assert small.kv_pool.expected > large.kv_pool.expected


def test_a_context_as_long_as_the_pool_allows():
    found = plan(QWEN_7B, max_model_len=AUTO_LENGTH, limit_mm_per_prompt={"video": 0})
    assert found.flags.max_model_len == found.kv_blocks.expected * 16
    assert plan(QWEN_3B, "H100", max_model_len=AUTO_LENGTH).flags.max_model_len == 128_000
    assert plan(GEMMA_4B, "L4", max_model_len=AUTO_LENGTH).kv_needed < found.terms.loaded


def test_a_pool_that_was_given_in_bytes_is_taken_as_it_is():
    found = plan(QWEN_7B, kv_cache_memory_bytes=2 * 2**30, max_model_len=2048)
    assert found.kv_pool == Span.exact(2.0)
    assert Phase.SNAPSHOT not in {check.phase for check in found.checks}


def test_an_embedding_model_samples_nothing():
    generating, pooling = (plan(LLAMA_8B, "H100", runner=runner, max_model_len=8192) for runner in ("auto", "pooling"))
    assert pooling.terms.sampler == Span.exact(0.0)
    assert Phase.SAMPLER_WARMUP in {check.phase for check in generating.checks}
    assert Phase.SAMPLER_WARMUP not in {check.phase for check in pooling.checks}
    known = make_plan(replace(spec(LLAMA_8B), is_pooling=True), card("H100"), Flags(max_model_len=8192), NEW)
    assert known.terms.sampler == pooling.terms.sampler


def test_weights_that_are_kept_in_the_hosts_memory():
    assert plan(QWEN_7B, cpu_offload_gb=5, max_model_len=2048).terms.weights == pytest.approx(15.445 - 5, abs=0.001)


@pytest.mark.parametrize(
    ("name", "version", "flags", "why"),
    [
        ("Llama-3.2-11B-Vision-Instruct", NEW, {}, "cannot be planned: cross-attention"),
        ("Kimi-K2", NEW, {"max_model_len": 8192}, "its parameters are not known to the built-in table"),
        ("DeepSeek-OCR", NEW, {}, "its parameters are not known to the built-in table"),
        (QWEN_7B, NEW, {"pipeline_parallel_size": 2}, "pipeline parallel is not planned"),
        (QWEN_7B, NEW, {"speculative_config": "{}"}, "drafts of speculative decoding are not planned"),
        (QWEN_7B, Version(0, 7, 3), {}, "vLLM 0.7.3 is not planned: V1 is its engine from 0.8.0 on"),
        (QWEN_7B, NEW, {"tensor_parallel_size": 8}, "8 does not divide the 28 heads"),
        (QWEN_3B, NEW, {"quantization": "gguf"}, "quantised by gguf"),
    ],
)
def test_what_is_out_of_scope_is_refused(name, version, flags, why):
    with pytest.raises(NotPlannableError, match=why):
        plan(name, version=version, **flags)


@pytest.mark.parametrize(
    ("arguments", "flags", "note"),
    [
        ((QWEN_7B,), {"quantization": "awq"}, "The weights are estimated from the scheme awq"),
        ((QWEN_7B, "L4", Version(0, 32)), {}, "no start was seen"),
        ((QWEN_7B, "L4", Version(0, 33)), {}, "The sources of vLLM 0.33.0 were not read: it is planned as 0.32.0."),
        ((QWEN_3B, "RX 7800 XT"), {}, "no attention kernel for vision towers on RX 7800 XT"),
        ((QWEN_7B,), {"skip_mm_profiling": True}, "nothing is kept free for it while images are served"),
        ((QWEN_7B,), {"limit_mm_per_prompt": {"image": 0, "video": 0}}, "the tower is loaded and never runs"),
        ((QWEN3_8B,), {}, "Videos cost nothing here: the largest has 12,288 tokens, the largest image 16,384."),
        (
            (LLAMA_8B, "A100-80GB"),
            {"kv_cache_dtype": "fp8"},
            "A100-80GB has CUDA capability 8, with which vLLM may refuse a KV",
        ),
        ((LLAMA_8B, "V100-32GB"), {"quantization": "fp8"}, "capability 7, with which vLLM may refuse weights in fp8"),
        ((QWEN_7B,), {"sized_modalities": ("image",)}, "--limit-mm-per-prompt: the size of images is not planned with"),
        (
            (QWEN_7B,),
            {"sized_modalities": ("image",), "profiled_image": (512, 512)},
            "--limit-mm-per-prompt: images are profiled no larger than that",
        ),
        (("Pixtral-12B-2409",), {}, "size of the rotary table is not known"),
    ],
)
def test_what_was_assumed_is_noted(arguments, flags, note):
    assert any(note in each for each in plan(*arguments, max_model_len=4096, **flags).notes)


@pytest.mark.parametrize(
    ("gpu", "flags"),
    [("H100", {"kv_cache_dtype": "fp8", "quantization": "fp8"}), ("A100-80GB", {"quantization": "fp8"})],
)
def test_where_fp8_runs_nothing_is_said_of_it(gpu, flags):
    assert not any("capability" in note for note in plan(LLAMA_8B, gpu, max_model_len=4096, **flags).notes)


def test_a_plain_plan_has_nothing_to_note():
    assert plan(LLAMA_8B, "H100", max_model_len=8192).notes == ()


NAMES = st.sampled_from([QWEN_3B, QWEN_7B, QWEN3_8B, GEMMA_4B, LLAMA_8B])
VERSIONS = st.sampled_from([Version(0, 9), Version(0, 11), Version(0, 19), NEW, Version(0, 32)])
ORDER = [Outcome.DOES_NOT_FIT, Outcome.TOO_CLOSE, Outcome.FITS]


@given(NAMES, VERSIONS, st.floats(8, 190), st.floats(0.1, 40), st.integers(1024, 128_000), st.floats(0.3, 0.95))
def test_more_memory_never_makes_a_plan_fit_less(name, version, total, more, length, share):
    flags = Flags(max_model_len=length, gpu_memory_utilization=share, max_num_seqs=64, max_num_batched_tokens=2048)
    assume((total >= 70) == (total + more >= 70))  # larger cards keep more state
    small, large = (
        make_plan(spec(name), replace(card("L4"), total_gib=size), flags, version) for size in (total, total + more)
    )
    assert large.kv_pool.expected >= small.kv_pool.expected
    assert ORDER.index(large.verdict.outcome) >= ORDER.index(small.verdict.outcome)


@given(NAMES, VERSIONS, st.integers(1, 1024), st.integers(1, 1024))
def test_more_sequences_never_lower_a_peak(name, version, rows, more):
    few, many = (
        plan(name, "H100", version, max_model_len=8192, max_num_seqs=count, max_num_batched_tokens=8192)
        for count in (rows, rows + more)
    )
    assert many.peak.expected >= few.peak.expected
    assert many.kv_pool.expected <= few.kv_pool.expected


@given(NAMES, VERSIONS, st.integers(512, 128_000))
def test_limits_enclose_what_is_expected(name, version, length):
    found = plan(name, "H100", version, max_model_len=length)
    spans = [found.kv_pool, found.peak, found.terms.non_torch, *(check.slack for check in found.checks)]
    assert all(span.low <= span.expected <= span.high for span in spans)
    assert list(found.kv_tokens) == sorted(found.kv_tokens)


@given(NAMES, st.integers(512, 32_768))
def test_a_plan_from_its_own_flags_is_the_same_plan(name, length):
    once = plan(name, "H100", max_model_len=length)
    assert make_plan(once.model, once.gpu, once.flags, once.version) == once


def test_a_patch_of_the_newest_version_is_that_version():
    assert not any("were not read" in note for note in plan(QWEN_7B, "L4", Version(0, 32, 1)).notes)
