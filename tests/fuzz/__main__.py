"""`python -m tests.fuzz`: a million damaged files, texts and answers of hosts, and one rule: a known error, or success.

Never another exception, never a process that dies or takes seconds, never one that grows. Seeded: the same seed gives
the same inputs, and each finding is told with its number, by which `--only` shows it again.

    python -m tests.fuzz --inputs 1000000
    python -m tests.fuzz --seconds 60 --seed 7 --room images
    python -m tests.fuzz --seed 7 --room images --only 1234 --keep crasher.bin
"""

import argparse
import sys
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

from rich.console import Console

from gateway.imaging.processes import WorkerProcesses
from gateway.ledger.host_memory import usable_cores
from tests.fuzz.rooms import ROOMS
from tests.fuzz.run import BATCH, Findings, input_of, run, worker_processes

_TOLD_SECONDS = 10.0
_MOST_TOLD = 20


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser("python -m tests.fuzz", description=__doc__)
    made.formatter_class = argparse.RawDescriptionHelpFormatter
    made.add_argument("--inputs", type=int, help="how many, over all rooms (default: as many as the time allows)")
    made.add_argument("--seconds", type=float, help="how long (default: 60, or as long as --inputs take)")
    made.add_argument("--seed", type=int, default=1, help="of all inputs (default %(default)s)")
    made.add_argument("--room", choices=list(ROOMS), help="only this kind of input")
    made.add_argument("--only", type=int, metavar="NUMBER", help="only this input; needs --room")
    made.add_argument("--keep", type=Path, metavar="FILE", help="with --only: write the input there")
    return made


def _batches(rooms: list[str]) -> Iterator[tuple[str, range]]:
    """Without end, one room after the other."""
    start = 0
    while True:
        for room in rooms:
            yield room, range(start, start + BATCH)
        start += BATCH


def fuzz(given: argparse.Namespace, processes: WorkerProcesses, console: Console) -> dict[str, Findings]:
    rooms = [given.room] if given.room else list(ROOMS)
    found = {room: Findings() for room in rooms}
    seconds = given.seconds or (float("inf") if given.inputs else 60.0)
    began = told = time.monotonic()
    left = given.inputs or sys.maxsize
    batches, running = _batches(rooms), set[Future[None]]()

    def work(room: str, numbers: range) -> None:
        found[room].add(run(processes, room, given.seed, numbers))

    with ThreadPoolExecutor(usable_cores()) as threads:
        while left > 0 and time.monotonic() < began + seconds:
            room, numbers = next(batches)
            running.add(threads.submit(work, room, numbers))
            left -= len(numbers)
            if len(running) > 2 * usable_cores():
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for each in done:
                    each.result()
            if time.monotonic() > told + _TOLD_SECONDS:
                told = time.monotonic()
                console.print(f"{told - began:5.0f} s: {_count(found):,} inputs, {_faults(found)} findings")
        for each in running:
            each.result()
    return found


def _count(found: dict[str, Findings]) -> int:
    return sum(findings.ends.total() for findings in found.values())


def _faults(found: dict[str, Findings]) -> int:
    return sum(len(findings.faults) for findings in found.values())


def _tell(found: dict[str, Findings], seed: int, console: Console) -> None:
    for room, findings in found.items():
        ends = ", ".join(f"{label} {count:,}" for label, count in findings.ends.most_common())
        console.print(f"{room}: {findings.ends.total():,} inputs: {ends}")
        seconds, number = findings.slowest
        grown = findings.grown_bytes / (1 << 20)
        console.print(
            f"  slowest {seconds * 1000:.0f} ms (number {number}), a batch grew its process by {grown:.0f} MiB"
        )
        for fault_number, what in findings.faults[:_MOST_TOLD]:
            console.print(f"  FOUND --seed {seed} --room {room} --only {fault_number}: {what}")
    console.print(f"{_count(found):,} inputs, {_faults(found)} findings")


def main() -> int:
    given = parser().parse_args()
    console = Console(highlight=False, soft_wrap=True)
    if given.only is not None:
        data = input_of(given.room, given.seed, given.only)
        if given.keep is not None:
            given.keep.write_bytes(data)
        console.print(f"{len(data)} bytes: {ROOMS[given.room][1](data)}")
        return 0
    processes = worker_processes()
    try:
        found = fuzz(given, processes, console)
    finally:
        processes.close()
    _tell(found, given.seed, console)
    return 1 if _faults(found) else 0


if __name__ == "__main__":
    sys.exit(main())
