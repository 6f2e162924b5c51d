"""Batches of inputs, each in a worker process of the gateway's own kind: what ends one is found by its number."""

import random
import resource
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from gateway.imaging.processes import JobLimits, WorkerLostError, WorkerProcesses
from gateway.wire.encoded_file import EncodedFile
from tests.fuzz.rooms import ALL_ROOMS

BATCH = 500
_NOTHING = EncodedFile(b"")
_JOB_BYTES = 1 << 30
_SLOW_SECONDS = 2.0  # of CPU, for inputs of a few kilobytes


@dataclass
class Findings:
    """Ends by label, `faults` as (number, what), the CPU seconds of the slowest input and its number, and by how much a
    process was larger after its batches than before.
    """

    ends: Counter[str] = field(default_factory=Counter)
    faults: list[tuple[int, str]] = field(default_factory=list)
    slowest: tuple[float, int] = (0.0, 0)
    grown_bytes: int = 0

    def add(self, other: "Findings") -> None:
        self.ends += other.ends
        self.faults += other.faults
        self.slowest = max(self.slowest, other.slowest)
        self.grown_bytes = max(self.grown_bytes, other.grown_bytes)


def input_of(room: str, seed: int, number: int) -> bytes:
    return ALL_ROOMS[room][0](random.Random(f"{room}/{seed}/{number}"))


def batch(_file: EncodedFile, room: str, seed: int, numbers: range) -> Findings:
    """In a worker process."""
    found, label = Findings(), ALL_ROOMS[room][1]
    before = _resident_bytes()
    for number in numbers:
        data = input_of(room, seed, number)
        began = time.process_time()
        try:
            found.ends[label(data)] += 1
        except Exception as error:  # noqa: BLE001 - that is what is looked for
            found.faults.append((number, f"{type(error).__name__}: {error}"))
        seconds = time.process_time() - began
        if seconds > _SLOW_SECONDS:
            found.faults.append((number, f"took {seconds:.1f} s"))
        found.slowest = max(found.slowest, (seconds, number))
    found.grown_bytes = _resident_bytes() - before
    return found


def run(processes: WorkerProcesses, room: str, seed: int, numbers: range) -> Findings:
    """A batch, and where it ended its process, each input alone."""
    try:
        return processes.run(_JOB_BYTES, batch, _NOTHING, room, seed, numbers)
    except WorkerLostError as lost:
        if len(numbers) == 1:
            return Findings(Counter({"lost": 1}), [(numbers[0], f"ended its process: {lost}")])
    found = Findings()
    for number in numbers:
        found.add(run(processes, room, seed, range(number, number + 1)))
    return found


def worker_processes() -> WorkerProcesses:
    return WorkerProcesses(JobLimits(cpu_seconds=60, wall_seconds=300, jobs=100))


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()
