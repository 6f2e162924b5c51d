"""`python -m benchmarks`: measure the gateway beside its peers and print ratios of one run.

Everything runs on 127.0.0.1 and ends with this program. A full run takes about twenty minutes; name scenarios,
peers, rounds and seconds to make it short:

    python -m benchmarks --scenarios text,latency --peers direct,haproxy,gateway --rounds 3 --secs 2
    python -m benchmarks --with litellm,vllm-router --out result.json
    python -m benchmarks --target-cmd "mine=my-proxy --port {port} --upstream {upstream}"

Scenarios:
"""

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmarks import report
from benchmarks.arguments import add_peers, install_peers, names_of
from benchmarks.bench import Bench, Options, Rounds
from benchmarks.peers import PEERS, Peer
from benchmarks.processes import stopping
from benchmarks.scenarios import SCENARIOS, Figures, Scenario

WIDTH = 150


def parser() -> argparse.ArgumentParser:
    listed = "\n".join(f"    {scenario.name:<12}{scenario.what}" for scenario in SCENARIOS.values())
    made = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=f"{__doc__}{listed}\n\n{report.NOTICE}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = names_of(SCENARIOS)
    made.add_argument("--scenarios", type=names, default=list(SCENARIOS), help="comma list (default: all)")
    peers = f"comma list (default: all of {','.join(PEERS)})"
    made.add_argument("--peers", type=names_of(PEERS), default=list(PEERS), help=peers)
    made.add_argument("--rounds", type=int, default=3, help="visits of each peer in each scenario (default 3)")
    made.add_argument("--secs", type=float, default=2.0, help="seconds of each visit (default 2)")
    add_peers(made, "one more peer; {port}, {upstream} and {refuse} (0 or 1) are filled in")
    made.add_argument("--out", type=Path, help="write every round as JSON")
    return made


class Printed:
    """Tables as they come, and the JSON file."""

    def __init__(self, console: Console, out: Path | None) -> None:
        self._console = console
        self._out = out
        self._rounds: dict[str, Rounds] = {}
        self._results: dict[str, dict[str, Figures]] = {}

    def scenario(self, scenario: Scenario, rounds: Rounds) -> None:
        self._rounds[scenario.name] = rounds
        rows = self._results[scenario.name] = report.summary(rounds)
        self._console.print(report.scenario_table(scenario, rounds, rows))
        self._console.print(f"load average {os.getloadavg()[0]:.1f}\n")
        self._save()

    def ratios(self, subjects: Sequence[str]) -> None:
        for subject in subjects:
            if any(subject in rows for rows in self._results.values()):
                self._console.print(report.ratio_table(subject, self._results))
        goals = report.goal_table(self._results)
        if goals is not None:
            self._console.print(goals)
        self._console.print(report.NOTICE, style="dim")

    def _save(self) -> None:
        if self._out is not None:
            machine = {"cores": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()}
            kept = {"machine": machine, "load_average": os.getloadavg(), "rounds": self._rounds, "rows": self._results}
            self._out.write_text(json.dumps(kept, indent=1))


def main() -> None:
    given = parser().parse_args()
    console = Console(width=WIDTH if not sys.stdout.isatty() else None, highlight=False)
    install_peers(given.install, console.print)
    peers: list[Peer] = [PEERS[name] for name in given.peers] + given.target_cmd
    printed = Printed(console, given.out)
    with stopping() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        bench = Bench(Options(given.rounds, given.secs), folder, console.print)
        bench.run([SCENARIOS[name] for name in given.scenarios], peers, printed.scenario)
    printed.ratios([peer.name for peer in peers if peer.is_ours])


if __name__ == "__main__":
    main()
