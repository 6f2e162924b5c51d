import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from gateway.cli.tokens import tokens
from gateway.domain.vision.registry import FAMILIES

ORACLES = Path(__file__).parents[1] / "data" / "oracles"


def run(*arguments):
    app = typer.Typer()
    app.command("tokens")(tokens)
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "120"})


def last_line(result):
    return json.loads(result.stdout.splitlines()[-1])


def test_sizes_are_priced_in_a_table():
    result = run("--family", "qwen2_5_vl", "1920x1080", "1X1")
    assert result.exit_code == 0
    assert "at most 16384 tokens an image" in result.stdout
    [first, second] = [line for line in result.stdout.splitlines() if line.startswith("│")]
    assert [cell.strip() for cell in first.strip("│").split("│")] == ["1920x1080", "1932x1092", "2691", "2693"]
    assert [cell.strip() for cell in second.strip("│").split("│")] == ["1x1", "56x56", "4", "6"]


def test_json_comes_last():
    image = {"size": "64x64", "model_size": "256x256", "placeholder_tokens": 64, "prompt_tokens": 66}
    assert last_line(run("--family", "qwen3_vl", "64x64", "--json")) == {"family": "qwen3_vl", "images": [image]}


def test_a_configuration_as_json_or_as_a_file(tmp_path):
    text = '{"patch_size": 14, "max_pixels": 802816}'
    file = tmp_path / "preprocessor_config.json"
    file.write_text(text)
    for config in (text, file):
        result = run("--family", "qwen2_5_vl", "--config", config, "1024x1024", "--json")
        assert last_line(result)["images"][0]["placeholder_tokens"] == 1024


def test_a_size_that_the_model_refuses_says_why_and_exits_1():
    result = run("--family", "qwen2_vl", "500x1", "28x28", "--json")
    assert result.exit_code == 1
    refused, priced = last_line(result)["images"]
    assert refused == {
        "size": "500x1",
        "error": "the image is 500x1: its aspect ratio is 500, the model takes at most 200",
    }
    assert priced["placeholder_tokens"] == 4


def rows_of(result):
    lines = [line for line in result.stdout.splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]


def test_what_counts_against_the_encoder_is_shown_where_it_differs():
    [row] = rows_of(run("--family", "llama4", "1920x1080"))
    assert row == ["1920x1080", "1680x945", "2322", "2322", "2304"]


def test_what_is_sure_to_come_is_shown_where_size_alone_does_not_decide():
    result = run("--family", "deepseek_vl2", "1920x1080", "100x100", "--json")
    assert rows_of(result) == [["1920x1080", "1365x768", "1807", "1807", "421"], ["100x100", "384x384"] + ["421"] * 3]
    large, small = last_line(result)["images"]
    assert (large["prompt_tokens"], large["least_prompt_tokens"]) == (1807, 421)
    assert "least_prompt_tokens" not in small


def test_all_families_stand_in_one_table_for_each_size():
    result = run("--all", "1920x1080", "3000x10", "--json")
    assert result.exit_code == 0
    assert "1920x1080, with what checkpoints ship" in result.stdout
    rows = rows_of(result)
    assert [row[0] for row in rows if row[0]] == [*FAMILIES, *FAMILIES]  # a long reason goes on below
    assert ["qwen2_5_vl", "1932x1092", "2691", "2693", "2693", "2691"] in rows
    assert ["mllama", "1120x630", "1", "1", "1", "6404"] in rows
    wide, strip = last_line(result)["images"]
    assert [row["family"] for row in wide["families"]] == list(FAMILIES)
    assert (strip["size"], strip["families"][0]["error"][:24]) == ("3000x10", "the image is 3000x10: it")


def test_all_families_refuse_what_they_refuse_and_that_is_no_mistake():
    result = run("--all", "1x9000")
    assert result.exit_code == 0
    assert "aspect ratio is 9000" in " ".join(result.stdout.split())


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "give --family and sizes such as 1920x1080, or --oracle FILE"),
        (["--family", "qwen2_vl"], "give --family and sizes"),
        (["1920x1080"], "give --family and sizes"),
        (["--family", "bogus", "1x1"], "unknown model family 'bogus'; known are qwen2_vl, "),
        (["--family", "qwen2_vl", "1920"], "'1920' is no size; write WIDTHxHEIGHT, such as 1920x1080"),
        (["--family", "qwen2_vl", "-", "1x-2"], "'-' is no size"),
        (["--family", "qwen2_vl", "--config", "{", "1x1"], "--config is not JSON"),
        (["--family", "qwen2_vl", "--config", "/nowhere.json", "1x1"], "/nowhere.json"),
        (["--family", "qwen2_vl", "--config", '{"max_pixels": "big"}', "1x1"], "max_pixels must be a whole number"),
        (["--oracle", "x.json", "--family", "qwen2_vl"], "--oracle stands alone"),
        (["--oracle", "x.json", "--all"], "--oracle stands alone"),
        (["--all"], "give sizes such as 1920x1080"),
        (["--all", "--family", "qwen2_vl", "1x1"], "--all takes no --family"),
    ],
)
def test_mistakes_exit_2_and_say_what_to_write(arguments, text):
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert text in result.stderr


