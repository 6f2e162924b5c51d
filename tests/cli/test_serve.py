"""The command as operators run it: a process, its signals, its exit code, its log, and how it tells of mistakes."""

import contextlib
import importlib
import json
import resource
import signal
import subprocess
import sys
import time

import httpx
import pytest
from typer.testing import CliRunner

from gateway.cli import app
from gateway.emulator.config import EmulatorConfig, StepCost
from gateway.emulator.serve import running_emulator
from tests.support.processes import free_port, wait_until_ready

serve = importlib.import_module("gateway.cli.serve")  # the package has a command of the same name
CHAT = "/v1/chat/completions"
MODEL = "tiny"
LONG = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "Go on."}],
    "stream": True,
    "max_tokens": 150,
    "ignore_eos": True,
}

AT_ONCE = ("--set", "server.drain_grace_seconds=0")
SHORT = LONG | {"stream": False, "max_tokens": 2}
ENDLESS = LONG | {"max_tokens": 20_000}


@pytest.fixture(scope="module")
def emulator():
    with running_emulator(EmulatorConfig.fast(step_cost=StepCost(0.01, 0.0, 0.0, 0.0))) as running:
        yield running


@contextlib.contextmanager
def serving(upstream, work, *arguments):
    """The process, its address and the file of its output."""
    url, output = f"http://127.0.0.1:{(port := free_port())}", work / "out.log"
    command = [sys.executable, "-m", "gateway", "serve", "--upstream", upstream, "--port", str(port), *arguments]
    with output.open("wb") as log, subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT) as process:
        try:
            wait_until_ready(f"{url}/readyz", process, output)
            yield process, url, output
        finally:
            process.kill()


def lines_of(output):
    return [json.loads(line) for line in output.read_text().splitlines()]


def test_sigterm_drains(emulator, tmp_path):
    with (
        serving(emulator.base_url, tmp_path, "--set", "server.drain_grace_seconds=0.5") as (process, url, output),
        httpx.Client(base_url=url, timeout=30) as client,
    ):
        with client.stream("POST", CHAT, json=LONG) as stream:
            pieces = stream.iter_raw()
            received = [next(pieces)]
            process.send_signal(signal.SIGTERM)
            while (ready := httpx.get(f"{url}/readyz")).status_code != 503:
                pass
            assert "shutting down" in ready.json()["reason"]
            early = client.post(CHAT, json=SHORT)
            assert (early.status_code, early.headers["connection"]) == (200, "close")
            while (late := httpx.post(f"{url}{CHAT}", json=SHORT)).status_code == 200:
                pass
            assert (late.status_code, late.headers["x-gateway-reason"]) == (503, "draining")
            assert 1 <= int(late.headers["retry-after"]) <= 2
            process.send_signal(signal.SIGTERM)  # supervisors repeat themselves
            received += pieces
        assert b"".join(received).endswith(b"data: [DONE]\n\n")
        assert process.wait(10) == 0
    outcomes = [line["outcome"] for line in lines_of(output) if "outcome" in line]
    assert outcomes[-2:] == ["refused", "finished"]
    assert set(outcomes) == {"refused", "finished"}


def test_a_drain_that_takes_too_long_is_cut(emulator, tmp_path):
    with serving(emulator.base_url, tmp_path, *AT_ONCE, "--set", "server.drain_seconds=1") as (process, url, output):
        with httpx.stream("POST", f"{url}{CHAT}", json=ENDLESS, timeout=30) as stream:
            pieces = stream.iter_raw()
            next(pieces)
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGTERM)
            with pytest.raises(httpx.RemoteProtocolError):
                list(pieces)
        assert process.wait(15) == 0
    (line,) = (line for line in lines_of(output) if "outcome" in line)
    assert line["outcome"] == "client_left"


def test_ctrl_c_pressed_twice_ends_it_at_once(emulator, tmp_path):
    with (
        serving(emulator.base_url, tmp_path) as (process, url, _),
        httpx.stream("POST", f"{url}{CHAT}", json=ENDLESS, timeout=30) as stream,
    ):
        pieces = stream.iter_raw()
        next(pieces)
        process.send_signal(signal.SIGINT)
        while httpx.get(f"{url}/readyz").status_code != 503:
            pass
        late = httpx.post(f"{url}{CHAT}", json=SHORT)
        assert (late.status_code, late.headers["x-gateway-reason"]) == (503, "draining"), "there is no grace"
        process.send_signal(signal.SIGINT)
        assert process.wait(15) in {0, 128 + signal.SIGINT}, "as the second comes before or while its server stops"
        pieces.close()


class TestMistakes:
    @pytest.mark.parametrize(
        ("arguments", "told"),
        [
            (["--set", "queue.requests"], "write NAME=VALUE"),
            (["--set", "queue.request=3"], "queue.request (flag): there is no such setting"),
            (["--port", "70000"], "server.port (flag)"),
            (["--upstream", "vllm:8000"], "upstream.url (flag)"),
            (
                ["--set", "budget.decode_bytes=1000000", "--set", "images.max_pixels=50000000"],
                "The settings contradict each other",
            ),
            (["--config", "/does/not/exist.yaml"], "--config /does/not/exist.yaml"),
        ],
    )
    def test_settings(self, arguments, told):
        result = CliRunner().invoke(app, ["serve", *arguments])
        assert result.exit_code == 2
        assert told in result.stderr

    def test_a_file(self, tmp_path):
        file = tmp_path / "gateway.yaml"
        file.write_text("models: [{name: m, family: none-such}]\nqueue: {requests: 5}\n")
        result = CliRunner().invoke(app, ["serve", "--config", str(file)])
        assert result.exit_code == 2
        assert "The models cannot be read" in result.stderr
        assert "none-such" in result.stderr


