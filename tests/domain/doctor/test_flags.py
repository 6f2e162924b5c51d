"""Flags that vLLM has not, and flags that do not do what they are given for."""

import pytest

from gateway.domain.doctor.flags import FlagVerdict
from gateway.domain.doctor.misleading import MISLEADING
from gateway.domain.vllm_flags.known_flags import GONE, NEVER
from gateway.domain.vllm_flags.real_flags import REAL_FLAGS
from tests.support.vllm_logs import diagnosed, file_of

INFO = "(APIServer pid=7) INFO 11-30 10:00:00 [x.py:1] "


def notes(command, *, version=None):
    banner = "" if version is None else f"{INFO}vLLM server version {version}, serving model m\n"
    return diagnosed(f"{banner}vllm serve m {command}\n").flag_notes


def only(command, **log):
    [note] = notes(command, **log)
    return note


def test_flags_of_advice_on_the_web_are_all_named():
    verdicts = {note.flag: note.verdict for note in diagnosed(file_of("v0_32_flags")).flag_notes}
    never = ("enable-mm-token-trim", "mm-token-trim-threshold", "vision-encoder-device", "max-mm-tokens",
             "mm-processor-cache-gbs", "quantization-param-bits")  # fmt: skip
    assert verdicts == {
        **{f"--{name}": FlagVerdict.NEVER for name in never},
        **{f"--{name}": FlagVerdict.GONE for name in ("image-input-shape", "swap-space", "max-seq-len-to-capture")},
        "--gpu-memory-utilisation": FlagVerdict.UNKNOWN,
    }


@pytest.mark.parametrize("name", [*NEVER, *GONE])
def test_what_is_said_to_be_gone_is_in_no_list_of_0_32(name):
    assert name not in REAL_FLAGS
    note = notes(f"--{name} 1")[0]
    assert note.verdict in {FlagVerdict.NEVER, FlagVerdict.GONE}


@pytest.mark.parametrize("text", [*NEVER.values(), *(gone.instead or "" for gone in GONE.values())])
def test_what_is_to_be_used_instead_exists(text):
    named = [word.strip("'.,:;").partition(".")[0].removeprefix("--") for word in text.split() if word.startswith("--")]
    assert set(named) <= REAL_FLAGS


@pytest.mark.parametrize("name", MISLEADING)
def test_what_misleads_exists(name):
    assert name.replace("_", "-") in REAL_FLAGS


@pytest.mark.parametrize(
    "flag",
    [
        "--max-model-len 1",
        "--max_model_len 1",
        "--no-enable-chunked-prefill",
        "--max-num-seq 4",
        "--limit-mm-per-prompt.video 0",
    ],
)
def test_real_flags_in_every_spelling_are_left_alone(flag):
    assert notes(flag) == ()


@pytest.mark.parametrize(
    ("written", "meant"),
    [("--max-modle-len", "--max-model-len"), ("--gpu_memory_utlization", "--gpu-memory-utilization")],
)
def test_a_misspelt_flag_is_told_what_was_meant(written, meant):
    assert f"Did you mean {meant}?" in only(f"{written} 1").text


def test_a_flag_that_resembles_none_is_unknown():
    note = only("--zzzz 1")
    assert (note.verdict, "Did you mean" in note.text) == (FlagVerdict.UNKNOWN, False)


def test_a_flag_that_a_version_still_took_is_told_so():
    assert "vLLM 0.9.2 still takes it" in only("--max-seq-len-to-capture 8192", version="0.9.2").text
    assert "still takes it" not in only("--max-seq-len-to-capture 8192", version="0.11.0").text
    assert "still takes it" not in only("--swap-space 4").text


def test_a_flag_that_an_older_version_lists_among_its_arguments_is_gone_since():
    given = INFO + "non-default args: {'enable_something_old': True, 'num_scheduler_steps': 8}\n"
    first, second = diagnosed(f"{INFO}vLLM server version 0.9.2, serving model m\n{given}").flag_notes
    assert (first.verdict, second.verdict) == (FlagVerdict.GONE, FlagVerdict.GONE)
    assert "vLLM 0.9.2 still takes it" in first.text
    assert "vLLM 0.9.2 still takes it" in second.text
    first, second = diagnosed(given).flag_notes
    assert (first.verdict, "still takes it" in second.text) == (FlagVerdict.UNKNOWN, False)


