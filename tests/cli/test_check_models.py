"""`vlm-gateway check`: of each model what its images cost depends on, number by number, each with its source."""

import importlib
import json
import re

import pytest
from typer.testing import CliRunner

from gateway.cli import app
from gateway.cli.check.numbers import folded
from gateway.upstream.state import UpstreamModel, UpstreamState
from tests.support.hub_server import hub_server

COMMAND = importlib.import_module("gateway.cli.check")  # as an attribute of gateway.cli it is the function
CONFIG = {"architectures": ["Qwen2_5_VLForConditionalGeneration"]}
AREAS = {"patch_size": 14, "merge_size": 2, "min_pixels": 3136, "max_pixels": 802_816}


@pytest.fixture
def lists(monkeypatch):
    """`lists(*models)`: what the one upstream shows."""

    def show(*models):
        async def discover(_url, **_):
            return UpstreamState(is_up=True, models=models)

        monkeypatch.setattr(COMMAND, "discover", discover)

    return show


def found(*options, **environment):
    result = CliRunner().invoke(app, ["check", *options, "--json"], env=environment)
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout.splitlines()[-1])
    return said["upstreams"][0]["models"], said["unknown"], result.stdout


def sources(model):
    return {number["key"]: (number["value"], number["source"]) for number in model["numbers"]}


def test_each_number_has_its_source(lists, tmp_path):
    base = tmp_path / "models--org--model-VL"
    (base / "snapshots" / "abc").mkdir(parents=True)
    (base / "snapshots" / "abc" / "config.json").write_text(json.dumps(CONFIG))
    (base / "snapshots" / "abc" / "preprocessor_config.json").write_text(json.dumps(AREAS))
    lists(
        UpstreamModel("Qwen/Qwen2.5-VL-7B-Instruct", 4096),
        UpstreamModel("vision", 4096, "org/model-VL"),
        UpstreamModel("mirrored", 4096, "Qwen/Qwen2.5-VL-7B-Instruct"),
    )
    options = "models=[{name: mirrored, mm_processor_kwargs: {max_pixels: 200704}}]"
    models, _, printed = found("--set", options, HF_HUB_CACHE=str(tmp_path))
    by_name = {model["name"]: model for model in models}
    assert {name: model["family_source"] for name, model in by_name.items()} == {
        "mirrored": "root",
        "Qwen/Qwen2.5-VL-7B-Instruct": "name",
        "vision": "cache",
    }
    published = "published Qwen2.5-VL (verified)"
    assert sources(by_name["Qwen/Qwen2.5-VL-7B-Instruct"])["max_pixels"] == (12_845_056, published)
    assert sources(by_name["vision"])["max_pixels"] == (802_816, "Hugging Face cache: preprocessor_config.json")
    assert sources(by_name["mirrored"])["max_pixels"] == (200_704, "mm-processor-kwargs")
    assert sources(by_name["mirrored"])["min_pixels"] == (3136, published)
    assert {model["price"] for model in models} == {"exact"}
    assert "What images cost as qwen2_5_vl: vision" in printed
    assert re.search(r"max_pixels +802816 +Hugging Face cache: preprocessor_config.json", printed)


def test_names_that_are_priced_alike_share_a_table_and_long_lists_are_folded(lists):
    name = "llava-hf/llava-onevision-qwen2-7b-ov-hf"
    lists(UpstreamModel(name, 4096), UpstreamModel("alias", 4096, name), UpstreamModel("adapter", 4096, "/l", name))
    models, _, printed = found()
    assert len({json.dumps(model["numbers"]) for model in models}) == 1
    assert len(sources(models[0])["image_grid_pinpoints"][0]) == 36, "JSON has them all"
    assert printed.count("What images cost as llava_onevision") == 1
    assert f"What images cost as llava_onevision: {name}, alias, adapter" in printed
    assert "[[384, 384], [384, 768], [384, 1152], … 36 in all]" in printed


def test_an_unknown_family_is_said_with_what_that_means_and_what_to_do(lists):
    lists(UpstreamModel("mine", 4096))
    (model,), unknown, printed = found()
    assert (model["family"], model["family_source"], model["price"], model["numbers"]) == (
        "unknown",
        "assumed",
        "bounds",
        [],
    )
    (sentence,) = [each for each in unknown if each.startswith("mine: nothing says")]
    assert "its images are priced by bounds" in sentence
    assert "Set models: [{name: mine, family: ...}], or its folder." in sentence
    assert re.search(r"mine +4,096 +unknown +assumed .* bounds", printed)


@pytest.mark.parametrize("family", ["deepseek_vl2", "h2ovl", "minicpmv"])
def test_a_family_of_which_size_alone_does_not_decide_is_said(lists, family):
    lists(UpstreamModel("mine", 4096))
    (model,), unknown, _ = found("--set", f"models=[{{name: mine, family: {family}}}]")
    assert model["price"] == "bounds"
    assert any(f"mine: more than its size decides what an image costs of {family}" in each for each in unknown)


def test_a_size_that_a_family_refuses_says_nothing_of_its_price(lists):
    lists()
    options = "models=[{name: mine, family: pixtral_hf, processor: {size: {longest_edge: 1}}}]"
    (model,), _, _ = found("--set", options)
    assert model["price"] == "exact"


def test_the_hub_is_asked_where_the_settings_say_so_and_what_it_refuses_is_said(lists):
    lists(UpstreamModel("a", 4096, "org/model-VL"), UpstreamModel("b", 4096, "org/gone"))
    with hub_server({"org/model-VL": {"config.json": CONFIG, "preprocessor_config.json": AREAS}}) as hub:
        models, unknown, _ = found("--set", "hub.download=true", HF_ENDPOINT=hub.url)
        assert [model["family_source"] for model in models] == ["hub", "assumed"]
        assert sources(models[0])["max_pixels"] == (802_816, "hub: preprocessor_config.json")
        assert models[0]["kv_groups_source"] == "family"
        assert any(each.startswith("b: its own files: hub: org/gone: is not there") for each in unknown)


def test_files_that_were_found_tell_of_the_kv_groups_too(lists, tmp_path):
    text = {"num_attention_heads": 8, "num_key_value_heads": 2, "hidden_size": 1024, "num_hidden_layers": 4}
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | text))
    lists(UpstreamModel("mine", 4096, str(tmp_path)))
    (model,), _, _ = found()
    assert (model["family_source"], model["kv_groups"], model["kv_groups_source"]) == ("server_folder", 1, "files")
    (model,), _, _ = found("--set", f"models=[{{name: mine, folder: {tmp_path}}}]")
    assert (model["family_source"], model["kv_groups"], model["kv_groups_source"]) == ("folder", 1, "folder")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (12, "12"),
        ("4/8", '"4/8"'),
        ([1, 2, 3, 4], "[1, 2, 3, 4]"),
        ((1, 2, 3, 4, 5), "[1, 2, 3, … 5 in all]"),
        ({"shortest_edge": 3136}, '{"shortest_edge": 3136}'),
        ("x" * 80, f'"{"x" * 58}…'),
    ],
)
def test_values_are_shown_as_json_and_not_too_long(value, shown):
    assert folded(value) == shown


def test_a_mirrored_option_that_vllm_would_not_know_is_a_mistake():
    options = "models=[{name: mine, family: qwen2_vl, mm_processor_kwargs: {max_pixel: 1}}]"
    result = CliRunner().invoke(app, ["check", "--set", options])
    assert result.exit_code == 2
    assert "model 'mine': image processor configuration: max_pixel is none of what mm_processor_kwargs" in result.stderr
