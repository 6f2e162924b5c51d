"""A replay of oracle files: what the models' own processors said of each size, beside what we say.

A case is an object (`w`, `h`, `tokens` or `error`, `c` for its configuration), or, where the file has `columns`, a list
in their order among those of its configuration; no tokens then mean an error.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import typer

from gateway.domain.geometry import Size
from gateway.domain.vision.base import UnservableImageError, VisionFamily
from gateway.domain.vision.gemma4 import Gemma4
from gateway.domain.vision.ovis2_5 import Ovis2_5
from gateway.domain.vision.pixtral import Pixtral
from gateway.domain.vision.qwen_siblings import QwenSibling
from gateway.domain.vision.qwen_vl import QwenVL
from gateway.domain.vision.registry import family_for

INVERSE_FAMILY = "qwen_inverse"
"""Oracle files of this family hold a token budget per case, and the size that meets it."""

_RESIZING = (QwenVL, QwenSibling, Ovis2_5, Pixtral, Gemma4)
"""Whose `resized_*` are what the image becomes. Of others they are the canvas that it is put into."""


class OracleError(ValueError):
    """A file that cannot be replayed; the text says what it lacks."""


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


def replay(oracle: Mapping[str, Any], *, as_json: bool) -> bool:
    """Prints every mismatch and the sum. True where there is none. Raises OracleError."""
    configs = "configs" if "configs" in oracle or "config" not in oracle else "config"
    missing = [key for key in ("family", configs, "cases") if key not in oracle]
    if missing:
        raise OracleError(f"the oracle file lacks {', '.join(missing)}")
    try:
        answers = list(_inverse_answers(oracle) if oracle["family"] == INVERSE_FAMILY else _token_answers(oracle))
    except (KeyError, IndexError, TypeError, AttributeError) as broken:
        raise OracleError(f"the oracle file has a case that cannot be read: {broken!r}") from broken
    mismatches = [answer.mismatch for answer in answers if not answer.is_exact]
    for mismatch in mismatches:
        typer.echo(f"mismatch: {json.dumps(mismatch)}")
    typer.echo(f"{oracle['family']}: {len(answers) - len(mismatches)} of {len(answers)} cases exact")
    if as_json:
        exact = len(answers) - len(mismatches)
        typer.echo(json.dumps({"cases": len(answers), "exact": exact, "mismatches": mismatches}))
    return not mismatches


def _token_answers(oracle: Mapping[str, Any]) -> Iterator[Answer]:
    configs = oracle["configs"] if "configs" in oracle else [oracle["config"]]
    models = [family_for(oracle["family"], config) for config in configs]
    for case in _cases(oracle):
        model = models[case.get("c", 0)]
        keys = _compared(model, case)
        yield Answer(case, _expected_cost(case, keys), _cost(model, Size(case["w"], case["h"]), keys))


def _cases(oracle: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if "columns" not in oracle:
        yield from oracle["cases"]
        return
    for index, rows in enumerate(oracle["cases"]):
        for row in rows:
            case = dict(zip(oracle["columns"], row, strict=False)) | ({"c": index} if index else {})
            yield case if case["tokens"] is not None else case | {"error": "refused"}


def _compared(model: VisionFamily, case: Mapping[str, Any]) -> frozenset[str]:
    """What of a case is compared beside its tokens. Where a side vanishes there is no size."""
    encoder = {"soft_tokens", "encoder_tokens"} & case.keys()
    has_size = isinstance(model, _RESIZING) and case.get("resized_w") and case.get("resized_h")
    return frozenset(encoder | ({"resized_w"} if has_size else set()))


def _expected_cost(case: Mapping[str, Any], keys: frozenset[str]) -> str:
    if "error" in case:
        return "error"
    at = f" at {case['resized_w']}x{case['resized_h']}" if "resized_w" in keys else ""
    encoder = next((f", {case[key]} for the encoder" for key in ("soft_tokens", "encoder_tokens") if key in keys), "")
    return f"{case['tokens']} tokens{at}{encoder}"


def _cost(model: VisionFamily, size: Size, keys: frozenset[str]) -> str:
    try:
        cost = model.tokens(size)
    except UnservableImageError:
        return "error"
    at = f" at {cost.model_size}" if "resized_w" in keys else ""
    encoder = f", {cost.encoder} for the encoder" if keys - {"resized_w"} else ""
    return f"{cost.placeholder} tokens{at}{encoder}"


def _inverse_answers(oracle: Mapping[str, Any]) -> Iterator[Answer]:
    models = [QwenVL(INVERSE_FAMILY, c["factor"], c["min_pixels"], c["max_pixels"]) for c in oracle["configs"]]
    for case in oracle["cases"]:
        model, size = models[case.get("c", 0)], Size(case["w"], case["h"])
        cost = "error" if case["cost"] is None else f"{case['cost']} tokens"
        expected = f"{cost}, then {_expected_target(case['aligned'])}"
        yield Answer(case, expected, f"{_cost(model, size, frozenset())}, then {_target(model, size, case['T'])}")


def _expected_target(aligned: str | Mapping[str, Any]) -> str:
    if isinstance(aligned, str):
        return aligned
    return f"{aligned['tokens']} tokens at {aligned['w']}x{aligned['h']}" if aligned["ok"] else "budget cannot be met"


def _target(model: QwenVL, size: Size, budget: int) -> str:
    target = model.shrink(size, budget)
    if target is None:
        return "budget cannot be met"
    return "keep" if target == size else f"{model.tokens(target).placeholder} tokens at {target}"
