"""Sums that come out, and sums that do not."""

import json

import pytest

from gateway.domain.doctor.arithmetic import Certainty, contradictions_of
from gateway.domain.doctor.measured import Start, Term
from tests.support.vllm_logs import FOLDER, NAMES, file_of, read


def start(*, engine="V1", model="Qwen/Qwen2.5-VL-7B-Instruct", marks=(), flags=(), **terms):
    made = Start(1, engine=engine, model=model, marks=set(marks), flags=dict(flags))
    for name, value in terms.items():
        for each in value if isinstance(value, tuple) else (value,):
            made.read(Term[name], each, 1)
    return made


def found(**terms):
    return [(each.certainty, each.text) for each in contradictions_of(start(**terms))]


def only(**terms):
    [(certainty, text)] = found(**terms)
    return certainty, text


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("invented")])
def test_logs_that_can_be_true(name):
    assert contradictions_of(read(file_of(name.removesuffix(".log"))).start) == []


def test_a_log_that_cannot():
    texts = [each.text for each in contradictions_of(read(file_of("invented")).start)]
    assert len(texts) == 3
    assert texts[0] == "0.9 of 24.00 GiB is 21.60 GiB, and the budget is said to be 23.20 GiB."
    assert "27.49 GiB, the card has 24.00 GiB" in texts[1]
    assert "hold 13.64 requests of 32,768 tokens, and 20.99 is printed" in texts[2]


def test_nothing_said_nothing_found():
    assert found() == []


V0 = {"engine": "V0", "WEIGHTS_GIB": 14.25, "NON_TORCH_GIB": 0.06, "ACTIVATION_GIB": 1.43, "KV_GIB": 4.05}


def test_the_terms_of_v0_fill_its_budget():
    assert found(**V0, BUDGET_GIB=19.79) == []
    assert only(**V0, BUDGET_GIB=20.79)[0] is Certainty.IMPOSSIBLE
    assert found(**V0) == []
    assert found(**V0 | {"NON_TORCH_GIB": (0.06, 0.52)}, BUDGET_GIB=20.79) == []
    assert found(engine="V0", BUDGET_GIB=20.79, WEIGHTS_GIB=1.0) == []


PEAK = {"TOTAL_GIB": 7.92, "UTILISATION": 0.9, "TORCH_PEAK_GIB": 3.12, "NON_TORCH_GIB": 0.47}


def test_the_peak_of_torch_and_the_rest_leave_the_pool():
    assert found(**PEAK, KV_GIB=3.54) == []
    assert "is 3.54 GiB; the KV cache is said to be 4.54 GiB." in only(**PEAK, KV_GIB=4.54)[1]
    assert found(**PEAK, KV_GIB=(3.54, 1.54)) == []


V1 = {"BUDGET_GIB": 71.27, "WEIGHTS_GIB": 14.08, "NON_TORCH_GIB": 0.07, "ACTIVATION_GIB": 1.97}


def test_what_v1_holds_leaves_the_pool_and_an_estimate_of_graphs_may_be_taken_off():
    assert found(**V1, KV_GIB=55.15) == []
    assert found(**V1, KV_GIB=54.50, GRAPHS_ESTIMATE_GIB=0.67) == []
    assert only(**V1, KV_GIB=54.50)[0] is Certainty.IMPOSSIBLE
    assert only(**V1, KV_GIB=56.00)[0] is Certainty.IMPOSSIBLE
    assert found(**V1, KV_GIB=56.00, flags={"kv_cache_memory_bytes": 1}) == []
    held = {"BUDGET_GIB": 72.91, "WEIGHTS_AND_NON_TORCH_GIB": 15.26, "ACTIVATION_GIB": 1.44}
    assert found(**held, KV_GIB=56.21) == []
    assert only(**held, KV_GIB=58.21)[0] is Certainty.IMPOSSIBLE


def test_a_card_holds_no_more_than_it_has():
    assert found(TOTAL_GIB=22.0, WEIGHTS_GIB=15.6, KV_GIB=1.8, FREE_GIB=21.9) == []
    assert "33.40 GiB" not in str(found(TOTAL_GIB=22.0, WEIGHTS_GIB=15.6, KV_GIB=-14.0))
    assert (
        only(TOTAL_GIB=22.0, WEIGHTS_GIB=15.6, KV_GIB=9.0)[1]
        == "Weights and KV cache are 24.60 GiB, the card has 22.00 GiB."
    )
    assert found(TOTAL_GIB=22.0, WEIGHTS_GIB=15.6, KV_GIB=9.0, flags={"cpu_offload_gb": 4}) == []
    assert only(TOTAL_GIB=22.0, WEIGHTS_GIB=1.0, FREE_GIB=24.0)[1] == "24.00 GiB were free of 22.00 GiB."


