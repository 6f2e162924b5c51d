"""`serve --workers`: several processes on one port, which are one gateway to clients, to the engine and to signals."""

import contextlib
import importlib
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import psutil
import pytest
import typer
from typer.testing import CliRunner

from gateway.cli import app
from gateway.emulator.config import EmulatorConfig, StepCost
from gateway.emulator.serve import running_emulator
from gateway.settings import Settings
from tests.support.live_gateway import CHAT, chat
from tests.support.processes import metrics, wait_until_ready
from tests.support.redis_server import running_redis

workers = importlib.import_module("gateway.cli.workers")
WORKERS = 2
BUDGET = 4
REDIS = "redis://127.0.0.1:6379"


def ports_in_a_row(count: int) -> int:
    """The first of so many that are free."""
    while True:
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            first = stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
            for number in range(1, count):
                stack.enter_context(socket.create_server(("127.0.0.1", first + number)))
            return first


@contextlib.contextmanager
def serving(upstream: str, redis: str, work):
    port, output = ports_in_a_row(WORKERS + 1), work / "out.log"
    command = [sys.executable, "-m", "gateway", "serve", "--upstream", upstream, "--port", str(port)]
    command += ["--workers", str(WORKERS), "--set", f"ledger.redis_url={redis}", "--set", f"budget.sequences={BUDGET}"]
    command += ["--set", "server.drain_grace_seconds=0", "--set", "calibration=off"]
    with output.open("wb") as log, subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT) as process:
        try:
            for number in range(WORKERS + 1):
                wait_until_ready(f"http://127.0.0.1:{port + number}/readyz", process, output)
            yield process, port, output
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(15)
            process.kill()


def until(is_so) -> None:
    give_up_at = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < give_up_at
        time.sleep(0.05)


def capacity(port: int, number: int) -> float:
    with contextlib.suppress(httpx.TransportError):
        return metrics(f"http://127.0.0.1:{port + number}")['gateway_capacity{resource="sequences"}']
    return -1.0


@pytest.mark.system("redis-server")
def test_two_processes_are_one_gateway(tmp_path):
    pytest.importorskip("redis")
    slow = EmulatorConfig.fast(step_cost=StepCost(0.02, 0.0, 0.0, 0.0))
    with (
        running_redis(tmp_path / "redis") as redis,
        running_emulator(slow) as emulator,
        serving(emulator.base_url, redis.url, tmp_path) as (process, port, output),
    ):
        until(lambda: capacity(port, 1) + capacity(port, 2) == BUDGET)
        most, is_over = [0], threading.Event()

        def watch() -> None:
            while not is_over.wait(0.005):
                seen = emulator.statistics()
                most[0] = max(most[0], seen.running + seen.waiting)

        watcher = threading.Thread(target=watch)
        watcher.start()
        with ThreadPoolExecutor(16) as pool:
            body = chat("Hello.", max_tokens=8, ignore_eos=True)
            ask = [pool.submit(httpx.post, f"http://127.0.0.1:{port}{CHAT}", json=body, timeout=60) for _ in range(64)]
            assert {each.result().status_code for each in ask} == {200}
        is_over.set()
        watcher.join()
        assert most[0] == BUDGET

        killed = psutil.Process(process.pid).children()[0]
        until(lambda: time.time() - killed.create_time() > workers._AGAIN_SECONDS)
        killed.kill()
        until(lambda: "worker 1 ended with -9" in output.read_text())
        until(lambda: capacity(port, 1) + capacity(port, 2) == BUDGET and capacity(port, 1) > 0)

        assert psutil.Process(process.pid).num_threads() == 1, "what is forked must hold no lock of a thread"
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert not psutil.pid_exists(killed.pid)
        assert output.read_text().count("SIGTERM: draining") == 2, "each of them writes its log"


@pytest.mark.system("redis-server")
def test_workers_end_with_the_one_that_started_them(tmp_path):
    pytest.importorskip("redis")
    with (
        running_redis(tmp_path / "redis") as redis,
        running_emulator() as emulator,
        serving(emulator.base_url, redis.url, tmp_path) as (process, _, _),
    ):
        children = psutil.Process(process.pid).children()
        assert len(children) == WORKERS
        process.kill()
        _, alive = psutil.wait_procs(children, timeout=30)
        assert not alive