def test_a_real_flag_that_was_refused_is_newer_than_the_log():
    refused = "vllm serve: error: unrecognized arguments: --max-num-queued-reqs 4\n"
    [note] = diagnosed(f"{INFO}vLLM server version 0.11.0, serving model m\n{refused}").flag_notes
    assert "vLLM 0.11.0, which wrote this log, has not" in note.text
    [note] = diagnosed(refused).flag_notes
    assert "the vLLM that wrote this log has not" in note.text


def test_a_list_of_all_arguments_is_not_judged_by_names():
    assert [note.flag for note in diagnosed(file_of("v0_6_4")).flag_notes] == []
    assert [note.flag for note in diagnosed(file_of("v0_8_3_sampler")).flag_notes] == ["--mm-processor-kwargs"]


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("--gpu-memory-utilization 0.98", "2% of the card"),
        ("--limit-mm-per-prompt '{\"image\": 2}'", "sizes no memory"),
        ("--mm-processor-kwargs '{\"max_pixel\": 9}'", "is no key"),
        ("--mm-processor-kwargs '{\"max_pixels\": 1280}'", "1,003,520"),
        ("--mm-processor-cache-gb 0", "host memory"),
        ("--max-num-seqs 1024", "5.7 GiB"),
        ("--mm-encoder-tp-mode data", "whole vision tower"),
        ("--distributed-executor-backend ray", "Ray is not needed"),
        ("--quantization awq", "awq_marlin"),
        ("--max-parallel-loading-workers 2", "ignored"),
        ("--num-gpu-blocks-override 100", "for tests"),
        ("--skip-mm-profiling", "not reserved"),
        ("--enforce-eager", "slower"),
        ("--enable-prefix-caching", "on by default"),
        ("--cpu-offload-gb 8", "8 GiB of weights"),
    ],
)  # fmt: skip
def test_values_that_mislead(flag, words):
    note = only(flag)
    assert note.verdict is FlagVerdict.MISLEADS
    assert words in note.text


@pytest.mark.parametrize(
    "flag",
    [
        "--gpu-memory-utilization 0.92",
        "--gpu-memory-utilization high",
        '--limit-mm-per-prompt \'{"image": 2, "video": 0}\'',
        "--limit-mm-per-prompt '{}'",
        "--limit-mm-per-prompt 5",
        "--mm-processor-kwargs '{\"max_pixels\": 1003520}'",
        "--mm-processor-kwargs text",
        "--mm-processor-cache-gb 4",
        "--max-num-seqs 64",
        "--mm-encoder-tp-mode weights",
        "--distributed-executor-backend mp",
        "--distributed-executor-backend ray --nnodes 2",
        "--quantization fp8",
        "--kv-cache-memory-bytes 1000000000",
        "--enforce-eager=False",
        "--enable-prefix-caching=False",
        "--cpu-offload-gb 0",
    ],
)
def test_values_that_do_not_mislead(flag):
    assert notes(flag) == ()


def test_a_value_that_vllm_refuses_is_no_mere_misleading_one():
    note = only("--limit-mm-per-prompt image=1,video=0")
    assert (note.verdict, '\'{"image": 1, "video": 0}\'' in note.text) == (FlagVerdict.REFUSED, True)
    assert only("--limit-mm-per-prompt image=1", version="0.9.2").verdict is FlagVerdict.MISLEADS


def test_a_pool_set_by_hand_makes_the_utilisation_idle():
    assert only("--kv-cache-memory-bytes 1000000000 --gpu-memory-utilization 0.9").flag == "--kv-cache-memory-bytes"


def test_video_that_was_profiled_is_told():
    profiled = (
        INFO + "Encoder cache will be initialized with a budget of 114688 tokens, and profiled with 1 video items of\n"
    )
    given = INFO + "non-default args: {'limit_mm_per_prompt': {'image': 1}}\n"
    [note] = diagnosed(profiled + given).flag_notes
    assert "the profile run took it" in note.text
