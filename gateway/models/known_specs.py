"""The built-in table of model specs: read once, looked up by the last part of a model's id."""

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from gateway.domain.memory.plan import ModelSpec
from gateway.domain.memory.spec_table import same_name, spec_from_row


@cache
def known_specs() -> Mapping[str, ModelSpec]:
    """Every model of the table by its name."""
    table = json.loads((files("gateway.models") / "specs.json").read_text(encoding="utf-8"))
    return {name: spec_from_row(name, row) for name, row in table["models"].items()}


def known_spec(model: str) -> ModelSpec | None:
    """The spec of that id, e.g. `Qwen/Qwen2.5-VL-3B-Instruct`; None: the table has none."""
    return next((spec for name, spec in known_specs().items() if same_name(model, name)), None)
