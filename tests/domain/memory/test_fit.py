"""Flags for a goal: each step, their order, and what every answer keeps to."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.domain.geometry import Size
from gateway.domain.memory.defaults import NotPlannableError
from gateway.domain.memory.fit import STEPS, Goal, fit
from gateway.domain.memory.holding import image_tokens, images_held
from gateway.domain.memory.plan import Flags, ModelSpec, Outcome, Version
from gateway.domain.memory.planning import make_plan
from tests.support.memory import GEMMA_4B, LLAMA_8B, QWEN_3B, QWEN_7B, QWEN_32B, card, spec

NEW = Version(0, 23)
SQUARE = Size(1280, 1280)


def fitted(name, gpu, goal, cards=1, **flags):
    """Of a checkpoint that is quantised as the flags say."""
    model = replace(spec(name), quantization=flags.get("quantization"))
    return fit(model, card(gpu), Flags(**flags), NEW, goal, cards=cards)


def test_what_fits_is_left_as_it_is():
    found = fitted(LLAMA_8B, "H100", Goal(8, 4096), max_model_len=8192)
    assert (found.is_met, found.changed) == (True, ())
    assert found.plan.flags.max_num_seqs == 1024


def test_a_request_is_the_context_and_its_images_in_whole_blocks():
    # 46 x 46 tokens and two markers each
    assert fitted(QWEN_3B, "L4", Goal(1, 4096, 2, SQUARE)).request_tokens == 8336


def test_the_steps_go_by_what_is_lost():
    found = fitted(QWEN_7B, "L4", Goal(8, 4096, 2, SQUARE))
    assert found.is_met
    assert list(found.changed) == [name for name in STEPS if name in found.changed]
    assert "an fp8 KV cache" in found.changed
    assert found.plan.flags.mm_processor_kwargs == {"max_pixels": 1288 * 1288}
    assert found.plan.flags.max_model_len == 8336


def test_a_step_that_turns_out_needless_is_taken_back():
    found = fitted(QWEN_32B, "A100-80GB", Goal(16, 4096, 2, SQUARE))
    assert found.is_met
    assert found.changed == ("no videos", "weights in fp8")
    assert found.plan.flags.kv_cache_dtype == "auto"


def test_more_cards_that_lose_less_are_taken_and_fewer_are_named_beside_them():
    found = fitted(QWEN_32B, "A100-40GB", Goal(16, 4096, 2, SQUARE), cards=4)
    assert (found.is_met, found.cards, found.changed) == (True, 4, ("no videos", "more cards"))
    one, two = found.others
    assert (one.cards, one.is_met) == (1, False)
    assert (two.cards, two.is_met) == (2, True)
    assert "weights in fp8" in two.changed


def test_the_fewest_cards_with_full_accuracy_are_taken_whatever_else_that_loses():
    found = fitted(QWEN_32B, "L4", Goal(8, 4096, 2, SQUARE), cards=16, quantization="awq")
    assert (found.is_met, found.cards) == (True, 4)
    assert found.changed == ("no videos", "no CUDA graphs", "more cards")
    _, two, eight = found.others
    assert (two.is_met, two.cards, "an fp8 KV cache" in two.changed) == (True, 2, True)
    assert (eight.is_met, eight.cards, eight.changed) == (True, 8, ("no videos",))


def test_where_accuracy_is_lost_anyway_a_small_kv_cache_is_rather_taken_than_small_weights():
    found = fitted(QWEN_7B, "L4", Goal(45, 4096, 2, SQUARE), cards=2)
    assert (found.cards, found.changed) == (2, ("no videos", "an fp8 KV cache", "more cards"))
    [one] = found.others
    assert (one.is_met, "weights in fp8" in one.changed) == (True, True)


def test_cards_that_lose_nothing_less_are_left_for_replicas():
    found = fitted(QWEN_3B, "H100", Goal(8, 4096), max_model_len=8192, cards=4)
    assert (found.cards, found.changed) == (1, ())
    assert [each.cards for each in found.others] == [2, 4]


@pytest.mark.parametrize(
    ("name", "gpu", "goal", "flags", "step", "told"),
    [
        (QWEN_7B, "A100-PCIE-40GB", Goal(2, 100_000, 1, SQUARE), {"max_model_len": 128_000}, "no videos",
         {"limit_mm_per_prompt": {"video": 0}}),
        (QWEN_7B, "A100-PCIE-40GB", Goal(3, 100_000), {"max_model_len": 128_000}, "no videos",
         {"limit_mm_per_prompt": {"video": 0, "image": 0}}),
        (LLAMA_8B, "H100", Goal(110, 4096), {"max_model_len": 8192}, "no more sequences than users",
         {"max_num_seqs": 110}),
        (LLAMA_8B, "L4", Goal(1, 30_000), {"max_num_batched_tokens": 16_384, "max_model_len": 30_000},
         "smaller batches", {"max_num_batched_tokens": 2048}),
        (LLAMA_8B, "L4", Goal(1, 4096), {"max_model_len": 131_072}, "a context as long as the goal's",
         {"max_model_len": 4096}),
    ],
)  # fmt: skip
def test_each_step_where_it_is_the_one_that_helps(name, gpu, goal, flags, step, told):
    found = fitted(name, gpu, goal, **flags)
    assert found.is_met
    assert step in found.changed
    assert {key: getattr(found.plan.flags, key) for key in told} == told


def test_a_lower_share_where_what_is_outside_the_pool_is_short():
    found = fitted(LLAMA_8B, "A100-80GB", Goal(1, 4096), max_model_len=8192, gpu_memory_utilization=0.995)
    assert found.is_met
    assert found.changed == ("another share of the card",) or "no CUDA graphs" in found.changed


def test_a_goal_that_nothing_meets_says_so_with_the_closest():
    found = fitted(QWEN_32B, "L4", Goal(8, 4096, 2, SQUARE))
    assert not found.is_met
    assert found.plan.verdict.outcome is Outcome.DOES_NOT_FIT
    assert "weights in fp8" in found.changed


def test_cards_over_which_heads_do_not_divide_are_left_out():
    found = fitted(QWEN_32B, "L4", Goal(1, 4096), cards=3, quantization="awq", kv_cache_dtype="fp8")
    assert (found.is_met, found.cards) == (True, 2)
    assert [each.cards for each in found.others] == [1]


def test_images_above_the_models_own_limit_change_none():
    found = fitted(QWEN_7B, "L4", Goal(8, 4096, 1, Size(8000, 8000)))
    assert found.plan.flags.mm_processor_kwargs == {}


def test_more_cards_stop_where_heads_do_not_divide():
    found = fitted(QWEN_7B, "T4", Goal(64, 100_000), cards=64)
    assert found.plan.flags.tensor_parallel_size == 4  # 28 heads


def test_a_goal_above_what_was_given_widens_it():
    found = fitted(QWEN_3B, "H100", Goal(16, 8192, 3, SQUARE), max_model_len=2048, max_num_seqs=2,
                   max_num_batched_tokens=8, limit_mm_per_prompt={"image": 1})  # fmt: skip
    flags = found.plan.flags
    assert found.is_met
    assert flags.max_model_len >= found.request_tokens
    assert (flags.max_num_seqs, flags.max_num_batched_tokens, flags.limit_mm_per_prompt) == (16, 16, {"image": 3})


def test_images_that_no_model_takes_are_refused():
    with pytest.raises(NotPlannableError, match="its aspect ratio"):
        fitted(QWEN_3B, "L4", Goal(1, 100, 1, Size(10_000, 10)))
    nameless = ModelSpec("m", "files", spec(LLAMA_8B).text)
    with pytest.raises(NotPlannableError, match="no family is known that prices the images of m"):
        image_tokens(nameless, Flags(), SQUARE)


def test_how_many_images_a_pool_holds():
    plan = make_plan(spec(QWEN_3B), card("L4"), Flags(max_model_len=8192), NEW)
    held = images_held(plan, Size(1024, 1024))
    assert (held.tokens, held.per_request) == (1371, 5)  # 37 x 37 and two markers
    assert held.pool_expected == plan.kv_blocks.expected // 86
    assert held.pool_low <= held.pool_expected


GOALS = st.builds(
    Goal,
    st.integers(1, 64),
    st.integers(256, 65_536),
    st.integers(1, 4),
    st.builds(Size, *(st.integers(64, 3000),) * 2),
)


@settings(max_examples=40)
@given(
    st.sampled_from([QWEN_3B, QWEN_7B, GEMMA_4B]),
    st.sampled_from(["L4", "A100-80GB", "H100"]),
    GOALS,
    st.integers(1, 4),
)
def test_what_is_found_fits_and_finding_it_again_changes_nothing(name, gpu, goal, cards):
    found = fitted(name, gpu, goal, cards)
    plan = found.plan
    if found.is_met:
        assert plan.verdict.outcome is Outcome.FITS
        assert plan.kv_blocks.low >= goal.users * plan.kv_layout.blocks_of(found.request_tokens)
        assert plan.flags.tensor_parallel_size <= cards
        again = fit(plan.model, plan.gpu, plan.flags, plan.version, goal, cards=cards)
        assert (again.changed, again.plan) == ((), plan)


def test_more_cards_than_heads_are_not_even_tried():
    assert fitted(QWEN_3B, "H100", Goal(1, 4096), max_model_len=8192, cards=10**12).cards == 1
