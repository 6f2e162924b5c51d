import pytest

from gateway.domain.quantities import Bounds, Resource


def test_resources_are_labelled_by_their_names():
    assert [resource.label for resource in Resource] == [
        "kv_blocks",
        "sequences",
        "encoder_tokens",
        "preprocess_pixels",
        "prefill_tokens",
        "image_prefill_tokens",
    ]


def test_bounds_add_bound_by_bound():
    assert Bounds(1, 2, 3) + Bounds(10, 20, 30) == Bounds(11, 22, 33)
    assert Bounds(1, 2, 3) + 5 == Bounds.exact(5) + Bounds(1, 2, 3) == Bounds(6, 7, 8)


def test_what_is_left_of_a_number_is_least_where_what_is_taken_is_most():
    assert -Bounds(1, 2, 3) + 10 == Bounds(7, 8, 9)


def test_bounds_add_nothing_else():
    with pytest.raises(TypeError):
        Bounds(1, 2, 3) + "4"
