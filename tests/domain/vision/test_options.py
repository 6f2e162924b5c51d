"""What a server's `--mm-processor-kwargs` makes of an image's price, and what is no option of its family."""

import pytest

from gateway.domain.geometry import Size
from gateway.domain.vision.base import ProcessorConfigError
from gateway.domain.vision.options import PRICED
from gateway.domain.vision.registry import FAMILIES, resolve

PHOTO = Size(1920, 1080)


def tokens(family, options, size=PHOTO):
    return resolve(family, options=options).family.tokens(size).placeholder


@pytest.mark.parametrize(
    ("family", "options", "before", "after"),
    [
        ("qwen2_5_vl", {"max_pixels": 802_816}, 2691, 1008),
        ("qwen2_5_vl", {"size": {"shortest_edge": 3136, "longest_edge": 802_816}}, 2691, 1008),
        ("qwen3_vl", {"max_pixels": 1_048_576}, 2040, 1008),
        ("glm4_1v", {"size": {"shortest_edge": 12_544, "longest_edge": 1_605_632}}, 2691, 1008),
        ("internvl", {"max_dynamic_patch": 4}, 2306, 770),
        ("internvl", {"dynamic_image_size": False}, 2306, 258),
        ("phi3_5_vision", {"num_crops": 16}, 757, 2353),
        ("gemma3", {"do_pan_and_scan": True}, 260, 780),
        ("gemma4", {"max_soft_tokens": 70}, 266, 68),
        ("minicpmv", {"max_slice_nums": 1}, 598, 69),
        ("llama4", {"max_patches": 4}, 2322, 727),
        ("idefics3", {"do_image_splitting": False}, 2227, 172),
    ],
)
def test_it_changes_what_an_image_costs(family, options, before, after):
    assert (tokens(family, {}), tokens(family, options)) == (before, after)


def test_every_option_is_read_by_its_family():
    """A key that stands in the table and nobody reads would be believed and change nothing."""
    unread = []
    for family, keys in PRICED.items():
        known = {number.key.partition(".")[0] for number in resolve(family).numbers}
        # Read in place of those that checkpoints ship, or only where they are set.
        known |= {"size", "min_pixels", "max_pixels"} if known & {"size", "min_pixels", "max_pixels"} else set()
        unread += [(family, key) for key in keys - known]
    assert unread == []


def test_the_table_has_no_family_that_is_none():
    assert PRICED.keys() <= FAMILIES.keys()


def test_what_is_scoped_to_images_goes_before_what_is_for_all():
    options = {"max_pixels": 12_845_056, "images_kwargs": {"max_pixels": 802_816}}
    assert tokens("qwen2_5_vl", options) == 1008
    assert tokens("qwen2_5_vl", {"max_pixels": 802_816, "images_kwargs": None}) == 1008


def test_what_is_null_is_not_set():
    assert tokens("qwen2_5_vl", {"max_pixels": None}) == 2691


def test_what_changes_no_count_is_taken():
    options = {"fps": 2, "num_frames": 8, "do_rescale": False, "videos_kwargs": {"max_pixels": 1}}
    assert tokens("qwen2_5_vl", options | {"images_kwargs": {"resample": 2}}) == 2691


@pytest.mark.parametrize(
    ("family", "options", "key", "said"),
    [
        ("qwen2_5_vl", {"max_pixel": 1}, "max_pixel", "which is: max_pixels, min_pixels, size"),
        ("qwen2_5_vl", {"images_kwargs": {"num_crops": 4}}, "num_crops", "which is: max_pixels, min_pixels, size"),
        ("qwen2_5_vl", {"patch_size": 16}, "patch_size", "is none of what"),
        ("llava_next", {"size": 1}, "size", "which is: nothing"),
        ("qwen2_5_vl", {"images_kwargs": [1]}, "images_kwargs", r"must be an object, not \[1\]"),
        ("qwen2_5_vl", {"max_pixels": "many"}, "max_pixels", "not 'many'"),
        ("qwen2_5_vl", {"size": {"longest_edge": 802_816}}, "size", "shortest_edge"),
    ],
)
def test_what_vllm_would_drop_or_refuse_is_a_mistake_that_names_the_key(family, options, key, said):
    with pytest.raises(ProcessorConfigError, match=said) as raised:
        resolve(family, options=options)
    assert raised.value.key.partition(".")[0] == key
