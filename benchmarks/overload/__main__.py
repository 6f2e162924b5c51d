"""`python -m benchmarks.overload`: who serves most inside the service level when clients want more than there is.

Seeded open-loop traffic (five tenants; texts, small and 12 MP pictures, picture histories; half the clients retry as
the OpenAI SDK does, some are that SDK) before an emulated vLLM that serves more than thirty requests a second: bare,
with its own limit, and behind each proxy. What the server can do is measured first, by closed loops. Everything runs on
127.0.0.1 and ends with this program. A full run takes an hour and a half, in which nothing else should run; say less:

    python -m benchmarks.overload --quick
    python -m benchmarks.overload --scenarios loads --arms native,semaphore,gateway --loads 3 --rounds 1
    python -m benchmarks.overload --with litellm,vllm-router --out result.json
    python -m benchmarks.overload --target-cmd "mine=my-proxy --port {port} --upstream {upstream}"

Scenarios:
"""

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from benchmarks.arguments import add_peers, install_peers, names_of
from benchmarks.overload import judge, tables
from benchmarks.overload.arms import ARMS, Arm, fixed
from benchmarks.overload.run import Options, Overload, estimate_seconds
from benchmarks.overload.scenarios import LOADS, SCENARIOS, Cell, cells_of, quickened
from benchmarks.processes import stopping
from benchmarks.scenarios import Figures

WIDTH = 220
DEFAULTS = Options()
QUICK = Options(rounds=1, answers=40, probe_seconds=1.0, users_per_seat=(1.0,))


def parser() -> argparse.ArgumentParser:
    listed = "\n".join(f"    {name:<10}{what}" for name, (what, _) in SCENARIOS.items())
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.overload",
        description=f"{__doc__}{listed}\n\n{tables.NOTICE}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--scenarios", type=names_of(SCENARIOS), default=list(SCENARIOS), help="comma list (all)")
    made.add_argument("--arms", type=names_of(ARMS), default=list(ARMS), help=f"comma list (all of {','.join(ARMS)})")
    made.add_argument("--loads", type=_loads, default=LOADS, help="multiples of the capacity, comma list (0.7,3,5)")
    made.add_argument("--rounds", type=int, default=DEFAULTS.rounds, help="visits of each arm (default %(default)s)")
    help_answers = "answers of one cell, all rounds together, that the server at its capacity gives (%(default)s)"
    made.add_argument("--answers", type=int, default=DEFAULTS.answers, help=help_answers)
    made.add_argument("--seed", type=int, default=DEFAULTS.seed, help="of traffic and intervals (default %(default)s)")
    made.add_argument("--quick", action="store_true", help="everything tiny: shows that it works, measures nothing")
    add_peers(made, "one more arm; {port} and {upstream} are filled in")
    made.add_argument("--out", type=Path, help="write the figures as JSON")
    return made


def _loads(text: str) -> tuple[float, ...]:
    loads = tuple(float(word) for word in text.split(","))
    if not all(0 < load <= 20 for load in loads):
        raise argparse.ArgumentTypeError("loads are multiples of the capacity, above 0 and at most 20")
    return loads


@dataclass(frozen=True, slots=True)
class Plan:
    """What the command line asks for."""

    options: Options
    arms: Sequence[Arm]
    cells: Sequence[Cell]

    @classmethod
    def of(cls, given: argparse.Namespace) -> "Plan":
        cells = cells_of(given.scenarios, given.loads)
        arms = [ARMS[name] for name in given.arms] + [fixed(peer) for peer in given.target_cmd]
        if given.quick:
            return cls(QUICK, arms, [quickened(cell) for cell in cells])
        return cls(Options(given.rounds, given.answers, given.seed), arms, cells)

    def sentence(self) -> str:
        minutes = estimate_seconds(self.options, self.arms, self.cells) / 60
        size = f"{len(self.cells)} cells x {len(self.arms)} arms x {self.options.rounds} rounds"
        return f"{size}: about {minutes:.0f} minutes"


def _run(plan: Plan, console: Console) -> Overload:
    columns = (BarColumn(), TimeElapsedColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True) as progress, stopping() as stack:
        task = progress.add_task("", total=estimate_seconds(plan.options, plan.arms, plan.cells))

        def advance(seconds: float, said: str) -> None:
            progress.update(task, advance=seconds, description=said)
            if not console.is_terminal:
                console.print(f"{time.strftime('%H:%M:%S')} {said}")

        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="overload-")))
        overload = Overload(plan.options, folder, console.print, advance)
        overload.run(plan.arms, plan.cells)
    return overload


def _print(plan: Plan, overload: Overload, console: Console) -> dict[str, dict[str, Figures]]:
    results = {cell.name: overload.figures(cell) for cell in plan.cells}
    judge.compare(results)
    for cell in plan.cells:
        console.print(tables.cell_table(cell, results[cell.name]))
    targets = tables.target_table(results)
    if targets is not None:
        console.print(targets)
    console.print(tables.NOTICE, style="dim")
    return results


def _save(out: Path, plan: Plan, overload: Overload, results: dict[str, dict[str, Figures]]) -> None:
    machine = {"cores": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()}
    capacities = {f"{size.name}, {probe}": asdict(found) for (size, probe), found in overload.capacities.items()}
    kept = {"machine": machine, "load_average": os.getloadavg(), "options": asdict(plan.options)}
    out.write_text(json.dumps({**kept, "capacities": capacities, "cells": results}, indent=1))


def main() -> None:
    given = parser().parse_args()
    console = Console(width=WIDTH if not sys.stdout.isatty() else None, highlight=False)
    install_peers(given.install, console.print)
    plan = Plan.of(given)
    console.print(plan.sentence())
    overload = _run(plan, console)
    results = _print(plan, overload, console)
    if given.out is not None:
        _save(given.out, plan, overload, results)


if __name__ == "__main__":
    main()
