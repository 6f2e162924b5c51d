"""How `replay` prints what it found."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from gateway.cli.options import errors, wide_console
from gateway.cli.replay.columns import Replayed
from gateway.cli.replay.files import Log
from gateway.domain.outcome import Fate
from gateway.replay.pace import Pace
from gateway.replay.tally import Day, Tally, quantile

_NOTHING = "-"
_FATES = (Fate.ADMITTED, Fate.QUEUED, Fate.REFUSED, Fate.LEFT)


def print_replay(log: Log, replayed: Replayed) -> None:
    """What cannot be used, the engine's pace, then the table."""
    for why, count in log.unusable.counts.items():
        lines = ", ".join(map(str, log.unusable.examples[why]))
        errors.print(f"{log.name}: {count:,} lines cannot be used: {why}. The first: {lines}", markup=False)
    console = wide_console()
    for name, pace in replayed.paces.items():
        console.print(_pace(name, pace), soft_wrap=True, markup=False)
    console.print(_table(log, replayed.days))


def _pace(name: str | None, pace: Pace) -> str:
    whose = f" of {name}" if name else ""
    return (
        f"The engine{whose}, as the log shows it: a first token after {pace.start_seconds * 1000:.0f} ms, "
        f"{pace.prompt_token_seconds * 1e6:.0f} µs a prompt token and {pace.queueing_seconds * 1000:.1f} ms for each "
        f"other request in work; then {pace.token_seconds * 1000:.1f} ms a token, and "
        f"{pace.crowding_seconds * 1000:.2f} ms for each other."
    )


def _table(log: Log, days: Sequence[Day]) -> Table:
    hours = (log.lines[-1].offered - log.lines[0].offered) / 3600
    table = Table(
        title=f"{log.name}: {days[0].all.requests:,} requests in {hours:.1f} h", title_justify="left", box=box.SIMPLE
    )
    table.add_column("")
    for day in days:
        table.add_column(Text(day.name), justify="right")
    for label, cells in _rows([day.all for day in days], is_whole=True):
        table.add_row(label, *cells)
    classes = sorted({name for day in days for name in day.by_class})
    for name in classes if len(classes) > 1 else ():
        table.add_section()
        table.add_row(Text(f"tenant class {name}", style="bold"))
        for label, cells in _rows([day.by_class.get(name, Tally()) for day in days], is_whole=False):
            table.add_row(label, *cells)
    return table


def _rows(tallies: Sequence[Tally], *, is_whole: bool) -> Iterator[tuple[str, list[str]]]:
    def row(label: str, cell: Callable[[Tally], str]) -> tuple[str, list[str]]:
        return label, [cell(tally) for tally in tallies]

    yield row("admitted at once", lambda tally: _share(tally.fates[Fate.ADMITTED], tally))
    yield row("queued", lambda tally: _share(tally.fates[Fate.QUEUED], tally))
    yield row("  wait p50 / p99", lambda tally: _seconds(tally.waits))
    yield row("refused", lambda tally: _share(tally.fates[Fate.REFUSED], tally))
    if is_whole:
        for reason in sorted({reason for tally in tallies for reason in tally.reasons}):
            yield f"  {reason}", [f"{tally.reasons[reason]:,}" for tally in tallies]
    yield row("left while waiting", lambda tally: _share(tally.fates[Fate.LEFT], tally))
    if is_whole:
        yield row("images shrunk", lambda tally: f"{tally.shrunk_images:,}")
        yield row("images left out", lambda tally: f"{tally.trimmed_images:,}")
    yield row("first token p50 / p99", lambda tally: _seconds(tally.first_tokens))


def _share(count: int, tally: Tally) -> str:
    return f"{count:,} ({count / tally.requests:.1%})" if count else _NOTHING


def _seconds(values: Any) -> str:
    half, most = quantile(values, 0.5), quantile(values, 0.99)
    return _NOTHING if half is None or most is None else f"{half:.2f} / {most:.2f} s"


def print_as_json(log: Log, replayed: Replayed) -> None:
    """One line."""
    columns = [
        {
            "name": day.name,
            **_as_json(day.all),
            "tenant_classes": {name: _as_json(tally) for name, tally in sorted(day.by_class.items())},
        }
        for day in replayed.days
    ]
    paces = [{"upstream": name} | pace._asdict() for name, pace in replayed.paces.items()]
    typer.echo(json.dumps({"log": log.name, "unusable": log.unusable.counts, "paces": paces, "columns": columns}))


def _as_json(tally: Tally) -> dict[str, Any]:
    return {
        "requests": tally.requests,
        **{fate.value: tally.fates[fate] for fate in _FATES},
        "reasons": {reason.value: count for reason, count in sorted(tally.reasons.items())},
        "wait_seconds": {"p50": quantile(tally.waits, 0.5), "p99": quantile(tally.waits, 0.99)},
        "first_token_seconds": {"p50": quantile(tally.first_tokens, 0.5), "p99": quantile(tally.first_tokens, 0.99)},
        "shrunk_images": tally.shrunk_images,
        "trimmed_images": tally.trimmed_images,
    }
