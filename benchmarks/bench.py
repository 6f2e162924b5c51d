"""One run: start what is asked for, visit the peers in interleaved rounds, keep the figures.

The proxy under test has the first core, stub and load generator the last. All peers of a scenario run at the same time
and are loaded one after the other, round by round in changing order, so that whatever else the machine does meets all
of them alike.
"""

import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from benchmarks import processes
from benchmarks.bodies import BodyFiles
from benchmarks.loader import LONGEST_BURST_SECONDS, PATIENCE
from benchmarks.peers import ROOT, MissingPeerError, Peer, Setup
from benchmarks.processes import Child
from benchmarks.scenarios import MIB, Figures, Scenario, derive, ratio

START_SECONDS = 180.0  # LiteLLM imports for a minute on a busy machine
SLACK_SECONDS = 30.0  # for a load generator to start and to print
SIDE_CONNECTIONS = 2

_Row = TypeVar("_Row")
Rounds = dict[str, list[Figures]]
Report = Callable[[Scenario, Rounds], None]


@dataclass(frozen=True, slots=True)
class Options:
    rounds: int
    seconds: float
    min_done: int = 20


@dataclass(frozen=True, slots=True)
class Running:
    """A peer that answers. `pid` None is the stub itself, whose CPU time is not measured."""

    peer: Peer
    port: int
    pid: int | None


def start_peer(stack: ExitStack, peer: Peer, setup: Setup, core: int) -> Child:
    """A peer that answers; it ends with the stack. Raises MissingPeerError with the end of its log."""
    if peer.launch is None:
        raise MissingPeerError(f"{peer.name} is nothing that can be started")
    launch = peer.launch(setup)
    log_path = setup.folder / f"{peer.name}.log"
    log = stack.enter_context(log_path.open("wb"))
    child = stack.enter_context(
        Child(launch.command, core, environment=launch.environment, folder=setup.folder, log=log)
    )
    if not child.wait_ready(setup.port, peer.ready_path, START_SECONDS):
        raise MissingPeerError(f"did not start: {log_path.read_text(errors='replace').strip()[-300:]}")
    return child


