"""The demo's two processes: an emulated vLLM and the gateway before it, on free ports of this machine.

They run in sessions of their own, so that Ctrl-C reaches only the demo, which then ends them in order: the engine
first, so that no stream holds up the gateway. Where the system offers it, they also die with a demo that was killed.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from gateway.cli.demo import model
from gateway.settings_sources import ENVIRONMENT_PREFIX

CONTEXT_TOKENS = 16_384
BLOCK_TOKENS = 16
QUEUE_PLACES = 24
QUEUE_SECONDS = 5.0

_START_SECONDS = 60.0
_STOP_SECONDS = 5.0
_LOOK_SECONDS = 0.05
_LOG_TAIL = 3_000


class ServerFailedError(Exception):
    """A process did not start or ended by itself; the text holds the end of its log."""


@dataclass(frozen=True, slots=True)
class Server:
    """One of the two processes."""

    name: str
    url: str
    process: "subprocess.Popen[bytes]"
    log: Path

    def failure(self) -> ServerFailedError:
        tail = self.log.read_text(errors="replace")[-_LOG_TAIL:].strip()
        return ServerFailedError(f"the {self.name} did not run (exit code {self.process.poll()}). Its log:\n{tail}")

    def stop(self) -> None:
        """SIGTERM, and SIGKILL for what is still there after a while."""
        self.process.terminate()
        try:
            self.process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@dataclass(frozen=True, slots=True)
class Servers:
    """Both, ready to serve."""

    engine: Server
    gateway: Server

    def check(self) -> None:
        """Raises ServerFailedError if one has ended."""
        for server in (self.engine, self.gateway):
            if server.process.poll() is not None:
                raise server.failure()


@contextlib.contextmanager
def running_servers() -> Iterator[Servers]:
    """The block runs once both are ready; nothing is left of them afterwards. Raises ServerFailedError."""
    engine_port, gateway_port = free_ports(2)
    with tempfile.TemporaryDirectory(prefix="vlm-gateway-demo-") as folder, contextlib.ExitStack() as stack:
        work = Path(folder)
        model.write(work)
        gateway = _launch("gateway", gateway_port, gateway_command(engine_port, gateway_port, work), work)
        stack.callback(gateway.stop)
        engine = _launch("emulator", engine_port, emulator_command(engine_port), work)
        stack.callback(engine.stop)
        for server, path in ((engine, "/health"), (gateway, "/readyz")):
            _wait_until_ready(server, path)
        yield Servers(engine, gateway)


def emulator_command(port: int) -> list[str]:
    """A small GPU: KV blocks for one long conversation, or half a dozen short ones."""
    blocks = CONTEXT_TOKENS // BLOCK_TOKENS + 1
    return [
        *("emulate", "--port", str(port), "--model", model.NAME, "--family", "qwen2_5_vl"),
        *("--max-model-len", str(CONTEXT_TOKENS), "--num-gpu-blocks", str(blocks), "--block-size", str(BLOCK_TOKENS)),
        *("--enable-prompt-tokens-details", "--step-cost", "0.5"),
    ]


def gateway_command(engine_port: int, port: int, model_folder: Path) -> list[str]:
    """The gateway with the settings that the demo is about; all else is as it comes."""
    return [
        *("serve", "--upstream", f"http://127.0.0.1:{engine_port}", "--host", "127.0.0.1", "--port", str(port)),
        *("--set", f"models=[{{name: {model.NAME}, folder: {model_folder}}}]"),
        *("--set", "resize.preset=detail"),
        *("--set", f"queue.requests={QUEUE_PLACES}", "--set", f"queue.wait_seconds={QUEUE_SECONDS}"),
        *(
            "--set",
            "server.drain_grace_seconds=0",
            "--set",
            "server.drain_seconds=1",
            "--set",
            "upstream.poll_seconds=0.25",
        ),
    ]


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nobody uses now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in sockets:
            listener.bind(("127.0.0.1", 0))
        return [listener.getsockname()[1] for listener in sockets]


def _launch(name: str, port: int, arguments: Sequence[str], folder: Path) -> Server:
    log = folder / f"{name}.log"
    # Settings of the user's own gateway must not change what the demo shows.
    environment = {key: value for key, value in os.environ.items() if not key.startswith(ENVIRONMENT_PREFIX)}
    command = [*_dies_with_parent(), sys.executable, "-m", "gateway", *arguments]
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - our own command line
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    return Server(name, f"http://127.0.0.1:{port}", process, log)


def _dies_with_parent() -> list[str]:
    setpriv = shutil.which("setpriv")  # util-linux: there on every Debian, not on macOS
    return [setpriv, "--pdeathsig", "TERM", "--"] if setpriv else []


def _wait_until_ready(server: Server, path: str) -> None:
    give_up_at = time.monotonic() + _START_SECONDS
    with httpx.Client(trust_env=False) as client:
        while server.process.poll() is None and time.monotonic() < give_up_at:
            with contextlib.suppress(httpx.TransportError):
                if client.get(server.url + path).is_success:
                    return
            time.sleep(_LOOK_SECONDS)
    raise server.failure()
