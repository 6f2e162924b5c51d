import pytest

from gateway.domain.geometry import Size
from gateway.domain.vision.base import ProcessorConfigError
from gateway.domain.vision.registry import (
    FAMILIES,
    UnknownFamilyError,
    family_for,
    family_of_architecture,
    family_of_model_name,
)


@pytest.mark.parametrize(
    ("family", "tokens"),
    [
        ("qwen2_vl", 2691),
        ("qwen2_5_vl", 2691),
        ("qwen3_vl", 2040),
        ("qwen3_vl_moe", 2040),
        ("qwen3_5", 2040),
        ("qwen3_5_moe", 2040),
    ],
)
def test_each_family_prices_by_what_its_checkpoints_ship(family, tokens):
    model = family_for(family, None)
    assert model.name == family
    assert model.tokens(Size(1920, 1080)).placeholder == tokens


def test_a_checkpoints_own_configuration_wins_over_the_shipped_one():
    assert family_for("qwen2_vl", {"max_pixels": 802816}).max_image_tokens == 1024


def test_the_newer_file_nests_the_image_processor():
    nested = {"processor_class": "Qwen3VLProcessor", "image_processor": {"patch_size": 16, "max_pixels": 1024 * 2000}}
    assert family_for("qwen3_vl", nested).max_image_tokens == 2000


def test_a_nested_image_processor_that_is_no_object_is_named():
    with pytest.raises(ProcessorConfigError, match="image_processor must be an object, not 'x'"):
        family_for("qwen3_vl", {"image_processor": "x"})


def test_an_unknown_family_is_told_which_there_are():
    with pytest.raises(UnknownFamilyError, match=r"'bogus'; known are qwen2_vl, qwen2_5_vl, qwen3_vl"):
        family_for("bogus", None)


@pytest.mark.parametrize(
    ("architecture", "family"),
    [
        ("Qwen2VLForConditionalGeneration", "qwen2_vl"),
        ("Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl"),
        ("Qwen3VLForConditionalGeneration", "qwen3_vl"),
        ("Qwen3VLMoeForConditionalGeneration", "qwen3_vl_moe"),
        ("Qwen3_5ForConditionalGeneration", "qwen3_5"),
        ("Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe"),
        ("Qwen2_5OmniModel", None),
        ("LlavaForConditionalGeneration", None),
    ],
)
def test_family_by_architecture(architecture, family):
    assert family_of_architecture(architecture) == family


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("Qwen/Qwen2-VL-7B-Instruct", "qwen2_vl"),
        ("Qwen/QVQ-72B-Preview", "qwen2_vl"),
        ("Qwen/Qwen2.5-VL-7B-Instruct", "qwen2_5_vl"),
        ("remodlai/qwen-2.5-vl-7b-instruct-lexiq", "qwen2_5_vl"),
        ("qwen2_5_vl", "qwen2_5_vl"),
        ("Qwen/Qwen3-VL-8B-Instruct", "qwen3_vl"),
        ("/models/Qwen3-VL-30B-A3B-Instruct-FP8", "qwen3_vl_moe"),
        ("Qwen/Qwen3.5-0.8B", "qwen3_5"),
        ("Qwen/Qwen3.5-35B-A3B", "qwen3_5_moe"),
        ("Qwen/Qwen3-VL-Reranker-2B", None),
        ("Qwen/Qwen3-VL-Embedding-2B", None),
        ("Qwen/Qwen2.5-Omni-7B", None),
        ("Qwen/Qwen3-8B", None),
        ("qwen2-vl-and-qwen2.5-vl", None),
        ("tiny", None),
    ],
)
def test_family_by_served_name_is_a_careful_guess(model, family):
    assert family_of_model_name(model) == family


def test_every_row_serves_an_architecture_and_prices_an_image():
    for name, row in FAMILIES.items():
        assert family_of_architecture(row.architectures[0]) == name
        assert row.build(name, row.shipped_config).tokens(Size(64, 64)).placeholder > 0
