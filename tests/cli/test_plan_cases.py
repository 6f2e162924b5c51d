"""`vlm-gateway plan --cases`: observed starts beside plans of them."""

import json
from copy import deepcopy

import pytest
from typer.testing import CliRunner

from gateway.cli import app
from gateway.cli.plan.cases import CaseError, read_case, version_of
from gateway.cli.plan.scores import score, summary
from gateway.domain.memory.plan import Version
from tests.support.memory import CASES_FILE, raw_cases


def run(file, *words):
    return CliRunner().invoke(app, ["plan", "--cases", str(file), *words])


def replayed(tmp_path, *cases):
    file = tmp_path / "cases.json"
    file.write_text(json.dumps({"cases": cases}))
    return json.loads(run(file, "--json").stdout)


def case(case_id, **changes):
    found = deepcopy(next(each for each in raw_cases() if each["id"] == case_id))
    for part in ("flags", "observed"):
        found[part] |= changes.pop(part, {})
    return found | changes


def test_the_summary_has_the_shape_that_it_promises():
    said = json.loads(run(CASES_FILE, "--json").stdout)
    summary_ = said["summary"]
    assert list(summary_) == ["weights_gib", "kv_gib", "kv_tokens_given_kv_gib", "verdict", "skipped"]
    for name, unit in (("weights_gib", "%"), ("kv_gib", "GiB"), ("kv_tokens_given_kv_gib", "%")):
        assert list(summary_[name]) == ["n", "median", "p95", "worst", "unit"]
        assert summary_[name]["unit"] == unit
        assert summary_[name]["median"] <= summary_[name]["p95"] <= summary_[name]["worst"]
    assert list(summary_["verdict"]) == ["n", "right", "too_close"]
    assert summary_["skipped"]["engine V0"] == 16
    assert len(said["cases"]) == 52
    assert sum(summary_["skipped"].values()) == sum("skipped" in each for each in said["cases"])


def test_the_tables_show_both_halves():
    result = run(CASES_FILE)
    assert result.exit_code == 0
    for text in ("fitted on", "measured on", "kv_tokens_given_kv_gib", "Verdicts by what was observed", "engine V0"):
        assert text in result.stdout


def test_a_case_that_started(tmp_path):
    [one] = replayed(tmp_path, case("q25vl7b-l4-v09"))["cases"]
    assert one["weights_gib"] == {"observed": 15.6271, "planned": 15.6231, "error": pytest.approx(-0.0256, abs=0.001)}
    assert one["kv_gib"]["error"] == pytest.approx(0, abs=0.02)
    assert one["kv_tokens_given_kv_gib"]["observed"] == 33_824
    assert one["verdict"] == {"observed": "started", "planned": "fits", "right": True, "too_close": False}


def test_a_case_that_failed_counts_as_right_in_the_same_phase_only(tmp_path):
    failed = case("q25vl7b-a100-util022")
    elsewhere = case("q25vl7b-a100-util022", observed={"oom_phase": "load_weights"})
    untold = case("q25vl7b-a100-util022", observed={"oom_phase": "not stated"})
    right = [each["verdict"]["right"] for each in replayed(tmp_path, failed, elsewhere, untold)["cases"]]
    assert right == [True, False, True]


def test_after_the_pool_which_asks_first_is_chance(tmp_path):
    [one] = replayed(tmp_path, case("q25vl72b-a100x4-v1"))["cases"]
    verdict = one["verdict"]
    assert (verdict["observed"], verdict["planned"]) == ("sampler_warmup", "does not fit in cuda_graph_capture")
    assert verdict["right"]


def test_what_other_processes_hold_is_read_from_the_notes(tmp_path):
    assert read_case(case("e5mistral-bnb-h100")).gpu.foreign_gib == 7.29
    [one] = replayed(tmp_path, case("e5mistral-bnb-h100"))["cases"]
    assert one["verdict"]["too_close"]
    assert read_case(case("e5mistral-bnb-h100")).spec.is_pooling


@pytest.mark.parametrize(
    ("notes", "foreign_gib"),
    [
        ("other processes take about 2.5 GiB", 2.5),
        ("3 GiB are held by another process", 3.0),
        ("with 1.25 GiB foreign", 1.25),
        ("another process was there", 0.0),
        ("other processes take about 1.2.3 GiB", 0.0),
        (None, 0.0),
    ],
)
def test_how_notes_tell_of_others(notes, foreign_gib):
    assert read_case(case("q25vl7b-l4-v09", notes=notes)).gpu.foreign_gib == foreign_gib


