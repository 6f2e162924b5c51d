"""Which source says what a model is."""

import pytest

from gateway.models.configure import ModelSettingsError, configured_model
from gateway.models.served import FamilySource

TEMPLATE = {"chat_template.jinja": "{% for message in messages %}{{ message['content'] }}{% endfor %}"}


def configured(name="m", *, family=None, folder=None, processor=None):
    return configured_model(name, family=family, folder=str(folder) if folder else None, processor=processor)


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


def test_a_guess():
    assert configured("my-model").is_assumed


def test_the_processors_setting_wins_over_the_folders_file(model_folder):
    folder = model_folder()
    large = {"patch_size": 14, "merge_size": 2, "min_pixels": 3136, "max_pixels": 3136 * 4}
    assert configured(folder=folder).family.max_pixels == 802_816
    assert configured(folder=folder, processor=large).family.max_pixels == 3136 * 4


def test_a_folder_without_tokenizer_is_priced_by_a_ratio_and_says_so(model_folder, caplog):
    assert configured(folder=model_folder(**{"tokenizer.json": None})).exact_text is None
    assert "its text is estimated, not counted" in caplog.text


@pytest.mark.parametrize(
    "settings",
    [{"family": "none-such"}, {"folder": "/does/not/exist"}, {"family": "qwen2_vl", "processor": {"patch_size": "x"}}],
)
def test_mistakes_name_the_model(settings):
    with pytest.raises(ModelSettingsError, match="model 'm'"):
        configured(**settings)
