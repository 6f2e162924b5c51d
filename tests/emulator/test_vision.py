"""The emulator's own smart-resize against every size that was measured on a real vLLM."""

import json
from pathlib import Path

import pytest

from gateway.emulator.config import EmulatorConfig
from gateway.emulator.vision import FAMILIES, AspectRatioError

CAPTURES = Path(__file__).parents[1] / "data" / "vllm_captures"
MARKERS = 2


def measured(family: str) -> list[dict]:
    return json.loads((CAPTURES / f"image_tokens_{family}.json").read_text())["single"]


@pytest.mark.parametrize("family", FAMILIES)
def test_counts_what_vllm_counted(family: str) -> None:
    rule = FAMILIES[family]
    served = [case for case in measured(family) if isinstance(case["tokenize_count"], int)]
    text_only = next(c["tokenize_count"] - c["image_tokens"] for c in served if "image_tokens" in c)

    assert len(served) == 68
    assert {(c["w"], c["h"]): rule.visual_tokens(c["w"], c["h"]) for c in served} == {
        (c["w"], c["h"]): c["tokenize_count"] - text_only - MARKERS for c in served
    }


@pytest.mark.parametrize("family", FAMILIES)
def test_refuses_the_ratios_vllm_refused(family: str) -> None:
    refused = [case for case in measured(family) if isinstance(case["tokenize_count"], dict)]

    assert len(refused) == 4
    for case in refused:
        with pytest.raises(AspectRatioError):
            FAMILIES[family].visual_tokens(case["w"], case["h"])


def test_a_server_side_max_pixels_lowers_the_counts() -> None:
    capture = json.loads((CAPTURES / "image_tokens_qwen2_5_vl_server_max_pixels_802816.json").read_text())
    rule = EmulatorConfig(max_pixels=802_816).vision

    for size, tokens in capture["image_tokens_incl_start_end"].items():
        width, height = map(int, size.split("x"))
        assert rule.visual_tokens(width, height) + MARKERS == tokens, size
