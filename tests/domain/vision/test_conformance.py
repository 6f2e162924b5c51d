"""Every case of every oracle file: 28,137 sizes that the models' own processors were asked about."""

import pytest

from gateway.domain.geometry import Size
from gateway.domain.vision.base import UnservableImageError
from gateway.domain.vision.registry import FAMILIES, family_for
from tests.support.oracles import ORACLES

TABLES = sorted(path.stem for path in ORACLES.glob("*.json") if path.stem != "qwen_inverse")

WITHOUT_A_TABLE = {"qwen3_vl_moe", "qwen3_5", "qwen3_5_moe", "glm4v"}
"""The first three are priced as qwen3_vl; of the last one no configuration was seen."""


def test_every_family_but_these_has_a_table():
    assert set(TABLES) == set(FAMILIES) - WITHOUT_A_TABLE
    assert len(TABLES) == 48


def test_no_case_is_missing(oracle):
    assert sum(len(oracle(name)["cases"]) for name in TABLES) == 28_137


@pytest.mark.parametrize("name", TABLES)
def test_every_size_costs_what_the_models_processor_says(oracle, name):
    table = oracle(name)
    models = [family_for(name, config) for config in table["configs"]]
    wrong = [(case, said) for case in table["cases"] if (said := difference(models[case.get("c", 0)], case))]
    assert wrong == []


def difference(model, case):
    """What is said otherwise; None where nothing is."""
    try:
        cost = model.tokens(Size(case["w"], case["h"]))
    except UnservableImageError as refused:
        return None if "error" in case else str(refused)
    said = {
        "tokens": cost.placeholder,
        "encoder_tokens": cost.encoder,
        "resized_w": cost.model_size.width,
        "resized_h": cost.model_size.height,
    }
    # Where a side vanishes nothing is left to send.
    compared = said.keys() & case.keys() - ({"resized_w", "resized_h"} if case.get("resized_w", 1) == 0 else set())
    compared -= {"resized_w", "resized_h"} if case.get("resized_h", 1) == 0 else set()
    if "error" in case or any(said[key] != case[key] for key in compared):
        return said
    assert cost.placeholder <= model.max_image_tokens
    assert 1 <= cost.least_prompt <= cost.prompt
    assert 0 <= cost.least_encoder <= cost.encoder
    assert cost.markers <= model.markers
    return None


REFERENCE = {
    "qwen2_vl": (144, 1369, 2691, 15301, 16170),
    "qwen3_vl": (100, 1024, 2040, 11750, 16170),
    "internvl": (258, 2562, 2306, 3330, 3330),
    "llava_next": (1176, 2928, 1948, 2340, 2340),
    "llava_onevision": (1485, 7371, 7269, 7309, 7309),
    "pixtral_hf": (462, 4160, 2340, 3120, 3120),
    "llama4": (147, 2467, 2322, 1887, 1887),
    "phi4_multimodal": (545, 2625, 3918, 3393, 3393),
    "minicpmv": (69, 466, 598, 665, 665),
    "glm4_1v": (144, 1369, 2691, 6030, 6030),
    "deepseek_vl2": (421, 2017, 1807, 2017, 2017),
    "deepseek_ocr": (273, 693, 483, 893, 893),
    "kimi_vl": (144, 1089, 1032, 1036, 1036),
    "gemma3": (260, 260, 260, 260, 260),
    "gemma4": (258, 258, 266, 268, 268),
}


@pytest.mark.parametrize(("name", "tokens"), REFERENCE.items())
def test_what_checkpoints_ship_prices_well_known_sizes(name, tokens):
    sizes = [Size(336, 336), Size(1024, 1024), Size(1920, 1080), Size(4000, 3000), Size(8000, 6000)]
    assert tuple(family_for(name, None).tokens(size).placeholder for size in sizes) == tokens


def test_the_tables_are_small():
    """They are copied with every checkout."""
    assert sum(file.stat().st_size for file in ORACLES.glob("*.json")) < 700_000
