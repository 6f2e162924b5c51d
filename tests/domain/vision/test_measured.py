"""Bounds for a model that no family fits."""

import pytest

from gateway.domain.geometry import Size
from gateway.domain.vision.base import MOST_PIXELS, UnservableImageError
from gateway.domain.vision.measured import Measured

BY_SIZE = Measured("unknown", 1500, 1_000_000)


def test_small_ones_cost_at_most_the_dearest_and_large_ones_as_many_times_more():
    costs = {size: BY_SIZE.tokens(size) for size in (Size(1, 1), Size(1000, 1000), Size(2000, 1000), Size(1001, 1000))}
    assert [cost.prompt for cost in costs.values()] == [1500, 1500, 3000, 1502]
    assert {(cost.least_prompt, cost.least_encoder, cost.is_capped) for cost in costs.values()} == {(1, 1, False)}
    assert BY_SIZE.max_image_tokens == -(-1500 * MOST_PIXELS // 1_000_000)
    assert (BY_SIZE.min_side, BY_SIZE.markers) == (1, 0)


def test_where_all_cost_the_same_size_is_no_matter():
    same = Measured("unknown", 700, None)
    assert {same.tokens(size).prompt for size in (Size(1, 1), Size(9000, 9000))} == {700}
    assert same.max_image_tokens == 700


def test_nothing_is_made_smaller_for_it():
    assert BY_SIZE.shrink(Size(1000, 1000), 1500) == Size(1000, 1000)
    assert BY_SIZE.shrink(Size(1000, 1000), 1499) is None


def test_an_empty_picture_is_none():
    with pytest.raises(UnservableImageError):
        BY_SIZE.tokens(Size(0, 5))
