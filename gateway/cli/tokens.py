"""`vlm-gateway tokens`: what an image costs a model, offline, and a replay of what the models' own processors said."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from gateway.domain.geometry import Size
from gateway.domain.vision.base import ProcessorConfigError, UnservableImageError, VisionFamily
from gateway.domain.vision.qwen_vl import QwenVL
from gateway.domain.vision.registry import FAMILIES, UnknownFamilyError, family_for

INVERSE_FAMILY = "qwen_inverse"
"""Oracle files of this family hold a token budget per case, and the size that meets it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One case of an oracle file: what it expects and what we say. Equal where we are exact."""

    case: Mapping[str, Any]
    expected: str
    got: str

    @property
    def is_exact(self) -> bool:
        return self.expected == self.got

    @property
    def mismatch(self) -> dict[str, Any]:
        asked = {key: self.case[key] for key in ("w", "h", "T", "c") if key in self.case}
        return asked | {"expected": self.expected, "got": self.got}


def tokens(
    sizes: Annotated[list[str] | None, typer.Argument(help="Sizes after EXIF orientation, such as 1920x1080.")] = None,
    family: Annotated[str | None, typer.Option(help=f"Model family: {', '.join(FAMILIES)}.")] = None,
    config: Annotated[
        str | None,
        typer.Option(help="The model's preprocessor_config.json: the file, or its JSON. Default: as checkpoints ship."),
    ] = None,
    oracle: Annotated[Path | None, typer.Option(help="Replay this oracle file; exit 1 on any mismatch.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="End with one line of JSON.")] = False,
) -> None:
    """Print what images of these sizes cost: the size that the model makes of them, and tokens.

    Placeholder tokens are what the image takes inside its markers and what counts against the encoder; prompt tokens
    count the markers too.

    For example:

      vlm-gateway tokens --family qwen2_5_vl 1920x1080 4000x3000

      vlm-gateway tokens --family qwen3_vl --config '{"patch_size": 16, "max_pixels": 1310720}' 1024x1024

      vlm-gateway tokens --family qwen2_5_vl --config /models/my-vl/preprocessor_config.json 640x480

      vlm-gateway tokens --oracle tests/data/oracles/qwen2_5_vl.json --json
    """
    try:
        if oracle is None:
            is_exact = _price(sizes or [], family, config, as_json=as_json)
        else:
            _check_alone(sizes, family, config)
            is_exact = _replay(_read_json(oracle.read_text, str(oracle)), as_json=as_json)
    except (UnknownFamilyError, ProcessorConfigError, _UsageError, OSError) as mistake:
        Console(stderr=True).print(f"vlm-gateway tokens: {mistake}", markup=False, soft_wrap=True)
        raise typer.Exit(2) from mistake
    if not is_exact:
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
    rows = [_row(model, _parse_size(text)) for text in sizes]
    _print_costs(model, rows)
    if as_json:
        typer.echo(json.dumps({"family": model.name, "images": rows}))
    return not any("error" in row for row in rows)


def _row(model: VisionFamily, size: Size) -> dict[str, Any]:
    try:
        cost = model.tokens(size)
    except UnservableImageError as unservable:
        return {"size": str(size), "error": str(unservable)}
    return {
        "size": str(size),
        "model_size": str(cost.model_size),
        "placeholder_tokens": cost.placeholder,
        "prompt_tokens": cost.prompt,
    }


def _print_costs(model: VisionFamily, rows: list[dict[str, Any]]) -> None:
    table = Table(title=f"{model.name}: at most {model.max_image_tokens} tokens an image")
    for column in ("image", "model sees", "placeholder tokens", "prompt tokens"):
        table.add_column(column, justify="right")
    for row in rows:
        cells = [row["error"], "-", "-"] if "error" in row else [str(value) for value in list(row.values())[1:]]
        table.add_row(row["size"], *cells)
    Console().print(table)


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


def _replay(oracle: Mapping[str, Any], *, as_json: bool) -> bool:
    """Prints every mismatch and the sum. True where there is none."""
    missing = [key for key in ("family", "configs", "cases") if key not in oracle]
    if missing:
        raise _UsageError(f"the oracle file lacks {', '.join(missing)}")
    try:
        answers = list(_inverse_answers(oracle) if oracle["family"] == INVERSE_FAMILY else _token_answers(oracle))
    except (KeyError, IndexError, TypeError, AttributeError) as broken:
        raise _UsageError(f"the oracle file has a case that cannot be read: {broken!r}") from broken
    mismatches = [answer.mismatch for answer in answers if not answer.is_exact]
    for mismatch in mismatches:
        typer.echo(f"mismatch: {json.dumps(mismatch)}")
    typer.echo(f"{oracle['family']}: {len(answers) - len(mismatches)} of {len(answers)} cases exact")
    if as_json:
        exact = len(answers) - len(mismatches)
        typer.echo(json.dumps({"cases": len(answers), "exact": exact, "mismatches": mismatches}))
    return not mismatches


def _token_answers(oracle: Mapping[str, Any]) -> Iterator[Answer]:
    models = [family_for(oracle["family"], config) for config in oracle["configs"]]
    for case in oracle["cases"]:
        yield Answer(case, _expected_cost(case), _cost(models[case.get("c", 0)], Size(case["w"], case["h"]), case))


def _expected_cost(case: Mapping[str, Any]) -> str:
    if "error" in case:
        return "error"
    at = f" at {case['resized_w']}x{case['resized_h']}" if "resized_w" in case else ""
    return f"{case['tokens']} tokens{at}"


def _cost(model: VisionFamily, size: Size, case: Mapping[str, Any]) -> str:
    try:
        cost = model.tokens(size)
    except UnservableImageError:
        return "error"
    at = f" at {cost.model_size}" if "resized_w" in case else ""
    return f"{cost.placeholder} tokens{at}"


def _inverse_answers(oracle: Mapping[str, Any]) -> Iterator[Answer]:
    models = [QwenVL(INVERSE_FAMILY, c["factor"], c["min_pixels"], c["max_pixels"]) for c in oracle["configs"]]
    for case in oracle["cases"]:
        model, size = models[case.get("c", 0)], Size(case["w"], case["h"])
        cost = "error" if case["cost"] is None else f"{case['cost']} tokens"
        expected = f"{cost}, then {_expected_target(case['aligned'])}"
        yield Answer(case, expected, f"{_cost(model, size, case)}, then {_target(model, size, case['T'])}")


def _expected_target(aligned: str | Mapping[str, Any]) -> str:
    if isinstance(aligned, str):
        return aligned
    return f"{aligned['tokens']} tokens at {aligned['w']}x{aligned['h']}" if aligned["ok"] else "budget cannot be met"


def _target(model: QwenVL, size: Size, budget: int) -> str:
    target = model.shrink(size, budget)
    if target is None:
        return "budget cannot be met"
    return "keep" if target == size else f"{model.tokens(target).placeholder} tokens at {target}"
