"""Prices of a model whose arithmetic is not known for sure."""

import pytest

from gateway.domain.geometry import Size
from gateway.domain.vision.base import UnservableImageError
from gateway.domain.vision.one_of import OneOf
from gateway.domain.vision.registry import family_for

SIZES = [Size(*sides) for sides in ((100, 100), (640, 480), (1920, 1080), (300, 2000), (3000, 2000))]
QWEN2, QWEN3, LLAVA = (family_for(name, None) for name in ("qwen2_5_vl", "qwen3_vl", "llava_1_5"))
EITHER = OneOf("either", (QWEN2, QWEN3), (QWEN2, QWEN3))


def test_the_most_is_reserved_and_the_least_is_sure():
    small, large = Size(64, 64), Size(1080, 1080)
    assert [(QWEN2.tokens(size).prompt, QWEN3.tokens(size).prompt) for size in (small, large)] == [
        (6, 66),
        (1523, 1158),
    ]
    assert (EITHER.tokens(small).prompt, EITHER.tokens(small).least_prompt) == (66, 6)
    assert (EITHER.tokens(large).prompt, EITHER.tokens(large).least_prompt) == (1523, 1158)
    assert (EITHER.tokens(large).encoder, EITHER.tokens(large).least_encoder) == (1521, 1156)
    assert not EITHER.tokens(large).is_exact
    assert (EITHER.markers, EITHER.min_side, EITHER.max_image_tokens) == (2, 28, 16_384)


def test_where_all_agree_it_is_exact():
    dots = family_for("dots_ocr", None)
    both = OneOf("qwen2_5_vl", (QWEN2, dots), (QWEN2, dots))
    for size in SIZES:
        cost = both.tokens(size)
        assert (cost.prompt, cost.least_prompt, cost.is_capped) == (QWEN2.tokens(size).prompt,) * 2 + (False,)
    apart = both.tokens(Size(3550, 3550))
    assert (apart.prompt, apart.least_prompt) == (
        QWEN2.tokens(Size(3550, 3550)).prompt,
        dots.tokens(Size(3550, 3550)).prompt,
    )


def test_what_all_would_make_smaller_in_the_same_way_is_made_smaller_beforehand():
    huge = Size(8000, 6000)
    assert OneOf("m", (QWEN2, QWEN2), (QWEN2,)).tokens(huge).is_capped
    assert not EITHER.tokens(huge).is_capped


def test_one_that_was_wrong_bounds_from_above_alone():
    doubted = OneOf("qwen2_5_vl", (QWEN2, LLAVA), (LLAVA,))
    assert (doubted.tokens(Size(64, 64)).prompt, doubted.tokens(Size(64, 64)).least_prompt) == (576, 576)
    assert (doubted.tokens(Size(1080, 1080)).prompt, doubted.tokens(Size(1080, 1080)).least_prompt) == (1523, 576)


def test_without_one_that_is_possible_a_token_is_sure_and_the_most_is_as_many_times_more():
    doubted = OneOf("qwen2_5_vl", (QWEN2,), (), factor=1.5)
    cost = doubted.tokens(Size(1080, 1080))
    assert (cost.prompt, cost.least_prompt) == (2285, 1)
    assert (cost.encoder, cost.least_encoder) == (2282, 1)
    assert doubted.max_image_tokens == 24_577, "what stands around it is as many times more too"


def test_a_size_is_refused_where_all_that_are_possible_refuse_it():
    strip = Size(4020, 20)
    with pytest.raises(UnservableImageError, match="no family that this model may be of takes it"):
        EITHER.tokens(strip)
    assert OneOf("m", (QWEN2, LLAVA), (QWEN2, LLAVA)).tokens(strip).prompt == 576
    assert OneOf("m", (QWEN2, LLAVA), (LLAVA,)).tokens(strip).least_prompt == 576


def test_a_family_that_was_wrong_refuses_nothing():
    cost = OneOf("qwen2_5_vl", (QWEN2,), ()).tokens(Size(4020, 20))
    assert (cost.prompt, cost.least_prompt) == (16_386, 1)


def test_no_picture_costs_more_than_the_most():
    aya = OneOf("m", (family_for("aya_vision", None),), (), factor=2.5)
    assert aya.tokens(Size(640, 480)).placeholder <= aya.max_image_tokens


@pytest.mark.parametrize("tokens", [100, 200, 1000, 5000])
@pytest.mark.parametrize("size", SIZES)
def test_shrinking_keeps_within_the_budget_of_all(size, tokens):
    target = EITHER.shrink(size, tokens)
    assert target is not None
    assert all(member.tokens(target).placeholder <= tokens for member in (QWEN2, QWEN3))
    assert EITHER.shrink(target, tokens) == target
    assert (target == size) is (EITHER.tokens(size).placeholder <= tokens)


def test_where_one_never_costs_so_little_nothing_can_be_done():
    assert EITHER.shrink(Size(640, 480), 50) is None
    assert OneOf("m", (QWEN2, LLAVA), (QWEN2, LLAVA)).shrink(Size(640, 480), 575) is None


def test_a_picture_too_long_for_all_becomes_one_that_they_take():
    target = EITHER.shrink(Size(41_000, 200), 1000)
    assert target is not None
    assert EITHER.tokens(target).placeholder <= 1000
