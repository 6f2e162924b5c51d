"""What does not fit the schemas of tests/data/schemas, which scripts/deploy_schemas.py makes."""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

FOLDER = Path(__file__).parents[1] / "data/schemas"
KUBERNETES_VERSIONS = tuple(f"1.{minor}" for minor in range(29, 38))
OF_OPERATORS = frozenset({"HTTPRoute", "PodMonitor", "PrometheusRule", "ScaledObject"})


def faults(manifest: Mapping[str, Any], version: str) -> list[str]:
    """A line for each, of what the API server of that Kubernetes would not take as it stands."""
    kind = manifest["kind"]
    validator = _validator(kind.lower() if kind in OF_OPERATORS else f"kubernetes-{version}", kind)
    return [_line(fault) for error in validator.iter_errors(manifest) for fault in _innermost(error)]


def compose_faults(project: Mapping[str, Any]) -> list[str]:
    return [
        _line(fault) for error in _validator("compose", "compose").iter_errors(project) for fault in _innermost(error)
    ]


@cache
def _validator(file: str, kind: str) -> Draft202012Validator:
    document = json.loads((FOLDER / f"{file}.json").read_text(encoding="utf-8"))
    return Draft202012Validator({**document["kinds"][kind], "$defs": document["$defs"]})


def _innermost(error: ValidationError) -> Iterator[ValidationError]:
    """Of a choice that nothing fits, why not: of each possibility."""
    if not error.context:
        yield error
    for each in error.context or ():
        yield from _innermost(each)


def _line(error: ValidationError) -> str:
    return f"{error.json_path}: {error.message}"