def test_without_a_shared_budget_it_does_not_start():
    result = CliRunner().invoke(app, ["serve", "--upstream", "http://127.0.0.1:1", "--workers", "3"])
    assert result.exit_code == 2
    text = " ".join(result.output.split())
    assert "--workers 3 needs ledger.redis_url" in text
    assert "the model server would get 3 times what it can take" in text


def test_a_shadow_is_one_process():
    settings = Settings.model_validate({"mode": "shadow", "ledger": {"redis_url": REDIS}})
    with pytest.raises(typer.Exit):
        workers.settings_of_many(settings, 2)


def test_what_the_processes_must_have_in_common():
    settings = workers.settings_of_many(Settings.model_validate({"ledger": {"redis_url": REDIS}}), 3)
    assert settings.ledger.gateways == 3
    assert len(settings.isolation.secret.get_secret_value()) == 64
    own = Settings.model_validate(
        {"ledger": {"redis_url": REDIS, "gateways": 9}, "isolation": {"secret": "sixteen or more of them"}}
    )
    settings = workers.settings_of_many(own, 3)
    assert settings.ledger.gateways == 9
    assert settings.isolation == own.isolation


def test_a_port_that_is_taken_is_a_mistake_of_the_start(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(typer.Exit):
        workers.listen("127.0.0.1", taken.getsockname()[1])
    assert "the next N ports are used too" in " ".join(capsys.readouterr().err.split())
    workers.listen("::1", 0).close()


class Processes:
    """What the system does, as a script: processes that are started, told, and end one after the other."""

    def __init__(self, monkeypatch, *ends):
        self.ends, self.told, self.handlers, self.now = list(ends), [], {}, 0.0
        self.born = 100
        monkeypatch.setattr(workers.os, "fork", self.fork)
        monkeypatch.setattr(workers.os, "wait", self.wait)
        monkeypatch.setattr(workers.os, "kill", lambda process_id, number: self.told.append((process_id, number)))
        monkeypatch.setattr(workers.os, "setpgrp", lambda: None)
        monkeypatch.setattr(workers.signal, "signal", self.handlers.__setitem__)
        monkeypatch.setattr(workers.time, "monotonic", lambda: self.now)

    def fork(self):
        self.born += 1
        return self.born

    def wait(self):
        """The next end: after how long, what came before it, whose, and its status."""
        seconds, told, process_id, status = self.ends.pop(0)
        self.now += seconds
        if told is not None:
            self.handlers[told](told, None)
        return process_id, status


def run(serve=None) -> int:
    several = workers.Workers(2, "127.0.0.1", ports_in_a_row(3), serve or (lambda _: None))
    with pytest.raises(SystemExit) as ended:
        several.run()
    for listener in (several._listener, *several._own):
        listener.close()
    return ended.value.code


def test_who_dies_is_started_anew_and_all_are_told_to_end(monkeypatch):
    processes = Processes(
        monkeypatch,
        (60, None, 101, signal.SIGKILL),
        (60, signal.SIGHUP, 102, 256),
        (9, signal.SIGTERM, 103, 0),
        (0, None, 104, 0),
    )
    assert run() == 0
    hangs_up, terminates = (processes.told[:2], processes.told[2:])
    assert hangs_up == [(102, signal.SIGHUP), (103, signal.SIGHUP)]
    assert terminates == [(103, signal.SIGTERM), (104, signal.SIGTERM)]


def test_one_that_cannot_start_ends_all(monkeypatch):
    processes = Processes(monkeypatch, (1, None, 101, 256), (1, None, 102, 0))
    assert run() == 1
    assert processes.told == [(102, signal.SIGTERM)]


def test_one_that_is_made_while_all_end_is_told_too(monkeypatch):
    processes = Processes(monkeypatch, (60, None, 102, 0), (0, None, 103, 0))

    def fork_as_the_signal_comes() -> int:
        if processes.born == 101:
            processes.handlers[signal.SIGTERM](signal.SIGTERM, None)
        return Processes.fork(processes)

    monkeypatch.setattr(workers.os, "fork", fork_as_the_signal_comes)
    processes.ends = [(0, None, 101, 0), (0, None, 102, 0)]
    assert run() == 0
    assert processes.told == [(101, signal.SIGTERM), (102, signal.SIGTERM)]


def test_a_worker_serves_on_the_port_and_on_one_of_its_own(monkeypatch):
    Processes(monkeypatch)
    monkeypatch.setattr(workers.os, "fork", lambda: 0)
    ports = []
    assert run(lambda sockets: ports.extend(each.getsockname()[1] for each in sockets)) == 0
    assert ports[1] == ports[0] + 1