class TestStarting:
    """What the server is given, without listening."""

    @pytest.fixture
    def servers(self, monkeypatch):
        started = []

        def run(server):
            started.append(server)

        monkeypatch.setattr(serve._Server, "run", run)
        monkeypatch.setattr("logging.config.dictConfig", lambda config: None)
        return started

    def test_flags_win(self, servers, tmp_path):
        file = tmp_path / "gateway.yaml"
        file.write_text("server: {port: 1234, host: 127.0.0.1, drain_seconds: 7}\n")
        result = CliRunner().invoke(app, ["serve", "--config", str(file), "--port", "4321", "--set", "server.seats=3"])
        assert result.exit_code == 0, result.output
        (server,) = servers
        assert (server.config.host, server.config.port) == ("127.0.0.1", 4321)

    def test_as_many_files_may_be_open_as_the_system_allows_and_too_few_are_told(self, servers, caplog, monkeypatch):
        taken = []
        monkeypatch.setattr(serve.resource, "setrlimit", lambda kind, limits: taken.append((kind, limits)))
        for hard in (4096, 4095):
            monkeypatch.setattr(serve.resource, "getrlimit", lambda kind, hard=hard: (1024, hard))
            CliRunner().invoke(app, ["serve", "--set", "server.seats=2048"])
        assert taken == [(resource.RLIMIT_NOFILE, (hard, hard)) for hard in (4096, 4095)]
        (told,) = [record.getMessage() for record in caplog.records if "may be open" in record.getMessage()]
        assert told.startswith("4095 files may be open at once, and server.seats=2048 can take 4096: raise the limit")

    async def test_a_signal_before_the_start_stops_it(self, servers):
        CliRunner().invoke(app, ["serve"])
        (server,) = servers
        server.handle_exit(signal.SIGTERM, None)
        assert server.should_exit

    async def test_signals_drain_and_ctrl_c_pressed_twice_leaves(self, servers):
        CliRunner().invoke(app, ["serve", "--set", "log.requests=false", *AT_ONCE])
        (server,) = servers
        application = server._application
        async with application.running():
            application._running.seats.take()
            server.handle_exit(signal.SIGTERM, None)
            server.handle_exit(signal.SIGINT, None)
            server.handle_exit(signal.SIGTERM, None)
            assert not await server.on_tick(1), "only a second Ctrl-C hurries it"
            assert server._captured_signals == []
            application._running.seats.give_back()
            assert await server.on_tick(2)
            server.handle_exit(signal.SIGINT, None)
            assert server._captured_signals == [signal.SIGINT]


def test_shadow_mode_is_a_flag_and_the_log_says_so(emulator, tmp_path):
    with serving(emulator.base_url, tmp_path, "--mode", "shadow") as (_, url, output):
        answer = httpx.post(f"{url}{CHAT}", json={"model": MODEL, "messages": [{"role": "user", "content": "Hm?"}]})
        assert answer.headers["x-gateway-shadow"] == "admitted"
        assert "shadow mode: nothing is queued, refused or changed" in output.read_text()


def test_a_mode_that_there_is_not():
    result = CliRunner().invoke(app, ["serve", "--mode", "watch"])
    assert (result.exit_code, "'enforce' or 'shadow'" in result.stderr) == (2, True)


def test_it_says_where_it_listens_and_takes_other_keys_at_sighup(emulator, tmp_path):
    keys = tmp_path / "keys.yaml"
    made = CliRunner().invoke(app, ["key", "create", "one", "--file", str(keys)])
    bearer = {"authorization": f"Bearer {made.stdout.strip()}"}
    arguments = ("--host", "127.0.0.1", "--set", f"keys.file={keys}")
    with serving(emulator.base_url, tmp_path, *arguments) as (process, url, output):
        assert httpx.get(f"{url}/v1/models").status_code == 401
        assert httpx.get(f"{url}/v1/models", headers=bearer).status_code == 200
        CliRunner().invoke(app, ["key", "revoke", "one", "--file", str(keys)])
        process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + 30
        while httpx.get(f"{url}/v1/models", headers=bearer).status_code == 200:
            assert time.monotonic() < deadline, output.read_text()
            time.sleep(0.02)
        assert process.poll() is None
        lines = lines_of(output)
    assert any(line.get("message", "").endswith("server.host says so") for line in lines)
    (told,) = [line for line in lines if line.get("event") == "keys_reloaded"]
    assert told["keys_revoked"] == ["one"]


def test_without_keys_it_listens_to_its_own_machine_alone(emulator, tmp_path):
    with serving(emulator.base_url, tmp_path, "--set", "routes.open=[/sleep]") as (_, _, output):
        text = output.read_text()
    assert "listening on 127.0.0.1:" in text
    assert "hardly meant: routes.open: /sleep" in text  # as `check` has it
    assert "no keys are configured, so only this machine may come" in text


def test_a_keys_file_that_cannot_be_read_ends_the_start(tmp_path):
    none = tmp_path / "none.yaml"
    for command in ("serve", "check"):
        ended = CliRunner().invoke(app, [command, "--set", f"keys.file={none}"])
        assert ended.exit_code == 2
        assert ended.stderr == f"The keys cannot be read:\n{none}: No such file or directory\n"
