import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.geometry import Size
from gateway.domain.vision.grids import (
    closest_grid,
    covering_grid,
    grids_of,
    in_doubles,
    in_single_precision,
    pinpoint,
)


def test_small_grids_come_first_and_narrow_ones_among_equals():
    assert grids_of(1, 4) == ((1, 1), (1, 2), (2, 1), (1, 3), (3, 1), (1, 4), (2, 2), (4, 1))
    assert grids_of(3, 4) == grids_of(1, 4)[3:]


@pytest.mark.parametrize(
    ("size", "grid"),
    [
        (Size(448, 448), (1, 1)),
        (Size(634, 634), (2, 2)),  # more than half of 896 x 896
        (Size(633, 633), (1, 1)),
        (Size(4032, 3024), (4, 3)),
        (Size(3000, 10), (12, 1)),
    ],
)
def test_the_closest_grid_and_of_equals_one_that_is_filled_by_half(size, grid):
    assert closest_grid(size, grids_of(1, 12), 448) == grid


@pytest.mark.parametrize(
    ("size", "least", "most"),
    [
        (Size(300, 300), (1, 1), (4, 4)),
        (Size(337, 300), (2, 1), (4, 4)),  # (4, 4) enlarges most
        (Size(5000, 300), (15, 1), (16, 1)),
        (Size(6000, 6000), (4, 4), (4, 4)),  # none is large enough
    ],
)
def test_the_grid_that_covers_an_image_with_the_least_enlargement_or_the_most(size, least, most):
    assert covering_grid(size, grids_of(1, 16), 336) == least
    assert covering_grid(size, grids_of(1, 16), 336, largest=True) == most


def test_a_pinpoint_keeps_pixels_first_and_wastes_few_then():
    canvases = [Size(672, 336), Size(336, 672), Size(672, 672)]
    assert pinpoint(Size(600, 300), canvases) == Size(672, 336)
    assert pinpoint(Size(600, 600), canvases) == Size(672, 672)
    assert pinpoint(Size(300, 300), canvases) == Size(672, 336)  # the first of equals


whole = st.integers(-300, 10**9)


@given(whole, st.integers(-300, 10**9).filter(bool))
def test_single_precision_is_that_of_numpy(dividend, divisor):
    assert in_single_precision(dividend, divisor) == float(np.float32(dividend) / np.float32(divisor))


@pytest.mark.parametrize("divide", [in_doubles, in_single_precision])
def test_by_zero_it_is_infinite(divide):
    assert divide(224, 0) == math.inf
