"""Which source says what a model is, and where each of its numbers came from."""

import pytest

from gateway.domain.vision.base import ProcessorConfigError
from gateway.domain.vision.registry import UnknownFamilyError
from gateway.models.identity import FamilySource, FoundFiles, Name, Said, identify, identify_anyway, published
from gateway.models.processor_config import parse_model

QWEN = {"architectures": ["Qwen2_5_VLForConditionalGeneration"]}
KIMI = {"architectures": ["KimiVLForConditionalGeneration"]}
AREAS = {"patch_size": 14, "merge_size": 2, "min_pixels": 3136, "max_pixels": 802_816}
ALIAS = [Name("gpt-4o")]
LOADED = [Name("Qwen/Qwen3-VL-8B-Instruct", FamilySource.ROOT), *ALIAS]


def files(config=QWEN, processor=AREAS, place=FamilySource.CACHE):
    return FoundFiles(parse_model(config, processor, None), place)


def found_by(identity):
    return identity.family.name, identity.family_source


def numbers_of(identity):
    return {number.key: (number.value, number.source) for number in identity.numbers}


def test_the_operators_word_goes_first_then_files_then_what_is_loaded_then_the_name():
    said = Said(family="qwen2_vl")
    assert found_by(identify(said, LOADED, files(KIMI, None))) == ("qwen2_vl", FamilySource.SETTING)
    assert found_by(identify(Said(), LOADED, files())) == ("qwen2_5_vl", FamilySource.CACHE)
    assert found_by(identify(Said(), LOADED)) == ("qwen3_vl", FamilySource.ROOT)
    assert found_by(identify(Said(), [Name("qwen2-vl")])) == ("qwen2_vl", FamilySource.NAME)
    alike = [Name("qwen3-vl-mine", FamilySource.ROOT), Name("Qwen/Qwen3-VL-8B-Instruct")]
    assert found_by(identify(Said(), alike)) == ("qwen3_vl", FamilySource.NAME)
    assert found_by(identify(Said(), ALIAS)) == ("unknown", FamilySource.ASSUMED)


def test_the_operators_folder_goes_before_files_that_were_found():
    said = Said(folder=files(place=FamilySource.FOLDER))
    assert found_by(identify(said, ALIAS, files(KIMI, None))) == ("qwen2_5_vl", FamilySource.FOLDER)


def test_a_checkpoints_own_limits_beat_the_class_default():
    """The trap: the processor class has 1,280 tokens at most, published checkpoints 16,384, and this one another."""
    own = identify(Said(), [Name("qwen2.5-vl")], files(processor=AREAS | {"max_pixels": 401_408}))
    assert own.family.max_image_tokens == 512
    assert numbers_of(own)["max_pixels"] == (401_408, "Hugging Face cache: preprocessor_config.json")
    without_limits = identify(Said(), [Name("qwen2.5-vl")], files(processor={"patch_size": 14, "merge_size": 2}))
    assert without_limits.family.max_image_tokens == 1_280
    assert numbers_of(without_limits)["size"][1] == "class default"
    published = identify(Said(), [Name("qwen2.5-vl")], files(processor=None))
    assert published.family.max_image_tokens == 16_384
    assert numbers_of(published)["max_pixels"] == (12_845_056, "published Qwen2.5-VL (verified)")


@pytest.mark.parametrize(
    ("place", "source"),
    [
        (FamilySource.FOLDER, "preprocessor_config.json"),
        (FamilySource.SERVER_FOLDER, "server's folder: preprocessor_config.json"),
        (FamilySource.HUB, "hub: preprocessor_config.json"),
    ],
)
def test_a_number_says_where_its_file_was(place, source):
    assert numbers_of(identify(Said(), ALIAS, files(place=place)))["max_pixels"] == (802_816, source)


def test_the_servers_options_go_before_all_files_and_the_setting():
    said = Said(options={"max_pixels": 200_704}, processor=AREAS | {"min_pixels": 6272})
    identity = identify(said, ALIAS, files())
    assert numbers_of(identity)["max_pixels"] == (200_704, "mm-processor-kwargs")
    assert numbers_of(identity)["min_pixels"] == (6272, "setting")
    assert identity.family.max_image_tokens == 256


def test_the_setting_replaces_the_processors_file_but_not_config_json():
    config = QWEN | {"image_size": 1}
    nested = FoundFiles(parse_model(config, AREAS, {"tag": 1}), FamilySource.CACHE)
    identity = identify(Said(processor={"max_pixels": 401_408}), ALIAS, nested)
    assert numbers_of(identity)["max_pixels"] == (401_408, "setting")
    assert numbers_of(identity)["patch_size"][1] == "class default"


def test_files_of_another_family_than_the_operator_says_tell_nothing():
    other = files(KIMI, {"patch_size": 16})
    assert numbers_of(identify(Said(family="qwen2_vl"), ALIAS, other))["patch_size"] == (
        14,
        "published Qwen2-VL, QVQ (verified)",
    )
    own = Said(family="qwen2_vl", folder=FoundFiles(other.files, FamilySource.FOLDER))
    assert numbers_of(identify(own, ALIAS))["patch_size"] == (16, "preprocessor_config.json")


def test_files_of_an_architecture_that_nobody_knows_tell_of_the_cache_alone():
    config = {
        "architectures": ["NeverSeen"],
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "hidden_size": 1024,
        "num_hidden_layers": 4,
    }
    identity = identify(Said(), ALIAS, files(config))
    assert found_by(identity) == ("unknown", FamilySource.ASSUMED)
    assert (len(identity.kv_layout.groups), identity.kv_bytes_per_token, identity.embedding_bytes) == (1, 4096, 2048)
    named = identify(Said(), [Name("qwen2.5-vl")], files(config))
    assert numbers_of(named)["max_pixels"] == (802_816, "Hugging Face cache: preprocessor_config.json")


def test_mistakes_of_the_operator_are_raised():
    with pytest.raises(UnknownFamilyError):
        identify(Said(family="none-such"), ALIAS)
    with pytest.raises(ProcessorConfigError, match="max_pixel is none of what mm_processor_kwargs can change"):
        identify(Said(family="qwen2_vl", options={"max_pixel": 1}), ALIAS)


class TestWhileServing:
    def test_what_cannot_be_used_of_found_files_is_told_and_left_out(self):
        broken = files(processor=AREAS | {"max_pixels": "many"})
        identity, trouble = identify_anyway(Said(), published([Name("qwen2.5-vl")]), broken)
        assert found_by(identity) == ("qwen2_5_vl", FamilySource.NAME)
        assert "max_pixels" in trouble

    def test_so_are_options_of_another_family_than_the_server_turns_out_to_have(self):
        identity, trouble = identify_anyway(Said(options={"num_crops": 4}), published(LOADED), None)
        assert found_by(identity) == ("qwen3_vl", FamilySource.ROOT)
        assert "num_crops is none of what" in trouble

    def test_what_is_right_tells_nothing(self):
        assert identify_anyway(Said(), published(LOADED), files())[1] is None
