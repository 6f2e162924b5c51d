"""Starts vLLM's CPU build on a model folder and waits until it is healthy.

What is broken in that build is worked round by `workarounds/sitecustomize.py`; nothing installed is edited.
Never send it `seed` in concurrent requests: its engine dies.
"""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.support.processes import free_port

START_SECONDS = 300

TOOLS = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes")

WORKAROUNDS = pathlib.Path(__file__).with_name("workarounds")
ENVIRONMENT = {
    "PYTHONPATH": str(WORKAROUNDS),
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB, the least it takes
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
}


@dataclass(frozen=True, slots=True)
class RunningVllm:
    """A live server: its address, the name and folder of its model, and the file its output goes to."""

    url: str
    model: str
    folder: pathlib.Path
    log: pathlib.Path


@contextlib.contextmanager
def running(
    python: str,
    model_folder: pathlib.Path,
    work: pathlib.Path,
    *,
    images: int = 4,
    videos: int = 0,
    max_model_len: int = 32768,
    sequences: int = 8,
    kv_blocks: int | None = None,
    more: Sequence[str] = TOOLS,
    environment: Mapping[str, str] = {},
) -> Iterator[RunningVllm]:
    """Serve `model_folder` with the interpreter `python`, `more` arguments and `environment`; the log goes into `work`.
    A block is 128 tokens.

    Raises RuntimeError with the end of the log when the server does not become healthy.
    """
    port = free_port()
    arguments = [
        *("serve", str(model_folder), "--served-model-name", "tiny", "--load-format", "dummy"),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--max-model-len", str(max_model_len), "--max-num-seqs", str(sequences)),
        *("--limit-mm-per-prompt", json.dumps({"image": images, "video": videos})),
        *("--enforce-eager", "--skip-mm-profiling", "--enable-prompt-tokens-details"),
        *more,
    ]
    if kv_blocks:
        arguments += ["--num-gpu-blocks-override", str(kv_blocks)]
    arguments += more
    work.mkdir(parents=True, exist_ok=True)
    server = RunningVllm(f"http://127.0.0.1:{port}", "tiny", model_folder, work / "vllm.log")
    with server.log.open("wb") as log:
        process = subprocess.Popen(
            # It stands for a GPU, so it gets one core of its own. Its threads wait by spinning: left to themselves on
            # two cores they keep the gateway and its clients from both, for half a minute at a time (seen).
            ["taskset", "-c", str(max(os.sched_getaffinity(0))), python, "-m", "vllm.entrypoints.cli.main", *arguments],
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env=os.environ | ENVIRONMENT | environment,
        )
    try:
        _wait_until_healthy(server, process)
        yield server
    finally:
        _stop(process)


def _wait_until_healthy(server: RunningVllm, process: subprocess.Popen[bytes]) -> None:
    give_up_at = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < give_up_at:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{server.url}/health", timeout=2):
            return
        time.sleep(0.25)
    end_of_log = server.log.read_text(errors="replace")[-6000:]
    raise RuntimeError(f"vLLM was not healthy within {START_SECONDS} s (exit code {process.poll()}):\n{end_of_log}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
