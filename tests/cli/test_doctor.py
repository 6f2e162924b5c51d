"""`vlm-gateway doctor`: logs from files and standard input, a running server, tables and JSON."""

import http.server
import importlib
import json
import re
import threading
from contextlib import contextmanager

import pytest
from typer.testing import CliRunner

from gateway.cli import app
from gateway.cli.doctor.comparing import Assumed, assume, compare_with_plan
from gateway.domain.doctor.measured import Start
from gateway.emulator.config import EmulatorConfig
from gateway.emulator.serve import running_emulator
from tests.support.processes import free_port
from tests.support.vllm_logs import FOLDER, NAMES, file_of, read

MODEL = "Qwen/Qwen2.5-VL-7B-Instruct"


def run(*options, given=None):
    return CliRunner().invoke(app, ["doctor", *options], input=given)


def found(*options, given=None):
    result = run(*options, "--json", given=given)
    assert result.exit_code in {0, 1}, result.output
    return json.loads(result.stdout.splitlines()[-1]), result


def path_of(name):
    [path] = FOLDER.glob(f"{name}*.log")
    return str(path)


@pytest.mark.parametrize("name", NAMES)
def test_every_log_is_told_as_table_and_as_json(name):
    said, result = found(str(FOLDER / name))
    assert (result.exit_code == 0) == (said["ending"] == "started" and not said["contradictions"])
    assert "Verdict:" in result.stdout
    for finding in said["findings"]:
        assert finding["title"] in result.stdout
        assert all(f"Try: {flag}" in result.stdout for flag in finding["flags"])
    for note in (*said["flags"], *said["contradictions"]):
        assert note["text"] in result.stdout


def test_a_good_start_and_its_plan():
    said, result = found(path_of("v0_32_started"))
    assert (said["ending"], said["stage"], said["vllm_version"], said["model"]) == (
        "started", "serving", "0.32.0", "Qwen/Qwen3-VL-8B-Instruct",
    )  # fmt: skip
    assert said["measured"]["kv_cache_gib"] == {"value": 52.71, "other_rank": 52.71, "line": 20}
    assert said["plan"]["verdict"].startswith("fits")
    [weights] = [row for row in said["compared"] if row["what"] == "weights"]
    assert weights["within"]
    assert "Verdict: it started." in result.stdout
    assert "Measured against planned" in result.stdout


def test_a_failure_says_why_and_what_to_try():
    said, result = found(path_of("v0_8_3_sampler"))
    assert result.exit_code == 1
    [finding] = said["findings"]
    assert (finding["kind"], finding["line"], finding["count"]) == ("out_of_memory_in_sampler_warmup", 30, 4)
    assert "Verdict: failed; it was at: warming up the sampler." in result.stdout
    assert "(line 30, 4 times)" in result.stdout
    assert "9,584" in result.stdout  # the other ranks


def test_a_failure_that_is_not_known_is_quoted():
    said, result = found("-", given=b"ERROR 11-30 10:00:00 [x.py:1] ValueError: the moon is full\n")
    assert (result.exit_code, said["ending"]) == (1, "failed")
    assert "Verdict: failed, cause not known here; it was at:" in result.stdout
    assert "ValueError: the moon is full" in result.stdout


def test_standard_input_is_read():
    said, _ = found("-", given=file_of("v0_6_4"))
    assert said["findings"][0]["flags"] == ["--max-model-len 23648", "--kv-cache-dtype fp8"]
    assert said["plan"]["why_not"] == "engine V0 is not planned."


def test_the_card_and_the_command_are_told_where_the_log_does_not():
    without, _ = found(path_of("v0_9_0"))
    assert "give --gpu" in without["plan"]["why_not"]
    for gpu in ("L4", "22.03"):
        said, _ = found(path_of("v0_9_0"), "--gpu", gpu)
        [pool] = [row for row in said["compared"] if row["what"] == "KV cache"]
        assert pool["within"]


def test_a_command_alone_is_judged_and_planned():
    command = b"vllm serve Qwen/Qwen2.5-VL-32B-Instruct --swap-space 16"
    said, result = found("-", "--gpu", "L4", given=command)
    assert (result.exit_code, said["ending"]) == (1, "a command, not a log")
    assert "does not fit in load_weights" in said["plan"]["verdict"]
    assert "Verdict: a command, not a log; its flags are judged." in result.stdout
    assert found("-", given=b"vllm serve m --max-model-len 4096")[1].exit_code == 0


def test_a_model_under_another_name_is_told():
    log = file_of("v0_9_0").replace(MODEL.encode(), b"/models/ours")
    assert "give --model with its published name or its folder" in found("-", given=log)[0]["plan"]["why_not"]
    for odd in (b"~nobody-here/x", b"x" * 5000, b"a\\0b"):
        assert found("-", given=log.replace(b"/models/ours", odd))[0]["plan"]["why_not"]
    assert found("-", "--model", MODEL, given=log)[0]["compared"]


def test_a_log_that_names_no_model_has_no_plan():
    said, _ = found(
        "-", given="(Worker pid=1) INFO 11-30 10:00:00 [x.py:1] Model loading took 1.0 GiB and 2.0 seconds\n"
    )
    assert said["plan"]["why_not"] == "the model is not named; give --model."


def test_a_plan_that_cannot_be_made_says_why():
    start = read(file_of("v0_32_started")).start
    start.flags["pipeline_parallel_size"] = 2
    assert "pipeline parallel" in compare_with_plan(start, Assumed()).why_not


