"""How plans did on observed starts, in the terminal."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console

from gateway.cli.plan.scores import COMPONENTS, Score, by_phase, summary
from gateway.cli.plan.tables import table_of
from gateway.domain.memory.planning import OUT_OF_SCOPE


def print_scores(console: Console, scores: Sequence[Score]) -> None:
    """Errors of all cases, and of each half by itself."""
    halves = {
        "all": scores,
        "fitted on": [each for each in scores if each.is_fitted_on],
        "measured on": [each for each in scores if not each.is_fitted_on],
    }
    table = table_of(
        "Plans beside what was observed", "component", "half", "n", "median", "p95", "worst", "unit of error"
    )
    for name, unit in COMPONENTS.items():
        for half, chosen in halves.items():
            row = summary(chosen)[name]
            table.add_row(name, half, str(row["n"]), *(_number(row[key]) for key in ("median", "p95", "worst")), unit)
    console.print(table)
    verdicts = table_of("Verdicts by what was observed", "observed", "n", "right", "too close")
    for phase, counts in by_phase(scores).items():
        verdicts.add_row(phase, *(str(counts[key]) for key in ("n", "right", "too_close")))
    total: dict[str, Any] = summary(scores)["verdict"]
    verdicts.add_row("all", *(str(total[key]) for key in ("n", "right", "too_close")))
    console.print(verdicts)
    skipped = table_of("No start compared", "reason", "cases")
    for reason, count in summary(scores)["skipped"].items():
        skipped.add_row(reason, str(count))
    console.print(skipped)
    console.print(OUT_OF_SCOPE, markup=False)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
