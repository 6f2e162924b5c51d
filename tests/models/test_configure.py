"""Which source says what a model is."""

import pytest

from gateway.models.configure import ModelSettingsError, configured_model
from gateway.models.served import FamilySource

TEMPLATE = {"chat_template.jinja": "{% for message in messages %}{{ message['content'] }}{% endfor %}"}


def configured(name="m", *, family=None, folder=None, processor=None, options=None):
    folder = str(folder) if folder else None
    return configured_model(name, family=family, folder=folder, processor=processor, options=options)


def test_the_setting_wins_over_folder_and_name(model_folder):
    model = configured("Qwen/Qwen3-VL-8B", family="qwen2_vl", folder=model_folder())
    assert (model.family.name, model.family_source) == ("qwen2_vl", FamilySource.SETTING)


def test_the_folder_wins_over_the_name(model_folder):
    model = configured("Qwen/Qwen3-VL-8B", folder=model_folder(**TEMPLATE))
    assert (model.family.name, model.family_source) == ("qwen2_5_vl", FamilySource.FOLDER)
    assert model.exact_text is not None


def test_the_name_alone():
    model = configured("Qwen/Qwen3-VL-8B-Instruct")
    assert (model.family.name, model.family_source, model.is_assumed) == ("qwen3_vl", FamilySource.NAME, False)
    assert model.exact_text is None


def test_where_nothing_says_it_the_family_is_unknown():
    model = configured("my-model")
    assert (model.family.name, model.is_assumed) == ("unknown", True)


def test_the_processors_setting_wins_over_the_folders_file(model_folder):
    folder = model_folder()
    large = {"patch_size": 14, "merge_size": 2, "min_pixels": 3136, "max_pixels": 3136 * 4}
    assert configured(folder=folder).family.max_pixels == 802_816
    assert configured(folder=folder, processor=large).family.max_pixels == 3136 * 4


def test_the_servers_options_go_before_both(model_folder):
    model = configured(
        folder=model_folder(), processor={"patch_size": 14, "max_pixels": 3136}, options={"max_pixels": 6272}
    )
    assert model.family.max_pixels == 6272


def numbers_of(model):
    return {number.key: (number.value, number.source) for number in model.numbers}


def test_each_number_says_where_it_came_from(model_folder):
    folder = model_folder()
    assert numbers_of(configured(folder=folder))["max_pixels"] == (802_816, "preprocessor_config.json")
    changed = {"patch_size": 14, "max_pixels": 3136 * 4}
    assert numbers_of(configured(folder=folder, processor=changed))["max_pixels"] == (3136 * 4, "setting")
    named = configured("moonshotai/Kimi-VL-A3B-Thinking-2506")
    assert numbers_of(named)["in_token_limit"] == (16384, "published Kimi-VL 2506 (verified)")


def test_a_folder_of_a_tile_family_is_read_from_config_json(model_folder):
    config = {
        "architectures": ["InternVLChatModel"],
        "llm_config": {"hidden_size": 896},
        "force_image_size": 448,
        "dynamic_image_size": True,
        "use_thumbnail": True,
        "max_dynamic_patch": 6,
    }
    folder = model_folder(**{"config.json": config, "preprocessor_config.json": {"crop_size": 448, "size": 448}})
    model = configured(folder=folder)
    assert (model.family.name, model.family.max_image_tokens) == ("internvl", 7 * 256 + 2)
    assert (model.kv_layout, model.kv_bytes_per_token, model.embedding_bytes) == (None, None, None)


def test_a_folder_without_a_processors_file_goes_by_the_checkpoint_of_that_name(model_folder):
    config = {"architectures": ["KimiVLForConditionalGeneration"]}
    folder = model_folder(**{"config.json": config, "preprocessor_config.json": None})
    assert configured("kimi-vl-a3b-thinking-2506", folder=folder).family.most_patches == 16384
    assert configured("my-own", folder=folder).family.most_patches == 4096


@pytest.mark.parametrize("missing", ["tokenizer.json", "tokenizer_config.json"])
def test_a_folder_without_tokenizer_is_priced_by_a_ratio_and_says_so(model_folder, caplog, missing):
    assert configured(folder=model_folder(**{missing: None})).exact_text is None
    assert "its text is estimated, not counted" in caplog.text


@pytest.mark.parametrize(
    "settings",
    [
        {"family": "none-such"},
        {"folder": "/does/not/exist"},
        {"family": "qwen2_vl", "processor": {"patch_size": "x"}},
        {"family": "qwen2_vl", "options": {"max_pixel": 1}},
    ],
)
def test_mistakes_name_the_model(settings):
    with pytest.raises(ModelSettingsError, match="model 'm'"):
        configured(**settings)


class TestVideos:
    """What bounds their cost, and which file says so."""

    def areas(self, model):
        return {number.key: (number.value, number.source) for number in model.video.numbers}

    def test_the_file_for_images_stands_for_them_where_there_is_no_other(self, model_folder):
        model = configured(folder=model_folder())
        assert self.areas(model)["max_pixels"] == (802_816, "preprocessor_config.json")
        assert model.video.most_encoder_tokens(2) == 1024

    def test_a_file_of_their_own_wins(self, model_folder):
        folder = model_folder(**{"video_preprocessor_config.json": {"size": {"longest_edge": 50_176}}})
        assert self.areas(configured(folder=folder)) == {
            "min_pixels": (3136, "preprocessor_config.json"),
            "max_pixels": (50_176, "video_preprocessor_config.json"),
        }

    def test_so_does_what_newer_files_nest(self, model_folder):
        nested = {"image_processor": {"patch_size": 14}, "video_processor": {"max_pixels": 50_176}}
        folder = model_folder(**{"processor_config.json": nested})
        assert self.areas(configured(folder=folder))["max_pixels"] == (50_176, "processor_config.json")

    def test_a_setting_for_images_leaves_the_file_for_videos_alone(self, model_folder):
        folder = model_folder(**{"video_preprocessor_config.json": {"max_pixels": 50_176}})
        small = {"patch_size": 14, "max_pixels": 3136 * 4}
        assert self.areas(configured(folder=folder, processor=small))["max_pixels"][0] == 50_176
        assert self.areas(configured(family="qwen2_vl", processor=small))["max_pixels"] == (
            12_845_056,
            "published checkpoints",
        )

    def test_by_name_as_published(self):
        named = configured("Qwen/Qwen3-VL-8B-Instruct")
        assert self.areas(named)["max_pixels"] == (25_165_824, "published checkpoints")
        assert configured("OpenGVLab/InternVL3-8B").video is None
        assert configured("my-model").video is None, "a guess bounds nothing"
