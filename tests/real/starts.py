"""Starts of a real vLLM (CPU build) that `doctor` must understand, most of which fail, and their output.

    VLLM_PYTHON=.venv-vllm/bin/python .venv/bin/python -m tests.real.starts

writes tests/data/vllm_logs/real_v0_32_*.log anew.
"""

import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from typing import NamedTuple

from tests.real.tiny_model import write
from tests.real.vllm_server import ENVIRONMENT
from tests.support.processes import free_port

DATA = pathlib.Path(__file__).resolve().parent.parent / "data" / "vllm_logs"
MOST_SECONDS = 240
READY = b"Application startup complete"


class RealStart(NamedTuple):
    """`arguments` after those that all have; `kind` is the failure that doctor must name, None: it starts."""

    arguments: tuple[str, ...]
    kind: str | None = None


STARTS: Mapping[str, RealStart] = {
    "started": RealStart(("--limit-mm-per-prompt", '{"image": 4, "video": 0}', "--max-num-seqs", "8")),
    "limit_mm_syntax": RealStart(("--limit-mm-per-prompt", "image=4,video=0"), "limit_mm_per_prompt_syntax"),
    "unknown_flags": RealStart(("--enable-mm-token-trim", "--swap-space", "16"), "unrecognised_arguments"),
    "bad_argument": RealStart(("--dtype", "int4"), "argument_cannot_be_read"),
    "context_above_model": RealStart(("--max-model-len", "999999"), "context_above_the_models_own"),
    "context_larger_than_pool": RealStart(("--kv-cache-memory-bytes", "2000000"), "context_larger_than_kv_pool"),
    "heads_not_divisible": RealStart(("--tensor-parallel-size", "3"), "heads_not_divisible_by_tp"),
    "chunked_mm_input": RealStart(
        ("--disable-chunked-mm-input", "--max-num-batched-tokens", "512"), "item_larger_than_batched_tokens"
    ),
    "memory_not_free": RealStart(("--gpu-memory-utilization", "0.999"), "cpu_memory_below_utilisation"),
}


def output_of(python: str, start: RealStart, work: pathlib.Path) -> bytes:
    """What vLLM prints until it ends by itself, or is ready and is ended. The model's folder reads `/models/tiny`."""
    folder = work / "tiny"
    folder.mkdir(parents=True, exist_ok=True)
    write(folder)
    log = work / "vllm.log"
    # By the command that users have: errors of its parser begin with its name.
    command = [python, str(pathlib.Path(python).with_name("vllm")), "serve", str(folder), "--load-format", "dummy"]
    command += [
        "--host",
        "127.0.0.1",
        "--port",
        str(free_port()),
        "--enforce-eager",
        "--skip-mm-profiling",
        *start.arguments,
    ]
    environment = {name: value for name, value in os.environ.items() if name != "VLLM_PYTHON"} | ENVIRONMENT
    if "--gpu-memory-utilization" in start.arguments or "--kv-cache-memory-bytes" in start.arguments:
        environment.pop("VLLM_CPU_KVCACHE_SPACE")  # it would be taken instead
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env=environment,
        )
    _wait(process, log)
    return _without_machine(log.read_text(errors="replace"), folder, python).encode()


def _without_machine(text: str, folder: pathlib.Path, python: str) -> str:
    """Without names and paths of the machine that it ran on."""
    venv = pathlib.Path(python).parent.parent
    for name in (str(venv), str(venv.absolute()), str(venv.resolve())):
        text = text.replace(name, "/venv")
    text = text.replace(str(folder), "/models/tiny").replace(socket.gethostname(), "host")
    text = re.sub(r'"/(?!venv/)[^"]*/lib/python3', '"/usr/lib/python3', text)
    return re.sub(r"mq_connect_ip=\S+", "mq_connect_ip=10.0.0.1", text)


def _wait(process: subprocess.Popen[bytes], log: pathlib.Path) -> None:
    give_up_at = time.monotonic() + MOST_SECONDS
    while process.poll() is None and time.monotonic() < give_up_at and READY not in log.read_bytes():
        time.sleep(0.25)
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def main() -> None:
    for name, start in STARTS.items():
        with tempfile.TemporaryDirectory() as work:
            output = output_of(os.environ["VLLM_PYTHON"], start, pathlib.Path(work))
        (DATA / f"real_v0_32_{name}.log").write_bytes(output)
        print(name, len(output))


if __name__ == "__main__":
    main()
