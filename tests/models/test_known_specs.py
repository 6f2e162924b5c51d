import pytest

from gateway.domain.memory.spec_table import same_name
from gateway.domain.vision.registry import FAMILIES
from gateway.models.known_specs import known_spec, known_specs


@pytest.mark.parametrize(
    ("asked", "known"),
    [
        ("Qwen/Qwen2.5-VL-3B-Instruct", "Qwen2.5-VL-3B-Instruct"),
        ("qwen2_5-vl-3b-instruct", "Qwen2.5-VL-3B-Instruct"),
        ("/models/gemma-3-4b-it/", "gemma-3-4b-it"),
    ],
)
def test_a_model_is_found_by_the_last_part_of_its_id(asked, known):
    assert same_name(asked, known)
    assert known_spec(asked) == known_specs()[known]


def test_what_is_not_in_the_table():
    assert known_spec("Qwen/Qwen2.5-VL-3B") is None


def test_every_row_says_where_it_comes_from_and_names_a_known_family():
    for name, spec in known_specs().items():
        assert spec.name == name
        assert spec.source.startswith("built-in table (")
        assert spec.family is None or spec.family in FAMILIES
        assert (spec.vision is None) >= (spec.family is not None) or spec.vision is not None


def test_towers_and_experts_and_windows_are_read():
    assert known_specs()["Qwen3-VL-30B-A3B-Instruct"].text.moe.experts == 128
    assert known_specs()["gemma-3-4b-it"].text.sliding.local_layers == 29
    assert known_specs()["gemma-3-4b-it"].text.full_layers == 5
    assert known_specs()["Qwen3-VL-8B-Instruct"].vision.deepstack_levels == 3
    assert known_specs()["Qwen3-8B"].vision is None
