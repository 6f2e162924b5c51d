"""schemathesis: requests made up from /openapi.json, right and wrong ones, and what is wrong with their answers.

A line says `{"do": "route", "url": ..., "label": "POST /v1/chat/completions", "examples": 20}`; what comes back has the
statuses that were seen, how often, and a sentence for each failure.
"""

from collections import Counter
from contextlib import suppress
from functools import cache
from typing import Any

import hypothesis
import schemathesis
from hypothesis import HealthCheck, Phase, given
from lines import MODEL, serve
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
MOST_TOKENS = 8
PICTURE = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5E"
    "rkJggg=="
)
BOUNDS = ("max_tokens", "max_completion_tokens", "max_output_tokens", "n")


@cache
def routes(url: str) -> dict[str, Any]:
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    return {result.ok().label: result.ok() for result in schema.get_all_operations()}


def labels(url: str) -> dict[str, Any]:
    return {"labels": sorted(routes(url))}


def served(body: Any) -> None:
    """Half of the requests name the model that there is, want short answers and have pictures: else few were served."""
    if isinstance(body, dict) and len(str(body)) % 2:
        body["model"] = MODEL
        body.pop("priority", None)  # which a server that serves first come, first served refuses
        show(body)
        for name in BOUNDS:
            if isinstance(body.get(name), int):
                body[name] = min(body[name], MOST_TOKENS)


def show(node: Any) -> None:
    """A real picture in place of each one that is made up."""
    for key, value in list(node.items()) if isinstance(node, dict) else enumerate(node):
        if isinstance(value, str) and value.startswith(("data:image/", "http")):
            node[key] = PICTURE
        elif isinstance(value, dict | list):
            show(value)


def route(url: str, label: str, examples: int) -> dict[str, Any]:
    seen: Counter[str] = Counter()
    failures: set[str] = set()
    for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
        _try(routes(url)[label], mode, examples, seen, failures)
    return {"label": label, "statuses": dict(seen), "failures": sorted(failures)}


def _try(operation: Any, mode: GenerationMode, examples: int, seen: Counter[str], failures: set[str]) -> None:
    def ask(case: Any) -> None:
        served(case.body)
        answer = case.call()
        seen[str(answer.status_code)] += 1
        try:
            case.validate_response(answer, checks=CHECKS)
        except (AssertionError, schemathesis.core.failures.FailureGroup) as wrong:
            failures.add(" ".join(str(wrong).split())[:2000])

    settings = hypothesis.settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    with suppress(hypothesis.errors.Unsatisfiable):  # nothing can be wrong with a request that has no parts
        settings(given(case=operation.as_strategy(generation_mode=mode))(ask))()


serve({"labels": labels, "route": route})
