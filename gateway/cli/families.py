"""`vlm-gateway families`: every family that can be priced, where its numbers come from, and the keys that set them."""

import json
from typing import Annotated, Any

import typer
from rich.table import Table

from gateway.cli.options import wide_console
from gateway.domain.vision.checkpoints import CHECKPOINTS
from gateway.domain.vision.registry import FAMILIES, resolve


def families(
    as_json: Annotated[bool, typer.Option("--json", help="End with one line of JSON.")] = False,
) -> None:
    """List the model families: the published checkpoints that are known by name, how well their numbers are known, and
    the keys of a model's configuration files that change what an image costs, with what stands for them without a file.

    For example:

      vlm-gateway families

      vlm-gateway families --json | tail -1
    """
    rows = [_row(name) for name in FAMILIES]
    table = Table(title=f"{len(rows)} families", show_lines=True)
    for column in ("family", "checkpoints (source of their numbers)", "configuration keys", "architectures"):
        table.add_column(column, no_wrap=column == "family", overflow="fold")
    for row in rows:
        known = [f"{each['title']} ({each['source']})" for each in row["checkpoints"]]
        keys = [f"{key} = {json.dumps(value)}" for key, value in row["keys"].items()]
        table.add_row(row["family"], "\n".join(known), "\n".join(map(_short, keys)), "\n".join(row["architectures"]))
    wide_console().print(table)
    if as_json:
        typer.echo(json.dumps({"families": rows}))


_LONGEST_CELL = 60


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_CELL else f"{text[: _LONGEST_CELL - 1]}…"


def _row(name: str) -> dict[str, Any]:
    checkpoints = [checkpoint for checkpoint in CHECKPOINTS if checkpoint.family == name]
    return {
        "family": name,
        "checkpoints": [{"title": each.title, "source": each.evidence} for each in checkpoints],
        "keys": {number.key: number.value for number in resolve(name).numbers},
        "architectures": FAMILIES[name].architectures,
    }
