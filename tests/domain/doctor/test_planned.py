"""Measured beside planned."""

import json

import pytest

from gateway.domain.doctor.arithmetic import Certainty
from gateway.domain.doctor.measured import Start, Term
from gateway.domain.doctor.planned import compare, flags_of, total_gib, version_for_plan
from gateway.domain.memory.gpus import gpu_of
from gateway.domain.memory.plan import NEWEST, Version
from gateway.domain.memory.planning import make_plan
from gateway.models.known_specs import known_spec
from tests.support.vllm_logs import FOLDER, file_of, read


def compared(name, *, total=None, model=None):
    start = read(file_of(name)).start
    known = total or total_gib(start)
    plan = make_plan(
        known_spec(model or start.model), gpu_of("the card", known or 80.0), flags_of(start), version_for_plan(start)
    )
    return compare(start, plan, is_card_known=known is not None)


def rows(comparison):
    return {row.what: row for row in comparison.rows}


def test_a_start_of_0_32_term_by_term():
    found = compared("v0_32_started")
    assert found.verdict.startswith("fits. ")
    assert found.why_not is None
    table = rows(found)
    assert set(table) == {
        "weights", "encoder budget", "images profiled", "KV tokens in 52.71 GiB", "budget", "weights and non-torch",
        "peak of the profile run, and graphs", "CUDA graphs", "KV cache", "KV tokens", "requests of the whole context",
    }  # fmt: skip
    assert table["weights"].is_within
    assert table["KV tokens in 52.71 GiB"].difference == 0
    assert table["KV cache"].difference == pytest.approx(0.27, abs=0.3)
    assert found.contradictions == ()


def test_without_the_cards_memory_what_depends_on_it_is_left_out():
    found = compared("v0_9_0_started")
    assert set(rows(found)) == {"weights", "encoder budget", "images profiled", "KV tokens in 1.81 GiB"}
    assert (found.verdict, "does not say how much memory" in found.why_not) == (None, True)
    assert rows(compared("v0_9_0_started", total=22.03))["KV cache"].is_within


def test_a_start_that_failed_is_compared_as_far_as_it_came():
    assert set(rows(compared("v0_13_profile"))) == {"weights", "encoder budget", "images profiled"}
    assert "KV tokens" not in rows(compared("v0_23_0", total=79.15))


def test_tokens_that_the_models_bytes_do_not_allow():
    [contradiction] = compared("invented").contradictions
    assert contradiction.certainty is Certainty.IMPOSSIBLE
    assert "12.50 GiB hold 102,400 tokens of Llama-3.1-8B-Instruct at 131,072 bytes each" in contradiction.text


CASES = [
    case
    for case in json.loads((FOLDER.parent / "memory_cases.json").read_text())["cases"]
    if case["engine"] == "V1" and case["spec_ref"] and case["observed"].get("kv_cache_tokens")
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_published_starts_are_not_taken_for_impossible_ones(case):
    given = {name: value for name, value in case["flags"].items() if value is not None}
    start = Start(1, version=case["vllm_version"], flags=given | {"tensor_parallel_size": case["tp"]})
    for name in ("kv_cache_tokens", "kv_cache_gib", "weights_gib"):
        if name in case["observed"]:
            start.read(Term(name), case["observed"][name], 1)
    version = max(version_for_plan(start), Version(0, 8))  # a few cases name no minor version
    plan = make_plan(known_spec(case["spec_ref"]), gpu_of("any", 80.0), flags_of(start), version)
    assert compare(start, plan, is_card_known=False).contradictions == ()


def test_layers_of_several_kinds_are_not_judged_so():
    assert compared("v0_9_0_started", model="google/gemma-3-4b-it").contradictions == ()


def test_flags_of_another_kind_than_expected_are_not_said():
    start = Start(1, flags={
        "max_num_seqs": "many", "enforce_eager": 1, "dtype": "torch.bfloat16", "limit_mm_per_prompt": {"image": "x"},
        "mm_processor_kwargs": "x", "tensor_parallel_size": True, "quantization": 4, "gpu_memory_utilization": 3,
        "block_size": 0, "cpu_offload_gb": 2.5, "kv_cache_dtype": "fp8", "speculative_config": {"method": "ngram"},
    })  # fmt: skip
    flags = flags_of(start)
    assert (flags.max_num_seqs, flags.enforce_eager, flags.dtype, dict(flags.limit_mm_per_prompt)) == (
        None,
        False,
        "bfloat16",
        {},
    )
    assert (dict(flags.mm_processor_kwargs), flags.tensor_parallel_size, flags.quantization) == ({}, 1, None)
    assert (flags.gpu_memory_utilization, flags.cpu_offload_gb, flags.kv_cache_dtype) == (None, 2.5, "fp8")
    assert flags.block_size == 16
    assert flags.speculative_config == {"method": "ngram"}


def test_flags_come_from_the_configuration_and_the_log_where_the_operator_gave_none():
    start = Start(1, config={"max_seq_len": "4096", "tensor_parallel_size": "2", "enforce_eager": "True"})
    assert (flags_of(start).max_model_len, flags_of(start).tensor_parallel_size, flags_of(start).enforce_eager) == (
        4096,
        2,
        True,
    )
    start.flags = {"limit_mm_per_prompt": {"video": 0}, "mm_processor_kwargs": {"max_pixels": 9}}
    start.read(Term.CONTEXT, 2048, 1)
    start.read(Term.BATCHED_TOKENS, 0, 1)
    flags = flags_of(start)
    assert (flags.max_model_len, flags.max_num_batched_tokens) == (2048, None)
    assert (flags.limit_mm_per_prompt, flags.mm_processor_kwargs) == ({"video": 0}, {"max_pixels": 9})


def test_the_version_of_a_branch_is_taken_for_the_newest():
    assert version_for_plan(Start(1, version="0.1.dev1+g1234")) == NEWEST
    assert version_for_plan(Start(1)) == NEWEST
    assert version_for_plan(Start(1, version="0.11.0rc2.dev98+g393de22d2")) == Version(0, 11)


def test_the_total_follows_from_the_budget():
    start = Start(1)
    assert total_gib(start) is None
    start.read(Term.BUDGET_GIB, 19.8, 1)
    assert total_gib(start) is None
    start.read(Term.UTILISATION, 0.9, 1)
    assert total_gib(start) == pytest.approx(22.0)
    start.read(Term.TOTAL_GIB, 22.03, 1)
    assert total_gib(start) == 22.03