def test_the_halves_are_told_by_the_id_alone():
    assert read_case(case("q25vl7b-l4-v09")).is_fitted_on
    assert not read_case(case("q3vl8b-b200")).is_fitted_on


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"engine": "V0"}, "engine V0"),
        ({"spec_ref": None}, "model unknown"),
        ({"spec_ref": "a-model-of-tomorrow"}, "model unknown"),
        ({"gpu": "not stated", "gpu_mem_gib": None}, "the card's memory is not stated"),
        ({"gpu": "Ascend 910B"}, "neither a CUDA nor a ROCm card"),
        ({"vllm_version": "0.7.0"}, "vLLM 0.7.0 is not planned: V1 is its engine from 0.8.0 on"),
        ({"model": "Qwen2.5-VL-7B NVFP4"}, "quantised, and the size of its files is not in the case"),
        ({"model": "Qwen2.5-VL-7B (runtime fp8)"}, "quantised, and the size of its files is not in the case"),
        ({"flags": {"max_num_seqs": "many"}}, "unreadable: max_num_seqs is no number: 'many'"),
        ({"flags": {"max_num_seqs": float("inf")}}, "unreadable: max_num_seqs is no number: 'inf'"),
        ({"flags": {"max_num_seqs": -5}}, "unreadable: max_num_seqs must be above 0: -5"),
        ({"flags": {"max_model_len": 0}}, "unreadable: max_model_len must be above 0: 0"),
        ({"flags": {"max_model_len": 0.5}}, "unreadable: max_model_len is no whole number: 0.5"),
        ({"flags": {"max_num_batched_tokens": 10**400}}, "unreadable: max_num_batched_tokens is no number: '1000"),
        ({"flags": {"gpu_memory_utilization": -3}}, "unreadable: gpu_memory_utilization must be above 0: -3"),
        ({"flags": {"gpu_memory_utilization": 90}}, "unreadable: gpu_memory_utilization must be at most 1: 90"),
        ({"tp": -1}, "unreadable: tp must be above 0: -1"),
        ({"gpu_mem_gib": -22}, "unreadable: gpu_mem_gib must be above 0: -22"),
        ({"gpu_mem_gib": float("inf")}, "unreadable: gpu_mem_gib is no number: 'inf'"),
        ({"observed": {"block_size": 0}}, "unreadable: block_size must be above 0: 0"),
        ({"observed": {"kv_cache_gib": float("nan")}}, "unreadable: kv_cache_gib is no number: 'nan'"),
        ({"flags": {"tensor_parallel_size": 3}, "tp": 3}, "--tensor-parallel-size 3 does not divide"),
        ({"flags": {"mm_processor_kwargs": {"max_pixels": 0}}}, "unreadable: image processor configuration"),
    ],
)  # fmt: skip
def test_what_is_missing_is_counted_with_the_reason(tmp_path, changes, reason):
    said = replayed(tmp_path, case("q25vl7b-l4-v09", **changes))
    assert said["summary"]["verdict"]["n"] == said["summary"]["kv_gib"]["n"] == 0
    [(told, count)] = said["summary"]["skipped"].items()
    assert told.startswith(reason)
    assert count == 1


def test_without_an_outcome_there_is_nothing_to_compare(tmp_path):
    bare = case("q25vl7b-l4-v09")
    bare["observed"] = {}
    assert replayed(tmp_path, bare)["summary"]["skipped"] == {"no outcome shown": 1}


@pytest.mark.parametrize(
    "odd", [3, None, {}, {"id": "x", "flags": 3}, {"id": "x", "observed": {"weights_gib": True}}, []]
)
def test_odd_entries_stop_nothing(tmp_path, odd):
    said = replayed(tmp_path, odd, case("q25vl7b-l4-v09"))
    assert said["summary"]["kv_gib"]["n"] == 1
    assert sum(said["summary"]["skipped"].values()) == 1


@pytest.mark.parametrize("content", ["", "3", '{"cases": 3}'])
def test_a_file_without_cases_exits_2(tmp_path, content):
    (tmp_path / "cases.json").write_text(content)
    assert run(tmp_path / "cases.json").exit_code == 2


def test_an_empty_file_has_no_numbers(tmp_path):
    assert replayed(tmp_path)["summary"]["kv_gib"] == {
        "n": 0,
        "median": None,
        "p95": None,
        "worst": None,
        "unit": "GiB",
    }
    (tmp_path / "cases.json").write_text("[]")
    assert "-" in run(tmp_path / "cases.json").stdout


def test_a_pool_is_taken_from_blocks_or_tokens_where_no_gib_were_printed():
    by_tokens = score(case("q3vl8b-b200")).components["kv_gib"].observed
    assert by_tokens == pytest.approx(1_032_592 * 147_456 / 2**30)
    by_blocks = score(case("q3vl8b-b200", observed={"num_gpu_blocks": 1000})).components["kv_gib"].observed
    assert by_blocks == pytest.approx(1000 * 16 * 147_456 / 2**30)
    grouped = case("gemma3-4b-mi300x", observed={"kv_cache_gib": None})
    assert "kv_gib" not in score(grouped).components


def test_a_share_that_is_not_shown_is_assumed_for_the_verdict_and_not_for_the_pool():
    shown, hidden = case("q25vl7b-l4-v09"), case("q25vl7b-l4-v09")
    del hidden["flags"]["gpu_memory_utilization"]
    assert "kv_gib" in score(shown).components
    assert "kv_gib" not in score(hidden).components
    assert score(hidden).verdict.is_right


def test_a_pool_below_nothing_holds_no_tokens():
    assert (
        "kv_tokens_given_kv_gib" not in score(case("q25vl7b-a100-util022", observed={"kv_cache_tokens": 1})).components
    )


def test_limits_told_in_words_are_none():
    assert read_case(case("q25vl7b-a100-util022")).flags.limit_mm_per_prompt == {}
    mixed = case("q25vl7b-a100-util022", flags={"limit_mm_per_prompt": {"image": "many", "video": 0, "audio": -1}})
    assert read_case(mixed).flags.limit_mm_per_prompt == {"video": 0}


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("0.9.1.dev287", (0, 9, 1)), ("0.8.x", (0, 8, 0)), ("0.12 (vllm-ascend)", (0, 12, 0)), ("0.1x", (0, 19, 0)),
        ("0.2x", (0, 23, 0)), ("nightly 2025-09", (0, 19, 0)), ("", (0, 19, 0)), ("0.9.2+", (0, 9, 2)),
    ],
)  # fmt: skip
def test_versions_as_cases_write_them(text, version):
    assert version_of(text) == Version(*version)


def test_an_entry_without_a_name_is_unreadable():
    with pytest.raises(CaseError, match="no object with an id"):
        read_case({"flags": {}})
    assert summary([score({"id": None})])["skipped"] == {"unreadable: no object with an id": 1}
