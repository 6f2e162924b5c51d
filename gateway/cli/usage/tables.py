"""How `usage` prints its sums."""

import csv
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from gateway.cli.options import errors, wide_console
from gateway.cli.usage.sums import Sum, Sums
from gateway.replay.lines import Unusable

_COLUMNS = ("requests", "text", "visual", "media", "output", "cached", "estimated", "total")


def print_unusable(unusable: Mapping[str, Unusable]) -> None:
    """On standard error, so that what is piped on has the sums alone."""
    for name, each in unusable.items():
        for why, count in each.counts.items():
            lines = ", ".join(map(str, each.examples[why]))
            plural = "line" if count == 1 else "lines"
            errors.print(f"{name}: {count:,} {plural} cannot be used: {why}. The first: {lines}", markup=False)


def print_table(sums: Sums) -> None:
    table = Table(box=box.SIMPLE, title="Tokens of the engine", title_justify="left")
    for group in sums.groups:
        table.add_column(group)
    for name in _COLUMNS:
        table.add_column(name, justify="right")
    for key, row in sums.in_order():
        table.add_row(*map(Text, key), *_cells(row))
    if len(sums.rows) > 1:
        table.add_section()
        table.add_row("all", *[""] * (len(sums.groups) - 1), *_cells(sums.whole()))
    console = wide_console()
    console.print(table)
    console.print(_about(sums), markup=False, soft_wrap=True)


def _cells(row: Sum) -> list[str]:
    return [f"{value:,}" if value else "-" for value in (getattr(row, name) for name in _COLUMNS)]


def _about(sums: Sums) -> str:
    outside = f", {sums.outside:,} lie outside the days asked for" if sums.outside else ""
    return (
        f"Of {sums.lines:,} lines {sums.idle:,} took nothing of the engine{outside}. `cached` is part of the prompt "
        "(text, visual, media); `estimated` is what of the total no engine reported."
    )


def print_as_json(sums: Sums) -> None:
    rows = [_fields(sums, key, row) for key, row in sums.in_order()]
    whole = asdict(sums.whole()) | {"total": sums.whole().total}
    about = {"lines": sums.lines, "outside": sums.outside, "idle": sums.idle}
    typer.echo(json.dumps({"rows": rows, "all": whole} | about, ensure_ascii=False))


def print_as_csv(sums: Sums) -> None:
    writer = csv.DictWriter(sys.stdout, [*sums.groups, *_COLUMNS], lineterminator="\n")
    writer.writeheader()
    for key, row in sums.in_order():
        writer.writerow(_fields(sums, key, row))


def _fields(sums: Sums, key: tuple[str, ...], row: Sum) -> dict[str, str | int]:
    return dict(zip(sums.groups, key, strict=True)) | asdict(row) | {"total": row.total}
