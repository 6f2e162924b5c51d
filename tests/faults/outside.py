"""The gateway as a process of its own, for faults of the process: its limits, its output, its signals, its clock."""

import asyncio
import contextlib
import os
import resource
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import httpx
import yaml

from tests.faults.record import Snapshot, open_files
from tests.support.live_gateway import MODEL
from tests.support.processes import STOP_SECONDS, free_port, metrics, resident_bytes, wait_until_ready

Output = int | IO[bytes]
_HELD = ("gateway_held", "gateway_queue_depth", "gateway_upstream_requests_in_flight")


@dataclass(frozen=True, slots=True)
class Outside:
    """A running process; `work` has its log, where that was not put elsewhere."""

    process: "subprocess.Popen[bytes]"
    host: str
    port: int
    work: Path

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def metrics(self) -> dict[str, float]:
        return metrics(self.url)

    async def held(self) -> dict[str, float]:
        """What it holds or lets wait, without zeros."""
        told = await asyncio.to_thread(self.metrics)
        return {name: value for name, value in told.items() if name.startswith(_HELD) and value}

    async def look(self) -> Snapshot:
        """What the process has just now, as it says itself and as the system says."""
        told = await asyncio.to_thread(self.metrics)
        held = {name: value for name, value in told.items() if name.startswith(_HELD) and value}
        return held | {
            "fds": open_files(self.process.pid),
            "tasks": told["gateway_event_loop_tasks"],
        }

    def resident_bytes(self) -> int:
        return resident_bytes(self.process.pid)

    def outcomes(self) -> dict[str, float]:
        """How many requests ended in which way."""
        found: dict[str, float] = {}
        for name, value in self.metrics().items():
            if name.startswith("gateway_requests_total") and value:
                outcome = name.rpartition('outcome="')[2].partition('"')[0]
                found[outcome] = found.get(outcome, 0) + value
        return found


def settings_of(**sections: Any) -> dict[str, Any]:
    """Like those of tests/support/live_gateway.py, for a file."""
    return {"models": [{"name": MODEL, "family": "qwen2_5_vl"}], "calibration": "off"} | sections


def limited(kind: int, value: int) -> Any:
    """For `preexec_fn`: the process and what it starts may have so much of it."""
    return lambda: resource.setrlimit(kind, (value, value))


@contextlib.asynccontextmanager
async def outside(
    address: str,
    work: Path,
    *,
    port: int | None = None,
    before: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    limit: Any = None,
    stdout: Output | None = None,
    stderr: Output | None = None,
    **sections: Any,
) -> AsyncIterator[Outside]:
    """`python -m gateway serve` with these settings, `before` it a command that starts it; ready in the block."""
    work.mkdir(parents=True, exist_ok=True)
    (work / "gateway.yaml").write_text(yaml.safe_dump(settings_of(**sections)))
    port = port or free_port()
    command = [*before, sys.executable, "-m", "gateway", "serve", "--upstream", address, "--port", str(port)]
    with (work / "gateway.log").open("ab") as log:
        process = subprocess.Popen(  # noqa: ASYNC220  started before anything else goes on
            [*command, "--config", str(work / "gateway.yaml")],
            stdout=log if stdout is None else stdout,
            stderr=log if stderr is None else stderr,
            env=os.environ | dict(environment or {}),
            preexec_fn=limit,  # noqa: PLW1509  this process has no threads that hold a lock it needs
        )
    gateway = Outside(process, "127.0.0.1", port, work)
    try:
        await asyncio.to_thread(wait_until_ready, f"{gateway.url}/readyz", process, work / "gateway.log")
        async with httpx.AsyncClient(base_url=gateway.url, trust_env=False) as client:
            await client.get("/v1/models")
        yield gateway
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.send_signal(signal.SIGINT)
        try:
            await asyncio.to_thread(process.wait, STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
