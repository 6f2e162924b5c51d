"""Where specs come from, the surest first."""

import json

import pytest

from gateway.domain.memory.defaults import NotPlannableError
from gateway.models.processor_config import ModelFilesError
from gateway.models.spec_sources import find_spec, hub_cache, hub_itself, own_folder
from tests.domain.memory.test_config_spec import QWEN25
from tests.models.test_weight_files import write

PROCESSOR = {"patch_size": 14, "merge_size": 2, "min_pixels": 3136, "max_pixels": 1_003_520}


def model_folder(path, config=QWEN25, *, processor=None, weights=False):
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(config))
    if processor:
        (path / "preprocessor_config.json").write_text(json.dumps(processor))
    if weights:
        write(path / "model.safetensors", a=("I32", [1000]))
    return path


def test_a_folder_is_read_with_its_processor_and_its_weights(tmp_path):
    folder = model_folder(tmp_path / "m", QWEN25 | {"quantization_config": {"quant_method": "awq"}},
                          processor=PROCESSOR, weights=True)  # fmt: skip
    found = find_spec(str(folder), (own_folder,))
    assert (found.source, found.file_bytes, found.quantization) == (f"config.json in {folder}", 4000, "awq")
    assert [source.name for source in found.processor] == ["preprocessor_config.json", "config.json"]


def test_without_a_processors_file_the_published_numbers_stand(tmp_path):
    found = find_spec(str(model_folder(tmp_path / "m")), (own_folder,))
    assert (found.processor, found.file_bytes, found.family) == ((), None, "qwen2_5_vl")


def test_a_place_is_asked_before_the_table(tmp_path):
    folder = model_folder(tmp_path / "m")
    assert find_spec("Qwen/Qwen2.5-VL-3B-Instruct", (lambda _: folder,)).source == f"config.json in {folder}"
    assert find_spec("Qwen/Qwen2.5-VL-3B-Instruct", (lambda _: None,)).source.startswith("built-in table")


def test_a_model_of_the_table_keeps_the_name_that_it_was_asked_by():
    assert find_spec("Qwen/Qwen2.5-VL-3B-Instruct", ()).name == "Qwen/Qwen2.5-VL-3B-Instruct"


def test_what_nobody_knows_names_what_is_known():
    with pytest.raises(NotPlannableError, match=r"x/y is neither a folder .* \d+ are built in, none of a similar"):
        find_spec("x/y", (own_folder,))
    with pytest.raises(NotPlannableError, match=r"Built in are Qwen2\.5-VL-7B-Instruct, "):
        find_spec("Qwen/Qwen2.5-VL-7B-Instrct", (own_folder,))


def test_a_folder_that_cannot_be_read_says_which_file(tmp_path):
    folder = model_folder(tmp_path / "m")
    (folder / "config.json").write_text("{")
    with pytest.raises(ModelFilesError, match=r"config.json: is not JSON"):
        find_spec(str(folder), (own_folder,))


def test_the_hubs_cache_has_what_was_last_fetched(tmp_path):
    repository = tmp_path / "hub" / "models--Qwen--Qwen2.5-VL-3B-Instruct"
    old, new = (model_folder(repository / "snapshots" / revision) for revision in ("b", "a"))
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("a")
    find = hub_cache({"HF_HOME": str(tmp_path)})
    assert find("Qwen/Qwen2.5-VL-3B-Instruct") == new
    assert find("Qwen/another") is None
    assert find("no id at all") is None
    assert hub_cache({"HF_HUB_CACHE": str(tmp_path / "hub")})("Qwen/Qwen2.5-VL-3B-Instruct") == new
    assert hub_cache({"HF_HUB_CACHE": str(tmp_path / "nowhere")})("Qwen/Qwen2.5-VL-3B-Instruct") is None
    assert old != new


def test_the_hub_itself_is_asked_for_what_is_an_id(tmp_path):
    asked = []

    def download(repository):
        asked.append(repository.id)
        return model_folder(tmp_path / "fetched")

    found = find_spec("some/model", (own_folder, hub_itself(download)))
    assert (found.name, asked) == ("some/model", ["some/model"])
    with pytest.raises(NotPlannableError, match="--hub fetches the files"):
        find_spec("a model", (own_folder, hub_itself(download)))


@pytest.mark.parametrize("name", ["a" * 5000, "~nobody-of-that-name/x", "a\0b"])
def test_what_no_folder_can_be_called_is_no_folder(name):
    assert own_folder(name) is None
