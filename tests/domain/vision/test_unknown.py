"""An image on a model of unknown family: a token at least, at most what the dearest family makes of it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.domain.geometry import Size
from gateway.domain.vision.base import UnservableImageError
from gateway.domain.vision.checkpoints import CHECKPOINTS
from gateway.domain.vision.registry import resolve
from gateway.domain.vision.unknown import unknown_family

FAMILY = unknown_family()
KNOWN = [resolve(checkpoint.family, checkpoint=checkpoint).family for checkpoint in CHECKPOINTS]
sides = st.integers(1, 12_000)


def costs(size):
    for family in KNOWN:
        try:
            yield family.tokens(size)
        except UnservableImageError:
            continue


@pytest.mark.parametrize(
    ("size", "most"),
    [(Size(1024, 1024), 7371), (Size(4000, 3000), 15_301 + 2), (Size(1, 1), 4097)],
)
def test_the_dearest_family_is_the_bound(size, most):
    cost = FAMILY.tokens(size)
    assert (cost.least_prompt, cost.least_encoder, cost.is_exact) == (1, 1, False)
    assert cost.prompt == max(each.prompt for each in costs(size)) == most


@settings(max_examples=60)
@given(st.builds(Size, sides, sides))
def test_none_of_the_known_families_costs_more(size):
    cost = FAMILY.tokens(size)
    assert all(each.prompt <= cost.prompt and each.encoder <= cost.encoder for each in costs(size))
    assert cost.placeholder <= FAMILY.max_image_tokens


def test_it_is_called_unknown_and_shrinks_nothing():
    size = Size(640, 480)
    assert (FAMILY.name, FAMILY.min_side, FAMILY.markers) == ("unknown", 1, 0)
    most = FAMILY.tokens(size).placeholder
    assert (FAMILY.shrink(size, most), FAMILY.shrink(size, most - 1)) == (size, None)


def test_an_image_without_pixels_is_none():
    with pytest.raises(UnservableImageError):
        FAMILY.tokens(Size(0, 5))
