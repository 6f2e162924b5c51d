"""A page of the documentation played from top to bottom, as a reader would: each block is run, parsed or compared.

Commands run in one folder with the files that the pages speak of; servers that a page starts are there for the rest of
it, on ports of their own instead of 8000 and 8080. A block of text or JSON behind a command is what it prints: all that
is shown must come, in that order, where `…` stands for anything.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import typer
import yaml

from gateway.cli import app
from gateway.domain.memory.serve_line import PLANNED
from gateway.emulator.config import EmulatorConfig
from gateway.emulator.serve import running_emulator
from gateway.settings_sources import load
from scripts.reference.metrics_page import every_metric
from tests.support.live_gateway import chat, image
from tests.support.markdown import ROOT, Block, Page
from tests.support.pictures import data_url, encoded, picture
from tests.support.processes import free_port, running_gateway
from tests.support.vllm_logs import file_of

MODEL = "Qwen/Qwen2.5-VL-7B-Instruct"
MOST_SECONDS = 60
_LEAVE_SECONDS = 5
STARTS = "vlm-gateway serve --upstream"
PROGRAMS = ("vlm-gateway", "curl")
_COMMANDS: Mapping[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]


_INTERPRETER = """
import contextlib, io, json, sys, traceback
names = {"__name__": "__main__"}
for line in sys.stdin:
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        try:
            exec(json.loads(line), names)
        except Exception:
            traceback.print_exc(file=output)
            print(json.dumps([False, output.getvalue()]), file=sys.__stdout__, flush=True)
            continue
    print(json.dumps([True, output.getvalue()]), flush=True)