def test_an_empty_pool_holds_no_tokens():
    assert "holds 100 tokens" in only(KV_GIB=-1.0, KV_TOKENS=100)[1]
    assert found(KV_GIB=-1.0) == []


POOL = {"KV_TOKENS": 33_824, "CONCURRENCY_CONTEXT": 2048}


def test_concurrency_is_tokens_by_context():
    assert found(**POOL, CONCURRENCY=16.52) == []
    assert only(**POOL, CONCURRENCY=20.0)[0] is Certainty.IMPOSSIBLE
    assert only(**POOL, CONCURRENCY=12.0)[0] is Certainty.IMPOSSIBLE
    assert only(**POOL, CONCURRENCY=20.0, model="google/gemma-3-27b-it")[0] is Certainty.ODD
    assert only(**POOL, CONCURRENCY=20.0, marks={"padded"})[0] is Certainty.ODD
    assert found(**POOL, CONCURRENCY=12.0, model=None) == []


def test_blocks_of_v0_are_tokens():
    assert found(engine="V0", KV_BLOCKS=4741, CONCURRENCY=11.49, CONCURRENCY_CONTEXT=6600) == []
    assert only(engine="V0", KV_BLOCKS=4741, CONCURRENCY=14.0, CONCURRENCY_CONTEXT=6600)[0] is Certainty.IMPOSSIBLE
    blocks = {"KV_BLOCKS": 4741, "CONCURRENCY": 22.98, "CONCURRENCY_CONTEXT": 6600, "flags": {"block_size": 32}}
    assert found(engine="V0", **blocks) == []


def test_tokens_are_whole_blocks():
    assert found(KV_TOKENS=33_824, KV_BLOCKS=2114) == []
    assert found(KV_TOKENS=12_288, KV_BLOCKS=96, BLOCK_TOKENS=128) == []
    assert found(KV_TOKENS=12_288 - 128, KV_BLOCKS=96, BLOCK_TOKENS=128) == []
    assert "16.79 a block, which is no size" in only(KV_TOKENS=35_500, KV_BLOCKS=2114)[1]
    assert "and a block has 16." in only(KV_TOKENS=12_288, KV_BLOCKS=96, flags={"block_size": 16})[1]
    assert only(KV_TOKENS=35_500, KV_BLOCKS=2114, model="google/gemma-3-4b-it")[0] is Certainty.ODD
    assert found(KV_TOKENS=(35_500, 40_000), KV_BLOCKS=2114) == []


def test_ranks_load_about_the_same():
    assert found(WEIGHTS_GIB=(8.1, 8.3)) == []
    assert only(WEIGHTS_GIB=(3.0, 8.3))[0] is Certainty.ODD


CASES = json.loads((FOLDER.parent / "memory_cases.json").read_text())["cases"]
TERMS = {
    "weights_gib": Term.WEIGHTS_GIB, "non_torch_gib": Term.NON_TORCH_GIB, "activation_peak_gib": Term.ACTIVATION_GIB,
    "kv_cache_gib": Term.KV_GIB, "kv_cache_tokens": Term.KV_TOKENS, "num_gpu_blocks": Term.KV_BLOCKS,
    "max_concurrency": Term.CONCURRENCY, "cuda_graph_gib": Term.GRAPHS_GIB, "block_size": Term.BLOCK_TOKENS,
}  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_starts_that_were_published_can_be_true(case):
    made = Start(1, engine=case["engine"], model=case["model"])
    told = {term: case["observed"].get(name) for name, term in TERMS.items()}
    told |= {Term.TOTAL_GIB: case["gpu_mem_gib"], Term.UTILISATION: case["flags"].get("gpu_memory_utilization")}
    told[Term.CONCURRENCY_CONTEXT] = case["flags"].get("max_model_len")
    for term, value in told.items():
        if value is not None:
            made.read(term, value, 1)
    assert contradictions_of(made) == []