@pytest.mark.parametrize(
    "oracle", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen_inverse", "gemma4", "mllama", "pixtral_hf", "kimi_vl"]
)
def test_every_case_of_an_oracle_file_is_exact(oracle):
    file = ORACLES / f"{oracle}.json"
    table = json.loads(file.read_text())
    cases = sum(map(len, table["cases"])) if "columns" in table else len(table["cases"])
    result = run("--oracle", file, "--json")
    assert result.exit_code == 0
    assert f"{oracle}: {cases} of {cases} cases exact" in result.stdout
    assert last_line(result) == {"cases": cases, "exact": cases, "mismatches": []}


def replay(tmp_path, **oracle):
    file = tmp_path / "oracle.json"
    file.write_text(json.dumps(oracle))
    return run("--oracle", file, "--json")


def test_a_mismatch_is_printed_and_exits_1(tmp_path):
    cases = [
        {"w": 56, "h": 56, "tokens": 4},
        {"w": 56, "h": 56, "tokens": 5, "c": 1},
        {"w": 56, "h": 56, "tokens": 4, "resized_w": 28, "resized_h": 28},
        {"w": 56, "h": 56, "error": "ValueError"},
        {"w": 500, "h": 1, "tokens": 9},
    ]
    result = replay(tmp_path, family="qwen2_vl", configs=[{}, {"max_pixels": 5000}], cases=cases)
    assert result.exit_code == 1
    assert result.stdout.count("mismatch: ") == 4
    assert last_line(result) == {
        "cases": 5,
        "exact": 1,
        "mismatches": [
            {"w": 56, "h": 56, "c": 1, "expected": "5 tokens", "got": "4 tokens"},
            {"w": 56, "h": 56, "expected": "4 tokens at 28x28", "got": "4 tokens at 56x56"},
            {"w": 56, "h": 56, "expected": "error", "got": "4 tokens"},
            {"w": 500, "h": 1, "expected": "9 tokens", "got": "error"},
        ],
    }


def test_a_file_may_have_one_configuration_and_its_cases_as_lists(tmp_path):
    cases = [{"w": 56, "h": 56, "tokens": 4}]
    assert last_line(replay(tmp_path, family="qwen2_vl", config={}, cases=cases))["exact"] == 1
    lists = [[[56, 56, 4], [500, 1, None]], [[56, 56, 5]]]
    result = replay(
        tmp_path, family="qwen2_vl", configs=[{}, {"max_pixels": 5000}], columns=["w", "h", "tokens"], cases=lists
    )
    assert last_line(result) == {
        "cases": 3,
        "exact": 2,
        "mismatches": [{"w": 56, "h": 56, "c": 1, "expected": "5 tokens", "got": "4 tokens"}],
    }


def test_embeddings_are_compared_where_the_file_has_them(tmp_path):
    cases = [{"w": 9, "h": 9, "tokens": 260, "soft_tokens": 255}, {"w": 9, "h": 9, "tokens": 260, "soft_tokens": 256}]
    [mismatch] = last_line(replay(tmp_path, family="gemma3", config={}, cases=cases))["mismatches"]
    assert (mismatch["expected"], mismatch["got"]) == (
        "260 tokens, 255 for the encoder",
        "260 tokens, 256 for the encoder",
    )


def test_a_mismatch_of_a_target_is_printed(tmp_path):
    config = {"factor": 28, "min_pixels": 3136, "max_pixels": 12845056}
    case = {"w": 1024, "h": 1024, "T": 729, "cost": 1369}
    target = {"w": 728, "h": 756, "tokens": 702, "fixed": True, "ok": True}
    result = replay(tmp_path, family="qwen_inverse", configs=[config], cases=[case | {"aligned": target}])
    [mismatch] = last_line(result)["mismatches"]
    assert mismatch["T"] == 729
    assert mismatch["expected"] == "1369 tokens, then 702 tokens at 728x756"
    assert mismatch["got"] == "1369 tokens, then 729 tokens at 756x756"


@pytest.mark.parametrize(
    ("oracle", "text"),
    [
        ({"family": "bogus", "configs": [{}], "cases": []}, "unknown model family 'bogus'; known are qwen2_vl, "),
        ({"family": "qwen2_vl", "cases": []}, "the oracle file lacks configs"),
        (
            {"family": "qwen2_vl", "configs": [{}], "cases": [{"w": 5}]},
            "a case that cannot be read: KeyError('tokens')",
        ),
        ({"family": "qwen2_vl", "configs": [{"size": 5}], "cases": []}, "size must hold shortest_edge"),
    ],
)
def test_an_oracle_file_that_cannot_be_replayed_exits_2(tmp_path, oracle, text):
    result = replay(tmp_path, **oracle)
    assert (result.exit_code, result.stdout) == (2, "")
    assert text in result.stderr


def test_an_oracle_file_holds_an_object(tmp_path):
    file = tmp_path / "list.json"
    file.write_text("[]")
    assert "holds list where an object is needed" in run("--oracle", file).stderr


def test_without_json_the_sum_comes_last():
    assert run("--oracle", ORACLES / "qwen2_vl.json").stdout == "qwen2_vl: 762 of 762 cases exact\n"
