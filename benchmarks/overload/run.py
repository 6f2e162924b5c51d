"""One run: measure what the bare server can do, then load every arm with the same cells, round by round.

The arm has the first core, the emulated server and the load generator the last. Each arm of each round stands before a
server of its own, started anew, so that nobody profits from what another has taught it, and what a gateway learns it
learns within the round. The order of the arms changes from round to round.
"""

import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path

import uvloop

from benchmarks import processes
from benchmarks.bench import START_SECONDS, start_peer
from benchmarks.overload import judge
from benchmarks.overload.arms import Arm
from benchmarks.overload.play import Place, closed_loop, one_by_one, open_loop
from benchmarks.overload.scenarios import Cell
from benchmarks.overload.traffic import Habits, Request, Stream, endless, mean_work_seconds, merged, requests
from benchmarks.overload.upstream import MODEL, ServerSize
from benchmarks.overload.visit import Ending, Record
from benchmarks.peers import MissingPeerError, Setup
from benchmarks.processes import Child
from benchmarks.scenarios import Figures

PROOF_REQUESTS = 12
PROOF_PAUSE_SECONDS = 0.1
GUESSED_PER_SECOND = 30.0  # before it is measured
DRAIN_SECONDS = 12.0  # of one cell: its last clients, then the server's queue
START_OF_ARM_SECONDS = 8.0
PROBE_DRAIN_SECONDS = 4.0
SEEDS_APART = 1_000  # between rounds, so that runs with neighbouring seeds share none

Advance = Callable[[float, str], None]


