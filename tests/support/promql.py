"""What a query asks for, held against what the gateway declares: a name that does not exist finds nothing, silently."""

import re
from collections.abc import Collection, Iterator, Mapping

import promql_parser

from gateway.telemetry import declarations
from gateway.telemetry.declaring import Declaration

TARGET_LABELS = frozenset({"namespace", "job", "instance"})
"""Prometheus gives them to every series of a target."""

DECLARED: Mapping[str, Declaration] = {
    each.full_name: each
    for each in (
        *declarations.RECORDED,
        *declarations.OBSERVED,
        declarations.SHADOW_DECISIONS,
        declarations.SHADOW_IMAGES,
        declarations.BUILD_INFO,
    )
}

_OF_HISTOGRAMS = re.compile(r"(.+)_(bucket|sum|count)")
_OVER_COUNTERS = frozenset({"rate", "increase", "irate"})
_VARIABLE = re.compile(r"\$\w+|\.\*")


def complaints(query: str, recorded: Collection[str] = ()) -> list[str]:
    """A sentence for each thing that the query asks for and nobody has. `recorded` are names of recording rules."""
    found = _Finder(recorded)
    found.look_at(promql_parser.parse(query), ())
    return found.complaints


def metrics_in(query: str) -> set[str]:
    """Names of the declared metrics that the query asks for."""
    names = {name for name, _ in _selectors(promql_parser.parse(query))}
    return {declared.full_name for name in names if (declared := _declared(name)[0]) is not None}


def labels_of(query: str) -> set[str]:
    """Labels that the query groups by, anywhere in it."""
    return {label for node in _nodes(promql_parser.parse(query)) for label in _grouped_by(node)}


class _Finder:
    def __init__(self, recorded: Collection[str]) -> None:
        self._recorded = recorded
        self.complaints: list[str] = []

    def look_at(self, node: promql_parser.Expr, functions: tuple[str, ...]) -> None:
        """`functions` are those that the node stands in."""
        if isinstance(node, promql_parser.Call):
            functions = (*functions, node.func.name)
        if isinstance(node, promql_parser.VectorSelector):
            self._look_at_series(node, functions)
        for label in _grouped_by(node):
            self._look_at_group(label, node)
        for child in _children(node):
            self.look_at(child, functions)

    def _look_at_series(self, node: promql_parser.VectorSelector, functions: tuple[str, ...]) -> None:
        if node.name in self._recorded:
            return
        declared, suffix = _declared(node.name)
        if declared is None:
            self.complaints.append(f"there is no metric {node.name}")
            return
        self._look_at_kind(node.name, declared, functions)
        for matcher in node.matchers.matchers:
            self._look_at_matcher(node.name, declared, suffix, matcher)

    def _look_at_kind(self, name: str, declared: Declaration, functions: tuple[str, ...]) -> None:
        only_grows = declared.kind != "gauge"
        if only_grows != bool(_OVER_COUNTERS.intersection(functions)):
            self.complaints.append(f"{name} is a {declared.kind}, and stands in {functions or 'no function'}")

    def _look_at_matcher(self, name: str, declared: Declaration, suffix: str, matcher: promql_parser.Matcher) -> None:
        if matcher.name in TARGET_LABELS:
            return
        if matcher.name == "le" and suffix == "bucket":
            values: Collection[str] | None = {*map(str, declared.buckets), "+Inf"}
        elif matcher.name in {label.name for label in declared.labels}:
            values = next(label.values for label in declared.labels if label.name == matcher.name)
        else:
            self.complaints.append(f"{name} has no label {matcher.name}")
            return
        asked = matcher.value.split("|") if "Re" in str(matcher.op) else [matcher.value]
        unknown = [value for value in asked if value and not _VARIABLE.fullmatch(value)]
        if values is not None:
            self.complaints += [f"{name}: {matcher.name} is never {value}" for value in unknown if value not in values]

    def _look_at_group(self, label: str, node: promql_parser.Expr) -> None:
        if label in TARGET_LABELS or any(name in self._recorded for name, _ in _selectors(node)):
            return
        for name, suffix in _selectors(node):
            declared, _ = _declared(name)
            if declared is None or (label == "le" and suffix == "bucket"):
                continue
            if label not in {each.name for each in declared.labels}:
                self.complaints.append(f"{name} has no label {label} to group by")


def _declared(name: str) -> tuple[Declaration | None, str]:
    """The metric and, of a histogram, which of its series."""
    match = _OF_HISTOGRAMS.fullmatch(name)
    if match and (histogram := DECLARED.get(match[1])) is not None and histogram.kind == "histogram":
        return histogram, match[2]
    found = DECLARED.get(name)
    return (None, "") if found is None or found.kind == "histogram" else (found, "")


def _selectors(node: promql_parser.Expr) -> Iterator[tuple[str, str]]:
    for each in _nodes(node):
        if isinstance(each, promql_parser.VectorSelector):
            yield each.name, _declared(each.name)[1]


def _nodes(node: promql_parser.Expr) -> Iterator[promql_parser.Expr]:
    yield node
    for child in _children(node):
        yield from _nodes(child)


def _children(node: promql_parser.Expr) -> list[promql_parser.Expr]:
    match node:
        case promql_parser.MatrixSelector():
            return [node.vector_selector]
        case promql_parser.Call():
            return list(node.args)
        case promql_parser.BinaryExpr():
            return [node.lhs, node.rhs]
        case promql_parser.AggregateExpr() | promql_parser.ParenExpr() | promql_parser.UnaryExpr():
            return [node.expr]
        case promql_parser.VectorSelector() | promql_parser.NumberLiteral() | promql_parser.StringLiteral():
            return []
    raise TypeError(f"a query with {type(node).__name__}, which nobody looks into")


def _grouped_by(node: promql_parser.Expr) -> list[str]:
    if isinstance(node, promql_parser.AggregateExpr | promql_parser.BinaryExpr) and node.modifier is not None:
        labels = node.modifier.labels if isinstance(node, promql_parser.AggregateExpr) else _matched_on(node)
        return list(labels)
    return []


def _matched_on(node: promql_parser.BinaryExpr) -> list[str]:
    return [] if node.modifier.matching is None else node.modifier.matching.labels
