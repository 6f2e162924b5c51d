"""What admission is to reach under overload. The floor is where the work is not done yet."""

from benchmarks.goals import Goal
from benchmarks.overload.arms import OURS, SHRINKING


def _of(name: str, scenario: str, figure: str, floor: float, target: float, peer: str | None = None) -> Goal:
    return Goal(scenario, figure, peer, floor, target, subject=OURS, name=name)


def _at_most(name: str, scenario: str, figure: str, floor: float, target: float) -> Goal:
    return Goal(scenario, figure, None, floor, target, less_is_better=True, subject=OURS, name=name)


GOALS = (
    *(_of("O1", load, "goodput_share", 0.85, 0.97) for load in ("load 3x", "load 5x")),
    *(
        _of("O1", load, "goodput_share", 1.0, 1.0, peer)
        for load in ("load 3x", "load 5x")
        for peer in ("native", "semaphore")
    ),
    _of("O2", "one kind", "goodput_share", 0.75, 0.90),
    *(_at_most("O3", load, "ttft_p99_of_slo", 1.0, 0.7) for load in ("load 3x", "load 5x")),
    _at_most("O4", "small KV", "preemptions", 1, 0),
    _of("O4", "small KV", "in_slo", 1.0, 1.1, "native"),
    _at_most("O5", "refuse", "refusal_p99_ms", 100, 50),
    *(_at_most("O6", load, "refusals_in_200", 0, 0) for load in ("load 3x", "load 5x", "flood")),
    _of("O7", "greedy", "polite_kept", 0.90, 0.98),
    _of("O8", "flood", "reader_kept", 0.90, 0.97),
    _at_most("O8", "flood", "reader_ttft_p99", 2.0, 1.0),
    *(_at_most("O9", cell, "thrown_away_share", 0.02, 0.005) for cell in ("load 3x", "load 5x", "small KV")),
    Goal("pictures", "in_slo", OURS, 1.5, 2.5, subject=SHRINKING, name="O10"),
    _of("O11", "load 0.7x", "goodput_share", 0.98, 1.0, "direct"),
    *(_of("O12", load, "promises_kept", 0.7, 0.85) for load in ("load 3x", "load 5x")),
)