class Bench:
    """Runs scenarios in front of a stub that listens already. `folder` takes bodies, logs and configurations."""

    def __init__(self, options: Options, folder: Path, tell: Callable[[str], None]) -> None:
        self._options = options
        self._folder = folder
        self._bodies = BodyFiles(folder)
        self._tell = tell
        self._proxy_core, self._load_core = processes.cores()
        self._stub_port = processes.free_port()

    def run(self, scenarios: Sequence[Scenario], peers: Sequence[Peer], report: Report) -> None:
        """Measure every scenario; each is reported as soon as it is done. All that was started is ended."""
        with self._module("stub", [str(self._stub_port)]) as stub:
            if not stub.wait_ready(self._stub_port, "/health", START_SECONDS):
                raise RuntimeError("the stub did not start")
            for refusing in (False, True):
                self._together([s for s in scenarios if s.refusing == refusing and not s.fresh], peers, report)
            for scenario in scenarios:
                if scenario.fresh:
                    report(scenario, self._one_by_one(scenario, [peer for peer in peers if _suits(peer, scenario)]))

    def _together(self, scenarios: Sequence[Scenario], peers: Sequence[Peer], report: Report) -> None:
        """Scenarios whose peers are started once, in the same state."""
        if not scenarios:
            return
        with ExitStack() as stack:
            wanted = [peer for peer in peers if any(_suits(peer, scenario) for scenario in scenarios)]
            running = list(self._start_all(stack, wanted, scenarios[0]))
            for scenario in scenarios:
                rows = [one for one in running if _suits(one.peer, scenario)]
                figures: Rounds = {one.peer.name: [] for one in rows}
                for number in range(1 if scenario.clients else self._options.rounds):
                    for one in _shuffled(rows, number):
                        figures[one.peer.name].append(self._measure(one, scenario))
                report(scenario, figures)

    def _one_by_one(self, scenario: Scenario, peers: Sequence[Peer]) -> Rounds:
        """A scenario that gives every measurement a process of its own."""
        figures: Rounds = {}
        for number in range(self._options.rounds):
            for peer in _shuffled(peers, number):
                with ExitStack() as stack:
                    for one in self._start_all(stack, [peer], scenario):
                        figures.setdefault(peer.name, []).append(self._measure(one, scenario))
        return figures

    def _start_all(self, stack: ExitStack, peers: Iterable[Peer], scenario: Scenario) -> Iterator[Running]:
        for peer in peers:
            try:
                yield self._start(stack, peer, scenario)
            except MissingPeerError as error:
                self._tell(f"skipped {peer.name}: {error}")

    def _start(self, stack: ExitStack, peer: Peer, scenario: Scenario) -> Running:
        if peer.launch is None:
            return Running(peer, self._stub_port, None)
        port = processes.free_port()
        setup = Setup(
            port, self._stub_port, self._folder, scenario.refusing, body_budget_bytes=scenario.body_budget_bytes
        )
        child = start_peer(stack, peer, setup, self._proxy_core)
        self._prove(port, is_refusing=scenario.refusing)
        return Running(peer, port, child.pid)

    def _prove(self, port: int, *, is_refusing: bool) -> None:
        """One request shows that the peer does what the scenario needs. Raises MissingPeerError."""
        codes = self._load(port, self._bodies.path("text"), ["--total", "1"], LONGEST_BURST_SECONDS)["codes"]
        expected = {"429", "503"} if is_refusing else {"200"}
        if not codes or not set(codes) <= expected:
            raise MissingPeerError(f"answered {codes} where one of {sorted(expected)} was expected")

    def _measure(self, one: Running, scenario: Scenario) -> Figures:
        if scenario.clients:
            return self._measure_clients(one, scenario)
        body, longest = self._bodies.path(scenario.body), self._longest_seconds(scenario)
        idle_bytes = processes.resident_bytes(one.pid) if one.pid else 0
        if one.pid:
            processes.reset_peak(one.pid)
        with self._side_load(one, scenario) as side:
            loaded = self._load(one.port, body, self._flags(one, scenario), longest)
            beside = json.loads(side.output(longest)) if side else None
        figures = derive(loaded, body.stat().st_size)
        if beside:
            figures["side_per_second"] = ratio(beside["done"], beside["seconds"])
        if one.pid:
            figures |= _memory(one.pid, idle_bytes, scenario, body.stat().st_size)
        return figures

    def _flags(self, one: Running, scenario: Scenario) -> list[str]:
        flags = ["--connections", str(scenario.connections), "--total", str(scenario.total)]
        flags += ["--rate-per-second", str(scenario.rate_per_second)]
        flags += ["--seconds", str(self._options.seconds), "--min-done", str(self._options.min_done)]
        flags += ["--stream"] if scenario.stream else []
        return flags + (["--pid", str(one.pid)] if one.pid else [])

    def _longest_seconds(self, scenario: Scenario) -> float:
        return SLACK_SECONDS + (LONGEST_BURST_SECONDS if scenario.total else PATIENCE * self._options.seconds)

    def _load(self, port: int, body: Path, flags: Sequence[str], timeout_seconds: float) -> Figures:
        with self._module("loader", ["--port", str(port), "--body", str(body), *flags]) as loader:
            figures: Figures = json.loads(loader.output(timeout_seconds))
        return figures

    @contextmanager
    def _side_load(self, one: Running, scenario: Scenario) -> Iterator[Child | None]:
        if scenario.side_body is None:
            yield None
            return
        body = str(self._bodies.path(scenario.side_body))
        flags = ["--port", str(one.port), "--body", body, "--connections", str(SIDE_CONNECTIONS), "--min-done", "1"]
        with self._module("loader", [*flags, "--seconds", str(self._options.seconds)]) as side:
            yield side

    def _measure_clients(self, one: Running, scenario: Scenario) -> Figures:
        body = str(self._bodies.path(scenario.body))
        with self._module("clients", ["--port", str(one.port), "--body", body]) as clients:
            seen: dict[str, dict[str, int]] = json.loads(clients.output(LONGEST_BURST_SECONDS))
        shares = {f"{name}_seen": 100 * codes.get("429", 0) / sum(codes.values()) for name, codes in seen.items()}
        return {**shares, "codes": {f"{name} {code}": n for name, codes in seen.items() for code, n in codes.items()}}

    def _module(self, name: str, flags: Sequence[str]) -> Child:
        command = [sys.executable, "-m", f"benchmarks.{name}", *flags]
        return Child(command, self._load_core, folder=ROOT, stdout=subprocess.PIPE)


def _suits(peer: Peer, scenario: Scenario) -> bool:
    if scenario.refusing and not peer.can_refuse:
        return False
    if scenario.fresh and peer.launch is None:
        return False
    return not peer.scenarios or scenario.name in peer.scenarios


def _shuffled(rows: Sequence[_Row], number: int) -> list[_Row]:
    order = list(rows)
    random.Random(number).shuffle(order)
    return order


def _memory(pid: int, idle_bytes: int, scenario: Scenario, body_bytes: int) -> Figures:
    peak_bytes = processes.peak_bytes(pid)
    growth_bytes = max(0, peak_bytes - idle_bytes)
    return {
        "idle_mb": idle_bytes / MIB,
        "peak_mb": peak_bytes / MIB,
        "growth_per_flight": ratio(growth_bytes, scenario.total * body_bytes),
        "growth_per_budget": ratio(growth_bytes, scenario.body_budget_bytes),
    }
