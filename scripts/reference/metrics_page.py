"""docs/reference/metrics.md, from gateway/telemetry/declarations.py."""

from collections.abc import Iterable, Iterator

from gateway.telemetry import declarations
from gateway.telemetry.declarations import Declaration, Label
from scripts.reference.markdown import code, page, sentence, table

_INTRO = """\
`GET /metrics` has them in Prometheus' text format, or in OpenMetrics where that is asked for. All label values are
there from the start, at zero, but for those that are known only at run time and endpoints that few use. Values of
labels never come from a client's text. Those of histograms end with `_bucket`, `_sum` and `_count`. Beside them
stand the `process_*` metrics of Prometheus' Python client (CPU, memory, open files). How to read them is told in the
[tuning guide](../tuning.md#how-to-read-the-metrics).
"""


def every_metric() -> list[Declaration]:
    """All that the module declares, by itself or in a list."""
    found: dict[str, Declaration] = {}
    for value in vars(declarations).values():
        for each in value if isinstance(value, tuple) else (value,):
            if isinstance(each, Declaration):
                found[each.name] = each
    return sorted(found.values(), key=lambda each: each.name)


def every_label() -> list[Label]:
    found = {(label.name, label.values): label for each in every_metric() for label in each.labels}
    return sorted(found.values(), key=lambda label: label.name)


def metrics_page() -> str:
    kinds = ("counter", "gauge", "histogram")
    groups = [
        f"## {kind.capitalize()}s\n\n{_metrics(each for each in every_metric() if each.kind == kind)}" for kind in kinds
    ]
    return page("Metrics", "gateway/telemetry/declarations.py", _INTRO.rstrip(), *groups, "## Labels", _labels())


def _metrics(declared: Iterable[Declaration]) -> str:
    return table(("metric", "labels", "what it tells"), map(_metric, declared))


def _metric(declared: Declaration) -> Iterator[str]:
    buckets = f" Buckets up to {', '.join(f'{bound:.10g}' for bound in declared.buckets)}." if declared.buckets else ""
    yield code(declared.full_name)
    yield ", ".join(code(label.name) for label in declared.labels)
    yield sentence(declared.help) + buckets


def _labels() -> str:
    rows = [(code(label.name), sentence(label.help), _values(label)) for label in every_label()]
    return table(("label", "what it tells", "values"), rows)


def _values(label: Label) -> str:
    return "known at run time" if label.values is None else ", ".join(code(value) for value in label.values)
