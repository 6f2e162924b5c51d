"""Rounds to medians, medians to tables."""

import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from rich.table import Table

from benchmarks.bench import Rounds
from benchmarks.goals import GOALS, Goal, Results
from benchmarks.scenarios import SCENARIOS, Column, Figures, Scenario, ratio

NOTICE = """\
Judge by ratios of CPU-second figures within this one run. The machine is shared: requests per second and delays mean
something only while the load average is low, and figures of two runs do not compare. The load generator is Python on
one core: a proxy whose core use stays far below 1 was not driven to its limit, and wakes up more often per request than
it would there, so its CPU figures are upper bounds. SPREAD is (largest - smallest) / median of the first column."""


def medians(rounds: Sequence[Figures]) -> Figures:
    """The median of every number over the rounds; the codes are added up."""
    figures: Figures = {}
    for key in rounds[0]:
        numbers = [one[key] for one in rounds if isinstance(one.get(key), int | float)]
        figures[key] = statistics.median(numbers) if numbers else None
    figures["best_p50_us"] = min((one["p50_us"] for one in rounds if one.get("p50_us")), default=None)
    figures["codes"] = dict(sum((Counter(one["codes"]) for one in rounds), Counter[str]()))
    for key in ("errors", "broken_streams", "cut_uploads"):
        figures[key] = sum(one.get(key, 0) for one in rounds)
    figures["served"] = figures["codes"].get("200", 0) / len(rounds)
    return figures


def summary(rounds: Rounds) -> dict[str, Figures]:
    """Medians of every row; with `direct` among them, what each row adds to it."""
    rows = {name: medians(of_row) for name, of_row in rounds.items() if of_row}
    direct = rows.get("direct", {}).get("best_p50_us")
    for figures in rows.values():
        if direct and figures["best_p50_us"]:
            figures["added_p50_us"] = figures["best_p50_us"] - direct
    return rows


def spread_percent(column: Column, rounds: Sequence[Figures]) -> float | None:
    numbers = [one[column.key] for one in rounds if one.get(column.key)]
    return 100 * (max(numbers) - min(numbers)) / statistics.median(numbers) if numbers else None


def scenario_table(scenario: Scenario, rounds: Rounds, rows: Mapping[str, Figures]) -> Table:
    table = Table(title=f"{scenario.name}: {scenario.what}", title_justify="left", title_style="bold")
    table.add_column("peer", no_wrap=True)
    for title in [*(column.title for column in scenario.columns), "spread %"]:
        table.add_column(title, justify="right")
    table.add_column("notes")
    first = scenario.columns[0]
    sign = 1 if first.less_is_better else -1
    for name, figures in sorted(rows.items(), key=lambda row: sign * (row[1].get(first.key) or 0)):
        cells = [number(figures.get(column.key)) for column in scenario.columns]
        table.add_row(name, *cells, number(spread_percent(first, rounds[name])), notes(figures))
    return table


def notes(figures: Figures) -> str:
    """What a reader must know before believing a row."""
    said = [f"{code}: {count}" for code, count in figures["codes"].items() if code != "200"]
    said += [
        f"{key.replace('_', ' ')}: {figures[key]}"
        for key in ("errors", "broken_streams", "cut_uploads")
        if figures[key]
    ]
    return ", ".join(said)


def number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def ratio_table(subject: str, results: Results) -> Table:
    """The figures of `subject` divided by those of every other row: 2 in a column "more is better" is twice as good."""
    others = list(dict.fromkeys(name for rows in results.values() for name in rows if name != subject))
    table = Table(title=f"{subject} divided by", title_justify="left", title_style="bold")
    table.add_column("figure")
    for name in others:
        table.add_column(name, justify="right")
    for scenario, rows in results.items():
        for column in SCENARIOS[scenario].columns:
            if column.compared and subject in rows:
                cells = [_compared(rows, subject, name, column.key) for name in others]
                less = " (less is better)" if column.less_is_better else ""
                table.add_row(f"{scenario}: {column.title}{less}", *cells)
    return table


def _compared(rows: Mapping[str, Figures], subject: str, name: str, key: str) -> str:
    return number(ratio(rows[subject].get(key), rows.get(name, {}).get(key)))


def goal_table(
    results: Results, goals: Sequence[Goal] = GOALS, doubt: Callable[[Goal], str] | None = None
) -> Table | None:
    """Goals whose two rows were measured; None if there is none. `doubt`: why a goal's figures say nothing, if so."""
    table = Table(title="goals", title_justify="left", title_style="bold")
    for title in ("figure", "of", "divided by", "measured", "floor", "target", "reached"):
        table.add_column(title)
    for goal in goals:
        measured = goal.reached(results)
        if measured is not None:
            figure = f"{goal.name} {goal.scenario}: {goal.figure}".lstrip()
            bounds = (number(measured), number(goal.floor), number(goal.target))
            table.add_row(
                figure, goal.subject, goal.peer_name, *bounds, (doubt and doubt(goal)) or goal.verdict(measured)
            )
    return table if table.row_count else None
