"""Where size alone does not decide: what is sure to come, what may come, and what decides once it is known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.geometry import Size
from gateway.domain.vision.base import BoundedTokens
from gateway.domain.vision.nemotron_nano_v2 import DynamicNemotron
from gateway.domain.vision.registry import family_for

PHOTO = Size(1920, 1080)


def bounds(cost):
    return cost.least_prompt, cost.prompt


def test_an_exact_cost_is_its_own_bound():
    cost = family_for("qwen2_5_vl", None).tokens(PHOTO)
    assert cost.is_exact
    assert bounds(cost) == (2693, 2693)
    assert cost.least_encoder == cost.encoder == 2691


def test_what_is_sure_to_come_is_never_nothing():
    cost = BoundedTokens(placeholder=5, markers=0, encoder=5, model_size=PHOTO, uncertain=9, uncertain_encoder=9)
    assert (cost.least_prompt, cost.least_encoder) == (1, 1)
    assert not cost.is_exact


def test_deepseek_vl2_cuts_nothing_up_from_three_images_on():
    assert bounds(family_for("deepseek_vl2", None).tokens(PHOTO)) == (421, 1807)
    exact = [family_for("deepseek_vl2", {"images_in_request": images}).tokens(PHOTO) for images in (1, 2, 3)]
    assert [bounds(cost) for cost in exact] == [(1807, 1807), (1807, 1807), (421, 421)]
    assert all(cost.is_exact for cost in exact)


def test_h2ovl_looks_twice_at_one_image_alone():
    shipped = {
        "dynamic_image_size": True,
        "use_thumbnail": True,
        "min_dynamic_patch": 1,
        "max_dynamic_patch": 6,
        "use_msac": True,
    }
    assert bounds(family_for("h2ovl", shipped).tokens(PHOTO)) == (3 * 256 + 2, 9 * 256 + 2)
    assert bounds(family_for("h2ovl", shipped | {"images_in_request": 1}).tokens(PHOTO)) == (2306, 2306)
    assert bounds(family_for("h2ovl", shipped | {"images_in_request": 2}).tokens(PHOTO)) == (770, 770)
    assert family_for("h2ovl", shipped | {"use_msac": False}).tokens(PHOTO).is_exact


def test_minicpm_numbers_its_images_so_later_ones_cost_up_to_two_digits_more():
    cost = family_for("minicpmv", None).tokens(PHOTO)
    assert bounds(cost) == (598, 598 + 2 + 1)  # and a newline of the template
    assert cost.least_encoder == cost.encoder == 9 * 64
    older = {"image_feature_size": 96, "use_image_id": False}
    assert bounds(family_for("minicpmv", older).tokens(PHOTO)) == (9 * 98 + 1, 9 * 98 + 2)


def test_minicpm_4_6_has_tags_around_each_view():
    cost = family_for("minicpmv4_6", None).tokens(PHOTO)
    assert cost.placeholder == cost.encoder == 578
    assert bounds(cost) == (578 + 18 + 3, 578 + 18 + 1 + 3 + 2)


def test_nvlms_tags_are_text():
    cost = family_for("nvlm_d", None).tokens(PHOTO)
    tags = ["<Image>", "</Image>", "<tile_1>", "<tile_2>", "<tile_global_thumbnail>"]
    assert cost.placeholder == cost.encoder == 3 * 256
    assert bounds(cost) == (3 * 256 + len(tags), 3 * 256 + sum(map(len, tags)))


def test_ernie_writes_a_number_before_each_image():
    assert bounds(family_for("ernie4_5_vl", None).tokens(PHOTO)) == (2691 + 2, 2691 + 2 + len("Picture 999:"))


def test_pan_and_scan_adds_a_sentence():
    panned = family_for("gemma3", {"do_pan_and_scan": True}).tokens(Size(2000, 1000))
    assert panned.placeholder == 3 * 260
    assert bounds(panned) == (3 * 259, 3 * 260 + 128)


def test_without_a_token_for_a_blank_line_idefics_spends_one_more():
    assert bounds(family_for("idefics3", None).tokens(PHOTO)) == (2227, 2228)
    assert family_for("idefics3", {"do_image_splitting": False}).tokens(PHOTO).is_exact


def test_nemotron_in_dynamic_mode_needs_the_whole_request():
    mode = {"min_num_patches": 1024, "max_num_patches": 13312}
    cost = family_for("nemotron_nano_v2", mode).tokens(PHOTO)
    assert not cost.is_exact
    for text in (0, 1_000, 130_000, 131_072):
        known = family_for("nemotron_nano_v2", mode | {"max_model_len": 131_072, "text_tokens": text}).tokens(PHOTO)
        assert known.is_exact
        assert cost.least_prompt <= known.prompt <= cost.prompt


def test_and_where_the_configuration_limits_no_patches_the_largest_image_that_vllm_decodes_does():
    args = {"vision_config": {"args": {"min_num_patches": 1024, "max_num_patches": 0}}}
    assert family_for("nemotron_nano_v2", args).most_patches == 178_956_970 // 256


sides = st.integers(1, 12_000)
patches = st.tuples(st.integers(4, 4096), st.integers(4, 20_000))


@given(st.builds(Size, sides, sides), patches, st.integers(16, 131_072), st.integers(0, 131_072), st.booleans())
def test_nemotrons_bounds_hold_for_any_text(size, patches, context, text, knows_context):
    least, most = patches
    loose = DynamicNemotron("n", 16, least, most, context if knows_context else None).tokens(size)
    exact = DynamicNemotron("n", 16, least, most, context, text).tokens(size)
    assert loose.least_prompt <= max(1, exact.prompt)
    assert exact.prompt <= loose.prompt
    assert exact.encoder <= loose.encoder


@pytest.mark.parametrize(("size", "tokens"), [(Size(1, 1), 3), (Size(1_000_000, 1), 2)])
def test_nemotron_keeps_two_patches_of_a_side_or_none_of_a_long_strip(size, tokens):
    cost = DynamicNemotron("n", 16, 4, 1024, 131_072, 0).tokens(size)
    assert cost.prompt == tokens
    assert cost.model_size.pixels