"""
"""Takes blocks, a line of JSON each, and says whether each is done and what it printed."""


class Reader:
    """One reader of one page, in `folder`."""

    def __init__(self, page: Page, folder: Path) -> None:
        self._page = page
        self._folder = folder
        self._ports = {"8000": str(free_port()), "8080": str(free_port())}
        self._groups: list[int] = []
        self._python: subprocess.Popen[str] | None = None
        self._output: str | None = None
        self.played: list[str] = []
        """What was done with each block, in a word."""

    def play(self) -> None:
        """Raises AssertionError that names the block."""
        for name, content in _files().items():
            (self._folder / name).write_bytes(content)
        with self._servers():
            try:
                for block in self._page.blocks:
                    self.played.append(self._play(block))
            finally:
                self._end()

    def _play(self, block: Block) -> str:
        where = f"{self._page.name}:{block.line}"
        if block.why_not_run is not None:
            assert len(block.why_not_run.split()) > 2, f"{where}: say why it is not run"
            self._output = None
            return "named"
        handler = HANDLERS.get(block.language)
        assert handler is not None, f"{where}: nobody looks at blocks of {block.language!r}"
        try:
            return handler(self, block)
        except Exception as error:
            raise AssertionError(f"{where}: {error}") from error

    def run_commands(self, block: Block) -> str:
        for line in _command_lines(block.text):
            program = line.split()[0]
            assert program in PROGRAMS, f"{program} is not run here; write `{block.language} not run: REASON`"
        self._output = self._run(["bash", "-euo", "pipefail", "-c", self._at_own_ports(block.text)], block)
        return "run"

    def run_python(self, block: Block) -> str:
        """In the one interpreter of the page."""
        if self._python is None:
            self._python = subprocess.Popen(
                [sys.executable, "-c", _INTERPRETER], cwd=self._folder, env=self._environment, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
            self._groups.append(self._python.pid)
        assert self._python.stdin is not None
        assert self._python.stdout is not None
        print(json.dumps(self._at_own_ports(block.text)), file=self._python.stdin, flush=True)
        is_done, self._output = json.loads(self._python.stdout.readline())
        assert is_done, self._output
        return "run"

    def load_settings(self, block: Block) -> str:
        self._keep_file(block)
        self._output = None
        for document in yaml.safe_load_all(block.text):
            if "apiVersion" in document or "services" in document or "groups" in document:
                return "parsed"  # manifests, compose files and rules have tests of their own
        load(file_text=block.text, file_name=self._page.name)
        return "parsed"

    def compare_json(self, block: Block) -> str:
        """With the last line that was printed, as far as it is shown."""
        shown, output, self._output = json.loads(block.text), self._output, None
        self._keep_file(block)
        if output is None:
            return "parsed"
        got = json.loads(output.strip().splitlines()[-1])
        assert _less(got, shown) == shown, f"it is {json.dumps(_less(got, shown), indent=1)}"
        return "compared"

    def compare_text(self, block: Block) -> str:
        output, self._output = self._output, None
        assert output is not None, "there is nothing before it that prints"
        assert _comes(block.text, output), f"it prints\n{output}"
        return "compared"

    def look_at_query(self, block: Block) -> str:
        names = {re.sub("_(bucket|sum|count)$", "", name) for name in re.findall(r"\bgateway_\w+", block.text)}
        assert names, "it asks for no metric of the gateway"
        declared = {metric.full_name for metric in every_metric()}
        assert names <= declared, f"there is no {', '.join(sorted(names - declared))}"
        return "parsed"

    def look_at_diagram(self, block: Block) -> str:
        assert block.text.split()[0] in {"flowchart", "sequenceDiagram", "stateDiagram-v2"}
        return "parsed"

    def _at_own_ports(self, text: str) -> str:
        for public, own in self._ports.items():
            text = text.replace(f"127.0.0.1:{public}", f"127.0.0.1:{own}").replace(f"--port {public}", f"--port {own}")
        return text

    def _run(self, command: list[str], block: Block) -> str:
        """What it prints. Whatever it leaves running ends with the page."""
        expected = int(block.option("exit") or 0)
        log = self._folder / f"output-{block.line}"  # servers that a block started go on writing to its own
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, cwd=self._folder, env=self._environment, stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            self._groups.append(process.pid)
            code = process.wait(MOST_SECONDS)
        text = log.read_text()
        assert code == expected, f"ended with {code}:\n{text}"
        return text

    @property
    def _environment(self) -> dict[str, str]:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        own = {"PATH": path, "PYTHONPATH": str(ROOT), "GATEWAY_SERVER__PORT": self._ports["8080"]}
        return {**os.environ, **own, "GATEWAY_SERVER__HOST": "127.0.0.1"}

    def _keep_file(self, block: Block) -> None:
        name = block.option("file")
        if name is not None:
            (self._folder / name).write_text(block.text, encoding="utf-8")

    def _end(self) -> None:
        if self._python is not None:
            self._python.communicate(timeout=MOST_SECONDS)  # its input ends, and so does it
        for group in self._groups:
            _end(group)

    @contextmanager
    def _servers(self) -> Iterator[None]:
        """Those that the page asks without starting them."""
        runnable = "".join(block.text for block in self._page.blocks if block.why_not_run is None)
        if "127.0.0.1:80" not in runnable or STARTS in runnable:
            yield
            return
        with (
            running_emulator(EmulatorConfig(model=MODEL)) as emulator,
            running_gateway(emulator.base_url, self._folder / "gateway", {}) as gateway,
        ):
            self._ports = {"8000": emulator.base_url.rpartition(":")[2], "8080": gateway.url.rpartition(":")[2]}
            yield


Handler = Callable[[Reader, Block], str]
HANDLERS: Mapping[str, Handler] = {
    "sh": Reader.run_commands,
    "python": Reader.run_python,
    "yaml": Reader.load_settings,
    "json": Reader.compare_json,
    "text": Reader.compare_text,
    "promql": Reader.look_at_query,
    "mermaid": Reader.look_at_diagram,
}


def understood(line: str) -> None:
    """The command of one line and its options exist. Raises AssertionError."""
    _, name, *words = shlex.split(line.partition(" | ")[0].rstrip("& "), comments=True)
    command = _COMMANDS.get(name)
    assert command is not None, f"there is no command {name}"
    if hasattr(command, "commands") and words:
        command = command.commands.get(words[0])
        assert command is not None, f"there is no command {name} {words[0]}"
    options = {option for each in command.params for option in (*each.opts, *each.secondary_opts)} | {"--help"}
    if command.context_settings.get("ignore_unknown_options"):
        options |= {f"--{flag}" for flag in PLANNED}  # vLLM's own, which the command takes as they are
    unknown = {word.partition("=")[0] for word in words if word.startswith("--")} - options
    assert not unknown, f"{name} has no {', '.join(unknown)}"


def _command_lines(text: str) -> list[str]:
    return [line for line in text.replace("\\\n", " ").splitlines() if line.strip() and not line.startswith("#")]


def _less(got: Any, shown: Any) -> Any:
    """What was got, less the fields that are not shown."""
    if isinstance(got, dict) and isinstance(shown, dict):
        return {name: _less(got[name], shown[name]) for name in shown if name in got}
    return got


def _comes(shown: str, output: str) -> bool:
    """Whether all that is shown is in the output, one after the other; blanks and line ends are alike."""
    rest = " ".join(output.split())
    for piece in filter(None, (" ".join(piece.split()) for piece in shown.split("…"))):
        _, found, rest = rest.partition(piece)
        if not found:
            return False
    return True


@cache
def _files() -> Mapping[str, bytes]:
    """What the pages speak of."""
    photos = [image(data_url(encoded(picture(1680, 1260, seed=seed)))) for seed in (1, 2)]
    body = json.dumps(chat("Which is sharper?", *photos, model=MODEL)).encode()
    log = file_of("v0_8_3_sampler")
    return {"photo.jpg": encoded(picture(4000, 3000), "JPEG"), "request.json": body, "vllm.log": log}


def _end(group: int) -> None:
    """The whole group, which may be gone already."""
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGTERM)
        give_up_at = time.monotonic() + _LEAVE_SECONDS
        while time.monotonic() < give_up_at:
            os.killpg(group, 0)
            time.sleep(0.05)
        os.killpg(group, signal.SIGKILL)
