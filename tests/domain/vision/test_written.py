"""A family that is right but for what the template writes around its pictures."""

import pytest

from gateway.domain.geometry import Size
from gateway.domain.vision.registry import family_for
from gateway.domain.vision.written import Written, written_around

QWEN, ERNIE = family_for("qwen2_5_vl", None), family_for("ernie4_5_vl", None)
SIZE = Size(640, 480)


@pytest.mark.parametrize(("written", "least", "most"), [(5, 393, 398), (-2, 391, 393)])
def test_what_may_be_written_is_reserved_and_what_may_be_left_out_is_not_sure(written, least, most):
    cost = Written(QWEN, written).tokens(SIZE)
    assert QWEN.tokens(SIZE).prompt == 393
    assert (cost.least_prompt, cost.prompt) == (least, most)
    assert (cost.encoder, cost.least_encoder, cost.placeholder) == (391, 391, 391)


def test_bounds_get_wider():
    cost, own = Written(ERNIE, 3).tokens(SIZE), ERNIE.tokens(SIZE)
    assert (cost.least_prompt, cost.prompt) == (own.least_prompt, own.prompt + 3)


def test_all_else_is_the_familys():
    family = Written(QWEN, 5)
    assert (family.name, family.min_side, family.max_image_tokens) == ("qwen2_5_vl", 28, QWEN.max_image_tokens)
    assert (family.markers, Written(QWEN, -2).markers) == (7, 2)
    assert family.shrink(Size(3000, 2000), 500) == QWEN.shrink(Size(3000, 2000), 500)
    assert written_around(QWEN, 0) is QWEN
