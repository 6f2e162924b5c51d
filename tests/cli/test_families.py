import json

import typer
from typer.testing import CliRunner

from gateway.cli.families import families
from gateway.domain.vision.checkpoints import CHECKPOINTS
from gateway.domain.vision.registry import FAMILIES


def run(*arguments):
    app = typer.Typer()
    app.command("families")(families)
    return CliRunner().invoke(app, list(arguments))


def test_every_family_is_listed_with_its_checkpoints_and_keys():
    result = run()
    assert result.exit_code == 0
    assert f"{len(FAMILIES)} families" in result.stdout
    for text in ("│ qwen2_5_vl ", "Qwen2.5-VL (verified)", "max_pixels = 12845056", "Qwen2_5_VLForConditional"):
        assert text in result.stdout
    assert all(f"│ {name} " in result.stdout for name in FAMILIES)
    assert "{" not in result.stdout.splitlines()[-1]


def test_json_comes_last_and_shortens_nothing():
    rows = json.loads(run("--json").stdout.splitlines()[-1])["families"]
    assert [row["family"] for row in rows] == list(FAMILIES)
    assert sum(len(row["checkpoints"]) for row in rows) == len(CHECKPOINTS)
    [mimo] = [row for row in rows if row["family"] == "mimo_vl"]
    assert mimo == {
        "family": "mimo_vl",
        "checkpoints": [
            {"title": "MiMo-VL-7B", "source": "not seen"},
            {"title": "MiMo-V2.5", "source": "verified"},
        ],
        "keys": {"patch_size": 14, "merge_size": 2, "min_pixels": 3136, "max_pixels": 12845056},
        "architectures": ["MiMoV2OmniForCausalLM"],
    }
    [onevision] = [row for row in rows if row["family"] == "llava_onevision"]
    assert len(onevision["keys"]["image_grid_pinpoints"]) == 36
