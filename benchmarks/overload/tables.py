"""Figures to tables."""

from collections.abc import Mapping, Sequence

from rich.table import Table

from benchmarks.goals import Goal
from benchmarks.overload.scenarios import Cell
from benchmarks.overload.targets import GOALS
from benchmarks.report import goal_table, number
from benchmarks.scenarios import Figures

NOTICE = """\
goodput %  work of requests that ended inside the level, of the capacity; 95 % interval: bootstrap over times of 2 s
TTFT       seconds from the attempt that was let in to its first token; who left before it counts with all his patience
wasted %   generated tokens that served nobody inside the level; thrown % those of answers broken off or preempted
promises % clients that were told when to come back, did, and ended inside the level of their first try
Jain       over each tenant's share of requests inside the level: 1 is fair
CPU        cores used by the arm / by server and load generator. A row marked ! says nothing of admission: there the
           machine was the bound. Judge within one run; 2 cores shared with other work move goodput by some points."""

COLUMNS = (
    "arm",
    "sent",
    "in SLO",
    "per s",
    "goodput %",
    "95 %",
    "TTFT p50",
    "p99",
    "refused",
    "in 200",
    "refusal p50 ms",
    "p99 ms",
    "preempt",
    "wasted %",
    "thrown %",
    "promises %",
    "Jain",
    "CPU",
    "errors that clients saw",
)


def cell_table(cell: Cell, rows: Mapping[str, Figures]) -> Table:
    slo = cell.slo
    level = f"first token {slo.first_token_seconds:g} s, all {slo.total_seconds:g} s"
    table = Table(title=f"{cell.name}: {cell.what} ({level})", title_justify="left", title_style="bold")
    for title in COLUMNS:
        table.add_column(title, justify="left" if title in {COLUMNS[0], COLUMNS[-1]} else "right", overflow="fold")
    for arm, figures in rows.items():
        table.add_row(*_row(arm, figures))
    return table


def _row(arm: str, figures: Figures) -> Sequence[str]:
    interval = figures["goodput_share_interval"]
    return (
        f"{arm} !" if figures["bound_by"] else arm,
        str(figures["sent"]),
        str(figures["in_slo"]),
        number(figures["goodput_per_second"]),
        percent(figures["goodput_share"]),
        f"{percent(interval[0])}-{percent(interval[1])}" if interval else "-",
        number(figures["ttft_p50"]),
        number(figures["ttft_p99"]),
        str(figures["refusals"]),
        str(figures["refusals_in_200"]),
        number(figures["refusal_p50_ms"]),
        number(figures["refusal_p99_ms"]),
        str(figures["preemptions"]),
        percent(figures["wasted_share"]),
        percent(figures["thrown_away_share"]),
        percent(figures["promises_kept"]),
        number(figures["jain"]),
        f"{figures['arm_cpu']:.2f}/{figures['load_cpu']:.2f}",
        _notes(figures),
    )


def percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.3g}"


def _notes(figures: Figures) -> str:
    """The commonest errors, what was kept beside a crowd, and why a row says nothing."""
    said = [f"{count} {error}" for error, count in list(figures["errors"].items())[:3]]
    for prefix in ("polite", "reader"):
        if f"{prefix}_kept" in figures:
            low, high = figures[f"{prefix}_kept_interval"]
            kept = percent(figures[f"{prefix}_kept"])
            said.append(f"{prefix} kept {kept} % ({percent(low)}-{percent(high)}, Wilson)")
    said += [f"bound by {bound}" for bound in figures["bound_by"]]
    return ", ".join(said)


def target_table(results: Mapping[str, Mapping[str, Figures]]) -> Table | None:
    """The targets whose cells were measured."""

    def doubt(goal: Goal) -> str:
        names = {goal.subject, goal.peer or goal.subject}
        bounds = [bound for name in names for bound in results[goal.scenario][name]["bound_by"]]
        return f"says nothing: {', '.join(sorted(set(bounds)))}" if bounds else ""

    table = goal_table(results, GOALS, doubt)
    if table is not None:
        table.title = "targets"
    return table
