"""Flags that vLLM refuses for the model, or beside another."""

from dataclasses import replace

import pytest

from gateway.domain.memory.defaults import NotPlannableError
from gateway.domain.memory.fit import Goal, fit
from gateway.domain.memory.plan import NEWEST, Flags
from gateway.domain.memory.planning import make_plan
from tests.support.memory import LLAMA_8B, QWEN_3B, card, spec

AWQ = replace(spec(LLAMA_8B), quantization="awq")


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"max_model_len": 200_000}, "--max-model-len 200000: vLLM refuses more than the 128,000 tokens of Qwen2.5-VL"),
        ({"max_num_batched_tokens": 64, "max_num_seqs": 256}, "--max-num-seqs 256 is above --max-num-batched-tok"),
        ({"max_num_seqs": 99_999_999_999}, "--max-num-seqs 99999999999 is above --max-num-batched-tokens 2048"),
        ({"quantization": "awq"}, "--quantization awq: Qwen2.5-VL-3B-Instruct is not quantised so"),
    ],
)
def test_a_start_that_vllm_refuses_is_not_planned(told, why):
    with pytest.raises(NotPlannableError, match=why):
        make_plan(spec(QWEN_3B), card("L4"), Flags(**{"max_model_len": 8192} | told))


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (spec(QWEN_3B), {"max_model_len": 128_000}),
        (spec(QWEN_3B), {"max_num_batched_tokens": 64}),
        (spec(QWEN_3B), {"max_num_seqs": 64, "max_num_batched_tokens": 64}),
        (spec(QWEN_3B), {"quantization": "fp8"}),
        (AWQ, {"quantization": "awq"}),
    ],
)
def test_what_it_takes_is_planned(model, told):
    assert make_plan(model, card("L4"), Flags(**{"max_model_len": 8192} | told))


def test_a_goal_above_the_models_context_is_refused():
    with pytest.raises(NotPlannableError, match="one request of the goal has 300,000 tokens, and the context of Qwen"):
        fit(spec(QWEN_3B), card("H100"), Flags(), NEWEST, Goal(1, 300_000))