@dataclass(frozen=True, slots=True)
class Options:
    """`answers` of a cell are those of all its rounds together; `probe_seconds` is one closed loop, of several."""

    rounds: int = 2
    answers: int = 2_000
    seed: int = 1
    probe_seconds: float = 10.0
    users_per_seat: tuple[float, ...] = (0.2, 0.7, 1.0, 1.4)


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a closed loop gets out of the bare server; `users` got the most."""

    work_per_second: float
    requests_per_second: float
    users: int
    load_cpu: float


def estimate_seconds(options: Options, arms: Sequence[Arm], cells: Sequence[Cell]) -> float:
    """How long a run will take, roughly: the capacity is not known yet."""
    probes = {(cell.size, cell.probe) for cell in cells}
    seconds = len(probes) * len(options.users_per_seat) * (options.probe_seconds + PROBE_DRAIN_SECONDS)
    for arm in arms:
        suited = [cell for cell in cells if cell.suits(arm)]
        seconds += sum(cell.seconds(options.answers, GUESSED_PER_SECOND) for cell in suited)
        seconds += options.rounds * DRAIN_SECONDS * len(suited)
        seconds += options.rounds * START_OF_ARM_SECONDS * len({cell.size for cell in suited})
    return seconds


class Overload:
    """Keeps the records of a run. `folder` takes logs and configurations of the arms."""

    def __init__(self, options: Options, folder: Path, tell: Callable[[str], None], advance: Advance) -> None:
        self._options = options
        self._folder = folder
        self._tell = tell
        self._advance = advance
        self._arm_core, self._load_core = processes.cores()
        self.capacities: dict[tuple[ServerSize, Habits], Capacity] = {}
        self.records: dict[Cell, dict[str, list[Record]]] = {}

    def run(self, arms: Sequence[Arm], cells: Sequence[Cell]) -> None:
        """All rounds. All that was started is ended."""
        os.sched_setaffinity(0, {self._load_core})
        for cell in cells:
            if (cell.size, cell.probe) not in self.capacities:
                self._measure_capacity(cell)
        for number in range(self._options.rounds):
            for _, group in groupby(cells, key=lambda cell: cell.size):
                together = list(group)
                for arm in random.Random(number).sample(arms, len(arms)):
                    self._visit(arm, [cell for cell in together if cell.suits(arm)], number)

    def figures(self, cell: Cell) -> dict[str, Figures]:
        """The figures of each arm that has a record of this cell."""
        bar = self._bar(cell)
        return {arm: judge.figures(kept, bar, self._options.seed) for arm, kept in self.records.get(cell, {}).items()}

    def _bar(self, cell: Cell) -> judge.Bar:
        capacity = self.capacities[cell.size, cell.probe].work_per_second
        return judge.Bar(cell.slo, cell.patience_seconds, cell.size, capacity)

    def _measure_capacity(self, cell: Cell) -> None:
        numbers = sorted({max(1, round(share * cell.size.seats)) for share in self._options.users_per_seat})
        with ExitStack() as stack:
            place = self._start_server(stack, cell.size, None)
            found = [self._probe(place, cell, users) for users in numbers]
        best = max(found, key=lambda capacity: capacity.work_per_second)
        self.capacities[cell.size, cell.probe] = best
        said = ", ".join(f"{one.requests_per_second:.1f} with {one.users}" for one in found)
        self._tell(f"capacity of {cell.size.name} ({cell.name}): {said} clients; load CPU {best.load_cpu:.2f} cores")

    def _probe(self, place: Place, cell: Cell, users: int) -> Capacity:
        stream = endless(self._options.seed, Stream("closed", 1.0, ("anyone",), cell.probe))
        seconds = self._options.probe_seconds
        record = uvloop.run(closed_loop(place, stream, users, seconds, f"c{users:03d}"))
        self._advance(seconds, "capacity")
        work = judge.work_per_second([record], judge.Bar(cell.slo, cell.patience_seconds, cell.size, 1.0))
        if not work:
            endings = {visit.error or str(visit.ending) for visit in record.visits}
            raise RuntimeError(f"nobody is served inside the level by the bare server of {cell.name}: {endings}")
        mean = mean_work_seconds(self._options.seed, cell.probe, cell.size)
        return Capacity(work, work / mean, users, record.load_cpu)

    def _visit(self, arm: Arm, cells: Sequence[Cell], number: int) -> None:
        """One arm of one round; an arm that cannot be started or does not work is left out, and said so."""
        if not cells:
            return
        with ExitStack() as stack:
            try:
                place = self._start(stack, arm, cells[0])
            except MissingPeerError as error:
                self._tell(f"skipped {arm.name}: {error}")
                return
            for salt, cell in enumerate(cells):  # the cells of one server have different pictures
                try:
                    self._measure(arm, cell, place, number, f"{salt:03d}")
                except TimeoutError:
                    self._tell(f"{arm.name}, {cell.name}: the server was not idle after a minute; left out")

    def _measure(self, arm: Arm, cell: Cell, place: Place, number: int, salt: str) -> None:
        seconds = self._seconds(cell)
        traffic = self._traffic(cell, seconds, number)
        record = uvloop.run(open_loop(place, traffic, seconds, cell.patience_seconds, salt))
        self.records.setdefault(cell, {}).setdefault(arm.name, []).append(record)
        share = judge.work_per_second([record], self._bar(cell)) / self._bar(cell).capacity
        self._advance(seconds + DRAIN_SECONDS, f"{arm.name}, {cell.name}: {share:.0%} of capacity")

    def _seconds(self, cell: Cell) -> float:
        capacity = self.capacities[cell.size, cell.probe]
        return cell.seconds(self._options.answers, capacity.requests_per_second) / self._options.rounds

    def _traffic(self, cell: Cell, seconds: float, number: int) -> list[Request]:
        """The same for every arm, another in each round."""
        capacity = self.capacities[cell.size, cell.probe].work_per_second
        seed = self._options.seed + SEEDS_APART * number

        def arriving(stream: Stream) -> Iterator[Request]:
            rate_per_second = stream.load * capacity / mean_work_seconds(self._options.seed, stream.habits, cell.size)
            return requests(seed, stream, rate_per_second, seconds)

        return merged([arriving(stream) for stream in cell.streams])

    def _start_server(self, stack: ExitStack, size: ServerSize, queued_requests: int | None) -> Place:
        port = processes.free_port()
        server = stack.enter_context(Child(size.command(port, queued_requests), self._load_core))
        if not server.wait_ready(port, "/health", START_SECONDS):
            raise RuntimeError("the emulated server did not start")
        url = f"http://127.0.0.1:{port}"
        return Place(url, url, server.pid)

    def _start(self, stack: ExitStack, arm: Arm, cell: Cell) -> Place:
        """Server and arm, both proven to work. Raises MissingPeerError."""
        bare = self._start_server(stack, cell.size, cell.size.in_flight if arm.limits_itself else None)
        peer = arm.peer_for(cell.size, cell.slo)
        if peer.launch is None:
            return bare
        port, upstream_port = processes.free_port(), int(bare.upstream_url.rpartition(":")[2])
        child = start_peer(stack, peer, Setup(port, upstream_port, self._folder, model=MODEL), self._arm_core)
        place = Place(f"http://127.0.0.1:{port}", bare.upstream_url, bare.upstream_pid, child.pid)
        self._prove(place)
        return place

    def _prove(self, place: Place) -> None:
        """A few requests one after the other are answered, at their full length. Raises MissingPeerError."""
        few = islice(endless(self._options.seed, Stream("proof", 1.0, ("anyone",))), PROOF_REQUESTS)
        for visit in uvloop.run(one_by_one(place.base_url, [*few], PROOF_PAUSE_SECONDS)):
            if visit.ending is not Ending.DONE:
                raise MissingPeerError(f"does not serve {visit.request.kind}: {visit.error}")
            if len(visit.token_times) < visit.request.output_tokens - 1:
                raise MissingPeerError(f"lets an answer end after {len(visit.token_times)} tokens")
