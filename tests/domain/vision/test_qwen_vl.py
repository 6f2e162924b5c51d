from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gateway.domain.geometry import Size
from gateway.domain.vision.base import ProcessorConfigError, UnservableImageError
from gateway.domain.vision.qwen_vl import QwenVL, from_config
from gateway.domain.vision.registry import family_for

QWEN2 = QwenVL("qwen2_5_vl", unit=28, min_pixels=3136, max_pixels=12845056)
QWEN3 = QwenVL("qwen3_vl", unit=32, min_pixels=65536, max_pixels=16777216)

sides = st.integers(1, 12_000)
sizes = st.builds(Size, sides, sides).filter(lambda size: size.aspect_ratio <= 200)
units = st.sampled_from([28, 32])


@st.composite
def families(draw):
    unit = draw(units)
    least = draw(st.integers(1, 600 * unit**2))
    return QwenVL("any", unit, least, draw(st.integers(least, 20_000 * unit**2)))


@pytest.mark.parametrize("family", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl"])
def test_every_size_costs_what_the_models_processor_says(oracle, family):
    table = oracle(family)
    configured = [family_for(family, config) for config in table["configs"]]
    for case in table["cases"]:
        model, size = configured[case.get("c", 0)], Size(case["w"], case["h"])
        if "error" in case:
            with pytest.raises(UnservableImageError):
                model.tokens(size)
        else:
            cost = model.tokens(size)
            assert (case, cost.placeholder) == (case, case["tokens"])
            assert (case, cost.model_size) == (case, Size(case["resized_w"], case["resized_h"]))
            assert cost.encoder == cost.placeholder
            assert cost.prompt == cost.placeholder + 2


def test_targets_for_a_token_budget_are_those_of_the_table(oracle):
    table = oracle("qwen_inverse")
    models = [QwenVL("qwen", c["factor"], c["min_pixels"], c["max_pixels"]) for c in table["configs"]]
    for case in table["cases"]:
        model, size, aligned = models[case.get("c", 0)], Size(case["w"], case["h"]), case["aligned"]
        target = model.shrink(size, case["T"])
        if case["cost"] is None:  # a ratio above 200
            with pytest.raises(UnservableImageError):
                model.tokens(size)
        else:
            assert (case, model.tokens(size).placeholder) == (case, case["cost"])
        if aligned == "keep":
            assert (case, target) == (case, size)
        elif aligned["ok"]:
            assert (case, target) == (case, Size(aligned["w"], aligned["h"]))
            assert model.tokens(target).placeholder == aligned["tokens"]
        else:
            assert (case, target) == (case, None)


@pytest.mark.parametrize(
    ("size", "tokens", "why"),
    [
        (Size(70, 70), 4, "2.5 units round to the even 2"),
        (Size(126, 126), 16, "4.5 units round to the even 4"),
        (Size(8032, 8032), 16129, "doubles, not exact arithmetic: 127 x 127"),
        (Size(3600, 3600), 16384, "the same maximum met exactly: 128 x 128"),
        (Size(1900, 10), 28, "a side that rounds to 0 takes the enlarging branch, and the picture shrinks"),
        (Size(1, 200), 29, "exactly 200 passes"),
        (Size(1, 1), 4, "the least there is"),
    ],
)
def test_traps_of_the_processor(size, tokens, why):
    assert QWEN2.tokens(size).placeholder == tokens, why


@pytest.mark.parametrize("size", [Size(201, 1), Size(1, 201), Size(2001, 10)])
def test_a_ratio_above_200_is_refused_with_both_numbers(size):
    with pytest.raises(UnservableImageError, match=f"{size}: its aspect ratio is 20.*at most 200"):
        QWEN2.tokens(size)


@pytest.mark.parametrize("size", [Size(0, 5), Size(5, 0)])
@pytest.mark.parametrize("ask", [QWEN2.tokens, lambda size: QWEN2.shrink(size, 100)])
def test_an_empty_side_is_refused(size, ask):
    with pytest.raises(UnservableImageError, match="empty"):
        ask(size)


def test_only_the_models_maximum_counts_as_a_cap():
    assert not QWEN2.tokens(Size(1005, 1005)).is_capped  # 1008 x 1008: rounding
    assert not QWEN2.tokens(Size(1, 1)).is_capped
    assert QWEN2.tokens(Size(8000, 6000)).is_capped


def test_where_the_grid_target_would_be_enlarged_the_models_own_size_is_sent():
    model = QwenVL("recommended", unit=28, min_pixels=200704, max_pixels=1003520)
    wide = Size(28_000, 140)  # 1000 x 5 units, as capped: 1100 tokens
    assert model.tokens(wide).placeholder > 500
    target = model.shrink(wide, 500)
    assert target == Size(6356, 56)  # 5600 x 28 has 200 units, below the least of 256
    assert model.tokens(target).placeholder == 454
    assert model.shrink(wide, 453) is None


def test_a_model_whose_maximum_is_below_one_unit_fits_no_budget():
    assert QwenVL("tiny", unit=28, min_pixels=1, max_pixels=783).shrink(Size(100, 100), 0) is None


@given(families(), sizes, st.integers(1, 20_000))
def test_shrinking_meets_the_budget_or_says_that_it_cannot(family, size, budget):
    target = family.shrink(size, budget)
    cost = family.tokens(size).placeholder
    if cost <= budget:
        assert target == size
    elif target is not None:
        assert family.tokens(target).placeholder <= budget
        assert family.tokens(target).model_size == target
        assert family.shrink(target, budget) == target


@given(families(), sizes)
def test_no_image_costs_more_than_the_families_maximum(family, size):
    assert family.tokens(size).placeholder <= family.max_image_tokens


@given(sizes)
def test_shipped_limits_hold_for_every_size(size):
    assert (QWEN2.min_side, QWEN3.min_side) == (28, 32)
    assert QWEN2.max_image_tokens == QWEN3.max_image_tokens == 16384
    assert 4 <= QWEN2.tokens(size).placeholder <= 16384
    assert 64 <= QWEN3.tokens(size).placeholder <= 16384


@given(st.sampled_from([QWEN2, QWEN3]), sizes)
def test_a_turned_picture_costs_the_same(family, size):
    assert family.tokens(size.transposed).placeholder == family.tokens(size).placeholder


@given(st.sampled_from([QWEN2, QWEN3]), sizes, st.integers(4, 16384))
def test_with_two_units_on_the_short_side_the_shape_moves_by_at_most_one_over_them(family, size, budget):
    """Both sides are cut to whole units: with b units on the short side the ratio moves by a factor of at most 1 + 1/b
    (1.5 at b = 2, 1.1 at b = 10; measured: the bound is reached). One unit cannot keep a shape: a strip whose ratio is
    above the budget must be squeezed lengthwise.
    """
    assume(family.tokens(size).placeholder > budget)
    target = family.shrink(size, budget)
    assume(target is not None)
    short_units = min(target.width, target.height) // family.unit
    assume(short_units > 1)
    stretch = Fraction(target.width * size.height, target.height * size.width)
    assert max(stretch, 1 / stretch) <= 1 + Fraction(1, short_units)


def config(**changes):
    return {"patch_size": 14, "merge_size": 2, "size": {"shortest_edge": 3136, "longest_edge": 12845056}} | changes


def limits(model):
    return model.unit, model.min_pixels, model.max_pixels


@pytest.mark.parametrize(
    ("given_config", "expected"),
    [
        (config(), (28, 3136, 12845056)),
        (config(min_pixels=4095, max_pixels=1310720), (28, 4095, 1310720)),
        (config(max_pixels=1310720), (28, 3136, 1310720)),
        (config(max_pixels=None), (28, 3136, 12845056)),
        (config(size={"height": 5, "width": 5}, min_pixels=1, max_pixels=7), (28, 1, 7)),
        (config(size={"max_pixels": 9, "shortest_edge": 2}, max_pixels=7), (28, 2, 7)),
        (config(size=None, max_pixels=7000), (28, 3136, 7000)),
        ({"patch_size": 16}, (32, 3136, 1003520)),
        ({}, (28, 3136, 1003520)),
    ],
)
def test_configuration_keys_in_their_order_of_strength(given_config, expected):
    assert limits(from_config("qwen2_vl", given_config)) == expected


@pytest.mark.parametrize(
    ("given_config", "key", "text"),
    [
        (config(size={"longest_edge": 5}), "size", "lacks shortest_edge"),
        (config(size={"shortest_edge": 5}), "size", "lacks longest_edge"),
        (config(size={"height": 5, "width": 5}), "size", "lacks shortest_edge and longest_edge .it has height, width"),
        (config(size={"min_pixels": 5, "max_pixels": 5}), "size", "it has max_pixels, min_pixels"),
        (config(size={}), "size", "nothing"),
        (config(size=448), "size", "448"),
        (config(size={"shortest_edge": 9, "longest_edge": 5}), "size", "9 above its greatest of 5"),
        (config(size={"shortest_edge": "9", "longest_edge": 5}), "size.shortest_edge", "'9'"),
        (config(max_pixels=0), "max_pixels", "above 0"),
        (config(min_pixels=True), "min_pixels", "True"),
        (config(patch_size=14.0), "patch_size", "14.0"),
        (config(merge_size=-2), "merge_size", "-2"),
        (config(do_resize=False), "do_resize", "false"),
    ],
)
def test_a_configuration_that_the_processor_would_refuse_is_refused_by_key(given_config, key, text):
    with pytest.raises(ProcessorConfigError, match=text) as refused:
        from_config("qwen2_vl", given_config)
    assert refused.value.key == key