def test_what_the_log_says_wins_over_the_command():
    start = Start(1, model=MODEL, flags={"max_model_len": 2048})
    assume(start, Assumed(command='["vllm", "serve", "m", "--max-model-len", "4096", "--max-num-seqs", "8"]'))
    assert start.flags == {"model": "m", "max_model_len": 2048, "max_num_seqs": 8}


def test_what_others_hold_is_planned_with():
    said, _ = found(path_of("v0_11_0_card"))
    assert "does not fit in memory_snapshot" in said["plan"]["verdict"]


def test_a_large_card_of_amd_has_a_kernel_and_a_small_one_has_not():
    said, _ = found(path_of("v0_13"))
    assert "does not fit in profile_run" in said["plan"]["verdict"]
    log = file_of("v0_13").replace(b"15.98 GiB", b"191.69 GiB")
    assert "fits" in found("-", given=log)[0]["plan"]["verdict"].split(".")[0]


def test_markup_and_cursor_movements_in_a_log_are_shown_as_they_are():
    result = run("-", given=b"ERROR 11-30 10:00:00 [x.py:1] \x07[red]ddress already in use\n")
    assert "?[red]ddress already in use" in result.stdout


@pytest.mark.parametrize(
    ("options", "given", "words"),
    [
        ((), None, "Give a log"),
        (("x.log", "--upstream", "http://127.0.0.1:1"), None, "Give a log"),
        (("/nowhere/vllm.log",), None, "No such file"),
        (("-", "--gpu", "abacus"), b"vllm serve m", "--gpu abacus: not known by name; give the GiB"),
        *((("-", "--gpu", gib), b"vllm serve m", f"--gpu {gib}: a card") for gib in ("-3", "0", "inf", "nan")),
        (("-",), b"hello\nworld\n", "no line in it is vLLM's, among 2 that were read"),
    ],
)
def test_what_cannot_be_read_ends_with_2(options, given, words):
    result = run(*options, given=given)
    assert result.exit_code == 2
    assert words in result.stderr


def test_a_running_server_tells_its_pool():
    config = EmulatorConfig.fast(model=MODEL, max_model_len=4096)
    with running_emulator(config) as emulator:
        said, result = found(
            "--upstream", emulator.base_url, "--gpu", "L4", "--command", "vllm serve m --max-num-seqs 8"
        )
    assert result.exit_code == 0
    assert said["measured"]["num_gpu_blocks"]["value"] > 0
    assert said["measured"]["max_model_len"]["value"] == 4096
    assert "KV tokens" in {row["what"] for row in said["compared"]}


def test_a_server_that_is_not_there_ends_with_2():
    result = run("--upstream", f"http://127.0.0.1:{free_port()}")
    assert result.exit_code == 2
    assert "Is a vLLM there?" in result.stderr


@contextmanager
def server_that_answers(pages):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = pages.get(self.path)
            self.send_response(404 if body is None else 200)
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def test_the_name_that_is_known_is_taken_alias_or_root():
    for root, alias in ((MODEL, "ours"), ("/models/ours", MODEL)):
        models = json.dumps({"data": [{"id": alias, "root": root, "max_model_len": 4096}]}).encode()
        with server_that_answers({"/metrics": b"", "/v1/models": models, "/version": b"{}"}) as url:
            assert found("--upstream", url)[0]["model"] == MODEL


def test_a_server_without_models_is_told_so():
    with server_that_answers({"/metrics": b"", "/v1/models": b'{"data": []}', "/version": b"{}"}) as url:
        said, _ = found("--upstream", url)
    assert (said["model"], said["plan"]["why_not"]) == (None, "the model is not named; give --model.")


@pytest.mark.parametrize("pages", [{}, {"/metrics": b"", "/v1/models": b"[1]"}])
def test_a_server_that_is_no_vllm_ends_with_2(pages):
    with server_that_answers(pages) as url:
        result = run("--upstream", url)
    assert result.exit_code == 2
    assert "Is a vLLM there?" in result.stderr


def test_a_page_holds_all_that_is_printed_and_needs_nothing_else(tmp_path):
    page = tmp_path / "doctor.html"
    result = run(path_of("v0_23_0"), "--gpu", "A100-80GB", "--html", str(page))
    assert result.exit_code == 1
    text = page.read_text()
    assert "No memory is left for the KV cache" in text
    assert "By the plan, one flag alone would change" in text
    assert not set(re.findall(r"(?:src|href|url)[=(]", text))
    assert '<html lang="en">' in text
    assert "<title>vLLM's start</title>" in text
    assert "white-space: pre-wrap" in text  # or a long sentence makes the page wider than any screen
    assert run(path_of("v0_23_0"), "--html", str(tmp_path / "no" / "where")).exit_code == 2


def test_the_plan_says_what_single_flags_would_change():
    said, result = found(path_of("v0_23_0"), "--gpu", "A100-80GB")
    [video] = [each for each in said["plan"]["reliefs"] if "video" in each["flag"]]
    assert video["pool_gib"] > 10
    assert f"{video['flag']}: KV pool +{video['pool_gib']:.2f} GiB" in result.stdout
    assert "one flag alone" not in run(path_of("v0_9_0"), "--gpu", "L4").stdout
    # With the card's memory known, so is the utilisation that would do.
    assert "Try: --gpu-memory-utilization 0.41" in result.stdout


def test_a_long_log_is_read_in_pieces(tmp_path):
    path = tmp_path / "vllm.log"
    path.write_bytes(b"noise\n" * 40_000 + file_of("v0_9_0"))
    reading = importlib.import_module("gateway.cli.doctor.reading")
    assert reading.read_file(str(path)).start.get("kv_cache_gib") == 1.81
