"""`vlm-gateway tokens`: what an image costs a model, or every model, offline, and a replay of oracle files."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from gateway.cli.options import wide_console
from gateway.cli.oracle import OracleError, replay
from gateway.domain.geometry import Size
from gateway.domain.vision.base import ImageTokens, ProcessorConfigError, UnservableImageError, VisionFamily
from gateway.domain.vision.registry import FAMILIES, UnknownFamilyError, family_for

_COLUMNS = {
    "model_size": "model sees",
    "placeholder_tokens": "placeholder tokens",
    "prompt_tokens": "prompt tokens",
    "least_prompt_tokens": "at least",
    "encoder_tokens": "encoder embeddings",
}


def tokens(
    sizes: Annotated[list[str] | None, typer.Argument(help="Sizes after EXIF orientation, such as 1920x1080.")] = None,
    family: Annotated[str | None, typer.Option(help="Model family; `vlm-gateway families` lists them.")] = None,
    config: Annotated[
        str | None,
        typer.Option(help="The model's preprocessor_config.json: the file, or its JSON. Default: as checkpoints ship."),
    ] = None,
    all_families: Annotated[bool, typer.Option("--all", help="All families in one table for each size.")] = False,
    oracle: Annotated[Path | None, typer.Option(help="Replay this oracle file; exit 1 on any mismatch.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="End with one line of JSON.")] = False,
) -> None:
    """Print what images of these sizes cost: the size that the model makes of them, and tokens.

    Placeholder tokens are what the image takes inside its markers; prompt tokens count the markers too, at most where
    size alone does not decide, and then what is sure to come stands beside them. Encoder embeddings are what counts
    against the encoder's budget, shown where they differ.

    For example:

      vlm-gateway tokens --family qwen2_5_vl 1920x1080 4000x3000

      vlm-gateway tokens --family qwen3_vl --config '{"patch_size": 16, "max_pixels": 1310720}' 1024x1024

      vlm-gateway tokens --family qwen2_5_vl --config /models/my-vl/preprocessor_config.json 640x480

      vlm-gateway tokens --all 1920x1080

      vlm-gateway tokens --oracle tests/data/oracles/qwen2_5_vl.json --json
    """
    try:
        if oracle is not None:
            _check_alone(sizes, family, config, all_families)
            is_fine = replay(_read_json(oracle.read_text, str(oracle)), as_json=as_json)
        elif all_families:
            is_fine = _price_all(_parse_sizes(sizes), family or config, as_json=as_json)
        else:
            is_fine = _price(sizes or [], family, config, as_json=as_json)
    except (UnknownFamilyError, ProcessorConfigError, OracleError, _UsageError, OSError) as mistake:
        Console(stderr=True).print(f"vlm-gateway tokens: {mistake}", markup=False, soft_wrap=True)
        raise typer.Exit(2) from mistake
    if not is_fine:
        raise typer.Exit(1)


class _UsageError(ValueError):
    """What was asked for cannot be read; the text says what to write instead."""


def _check_alone(*others: object) -> None:
    if any(others):
        raise _UsageError("--oracle stands alone: family, configurations and sizes come from the file")


def _price(sizes: list[str], family: str | None, config: str | None, *, as_json: bool) -> bool:
    """Prints the costs. False where the model refuses one of the sizes."""
    if family is None or not sizes:
        raise _UsageError("give --family and sizes such as 1920x1080, or --oracle FILE")
    model = family_for(family, None if config is None else _read_config(config))
    rows = [{"size": str(size), **_row(model, size)} for size in map(_parse_size, sizes)]
    title = f"{model.name}: at most {model.max_image_tokens} tokens an image"
    Console().print(_table(title, "size", "image", rows, _shown(rows)))
    if as_json:
        typer.echo(json.dumps({"family": model.name, "images": rows}))
    return not any("error" in row for row in rows)


def _price_all(sizes: Sequence[Size], narrowed: str | None, *, as_json: bool) -> bool:
    """Prints one table a size, of families as checkpoints ship them. A family that refuses a size says so in it."""
    if narrowed:
        raise _UsageError("--all takes no --family and no --config: families are as checkpoints ship them")
    models = [family_for(name, None) for name in FAMILIES]
    priced = {str(size): [{"family": model.name, **_row(model, size)} for model in models] for size in sizes}
    for size, rows in priced.items():
        wide_console().print(_table(f"{size}, with what checkpoints ship", "family", "family", rows, tuple(_COLUMNS)))
    if as_json:
        typer.echo(json.dumps({"images": [{"size": size, "families": rows} for size, rows in priced.items()]}))
    return True


def _row(model: VisionFamily, size: Size) -> dict[str, Any]:
    try:
        cost = model.tokens(size)
    except UnservableImageError as unservable:
        return {"error": str(unservable)}
    return {
        "model_size": str(cost.model_size),
        "placeholder_tokens": cost.placeholder,
        "prompt_tokens": cost.prompt,
    } | _differing(cost)


def _differing(cost: ImageTokens) -> dict[str, int]:
    """Counts that need saying only where they are not those of the others."""
    least = {} if cost.least_prompt == cost.prompt else {"least_prompt_tokens": cost.least_prompt}
    return least | ({} if cost.encoder == cost.placeholder else {"encoder_tokens": cost.encoder})


def _shown(rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Columns that any row fills, and the first three in any case."""
    always = tuple(_COLUMNS)[:3]
    return tuple(column for column in _COLUMNS if column in always or any(column in row for row in rows))


def _table(title: str, key: str, heading: str, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> Table:
    table = Table(title=title)
    table.add_column(heading, justify="left" if key == "family" else "right")
    for column in columns:
        table.add_column(_COLUMNS[column], justify="right")
    for row in rows:
        cells = [row.get("error")] if "error" in row else []
        cells += [_cell(row, column) for column in columns[len(cells) :]]
        table.add_row(row[key], *cells)
    return table


def _cell(row: Mapping[str, Any], column: str) -> str:
    """Counts that are the same as another are said again in a table."""
    same = {"least_prompt_tokens": "prompt_tokens", "encoder_tokens": "placeholder_tokens"}
    return str(row.get(column, row.get(same.get(column, column), "-")))


def _parse_sizes(texts: list[str] | None) -> list[Size]:
    if not texts:
        raise _UsageError("give sizes such as 1920x1080")
    return [_parse_size(text) for text in texts]


def _parse_size(text: str) -> Size:
    width, separator, height = text.lower().partition("x")
    if not (separator and width.isdecimal() and height.isdecimal()):
        raise _UsageError(f"{text!r} is no size; write WIDTHxHEIGHT, such as 1920x1080")
    return Size(int(width), int(height))


def _read_config(config: str) -> Mapping[str, object]:
    if config.lstrip().startswith("{"):
        return _read_json(lambda: config, "--config")
    return _read_json(Path(config).read_text, config)


def _read_json(read: Callable[[], str], name: str) -> dict[str, Any]:
    try:
        content = json.loads(read())
    except ValueError as broken:
        raise _UsageError(f"{name} is not JSON: {broken}") from broken
    if not isinstance(content, dict):
        raise _UsageError(f"{name} holds {type(content).__name__} where an object is needed")
    return content
