"""Two gateways before one model server, restarted one after the other under load: no client is told anything of it.

Clients go by what `/readyz` says, which they hear a moment later, as with any load balancer, and try nothing twice.
"""

import contextlib
import itertools
import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from gateway.emulator.config import EmulatorConfig, StepCost
from gateway.emulator.serve import running_emulator
from tests.support.processes import free_port, wait_until_ready

CLIENTS = 6
LOOK_SECONDS = 0.2
GRACE_SECONDS = 1.0
SETTINGS = ("--set", f"server.drain_grace_seconds={GRACE_SECONDS}", "--set", "queue.wait_seconds=30")
BODY = {"model": "tiny", "messages": [{"role": "user", "content": "Go on."}], "max_tokens": 30, "ignore_eos": True}


@dataclass
class Gateway:
    """One place of the two: whichever process is there now."""

    upstream: str
    log: Path
    port: int = field(default_factory=free_port)
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def start(self):
        command = ["serve", "--upstream", self.upstream, "--port", str(self.port), *SETTINGS]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([sys.executable, "-m", "gateway", *command], stdout=log, stderr=log)
        wait_until_ready(f"{self.url}/readyz", self.process, self.log)

    def restart(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(30) == 0
        self.start()


@dataclass
class Balancer:
    """Says who is in the rotation, as of its last look."""

    gateways: list[Gateway]
    over: threading.Event = field(default_factory=threading.Event)
    ready: list[str] = field(default_factory=list)
    turns: "itertools.count[int]" = field(default_factory=itertools.count)

    def watch(self):
        while not self.over.is_set():
            self.ready = [gateway.url for gateway in self.gateways if is_ready(gateway.url)]
            self.over.wait(LOOK_SECONDS)

    def next(self):
        ready = self.ready
        return ready[next(self.turns) % len(ready)]


def is_ready(url):
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(f"{url}/readyz").status_code == 200
    return False


def ask_on_and_on(balancer, ends):
    """Every second answer is streamed; connections are kept as long as the gateway lets them."""
    with httpx.Client(timeout=60) as client:
        for number in itertools.count():
            if balancer.over.is_set():
                return
            ends[ask(client, balancer.next(), is_streaming=number % 2)] += 1


def ask(client, url, *, is_streaming):
    try:
        answer = client.post(f"{url}/v1/chat/completions", json=BODY | {"stream": bool(is_streaming)})
    except httpx.TransportError as error:
        return f"{type(error).__name__}: {error}"
    if answer.status_code != 200:
        return f"{answer.status_code} {answer.headers.get('x-gateway-reason')}"
    is_whole = answer.text.endswith("data: [DONE]\n\n") if is_streaming else answer.json()["usage"]
    return "whole" if is_whole else "cut off"


@pytest.fixture
def house(tmp_path):
    with running_emulator(EmulatorConfig.fast(step_cost=StepCost(0.01, 0.0, 0.0, 0.0))) as emulator:
        gateways = [Gateway(emulator.base_url, tmp_path / f"{name}.log") for name in "ab"]
        try:
            for gateway in gateways:
                gateway.start()
            yield gateways
        finally:
            for gateway in gateways:
                if gateway.process is not None:
                    gateway.process.kill()
                    gateway.process.wait()


def test_a_rolling_restart_under_load_loses_no_request(house, report_line):
    balancer, ends = Balancer(house), Counter()
    clients = [threading.Thread(target=ask_on_and_on, args=(balancer, ends)) for _ in range(CLIENTS)]
    threads = [threading.Thread(target=balancer.watch), *clients]
    threads[0].start()
    while len(balancer.ready) < len(house):
        time.sleep(LOOK_SECONDS)
    for client in clients:
        client.start()
    try:
        for gateway in house:
            gateway.restart()
            while len(balancer.ready) < len(house):
                time.sleep(LOOK_SECONDS)
    finally:
        balancer.over.set()
        for thread in threads:
            thread.join()
    report_line(f"rolling restart: {ends.total()} requests, {dict(ends)}")
    assert set(ends) == {"whole"}
    assert ends.total() > 10 * CLIENTS
    for gateway in house:
        lines = [json.loads(line) for line in gateway.log.read_text().splitlines()]
        assert {line["outcome"] for line in lines if "outcome" in line} == {"finished"}
        assert sum("draining" in line.get("message", "") for line in lines) == 1
