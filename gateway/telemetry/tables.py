"""What the metrics count in: a table of plain integers, and a histogram. Each writes or makes its part of the page."""

import time
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, product
from math import prod

from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.samples import Exemplar

from gateway.telemetry import declarations as declared
from gateway.telemetry.declaring import Declaration, Label

# Lines of one table. A hundred models without tenants need fewer; with many tenants, models beyond it are `other`.
_MOST_CELLS = 12_000


class CounterTable:
    """A cell for every combination of label values, of as many models as there is room for."""

    __slots__ = ("_line_heads", "_most_cells", "_of_the_operator", "cells", "declaration")

    def __init__(
        self, declaration: Declaration, of_the_operator: Sequence[str] = (), most_cells: int = _MOST_CELLS
    ) -> None:
        """The operator's names are the values of a label that has none of its own, other than the model."""
        self._most_cells = most_cells
        self.declaration = declaration
        self._of_the_operator = of_the_operator
        self.cells: dict[tuple[str, ...], int] = {}
        self._line_heads: list[str] = []

    def open_cells(self, models: Sequence[str]) -> None:
        """Cells at zero for `models`; those that exist keep their count."""
        labels = self.declaration.labels
        for model in models if declared.MODEL in labels else models[:1]:
            values = [self._values(label, model) for label in labels]
            if len(self.cells) + prod(map(len, values)) <= self._most_cells:
                for key in product(*values):
                    self.open(key)

    def open_late(self, model: str, tenant_class: str, most_cells: int) -> bool:
        """Cells at zero for what was not there from the start; False where there is no room, or no such class."""
        values = [(tenant_class,) if label.values is None else label.values for label in self.declaration.labels[1:]]
        if tenant_class not in self._of_the_operator or len(self.cells) + prod(map(len, values)) > most_cells:
            return False
        for key in product((model,), *values):
            self.open(key)
        return True

    def _values(self, label: Label, model: str) -> Sequence[str]:
        if label.values is not None:
            return [value for value in label.values if value not in label.later]
        return (model,) if label is declared.MODEL else self._of_the_operator

    def open(self, key: tuple[str, ...]) -> None:
        """The one of these values, at zero unless it is there already."""
        if key in self.cells:
            return
        self.cells[key] = 0
        labels = zip(self.declaration.labels, key, strict=True)
        pairs = sorted(f'{label.name}="{_escaped(value)}"' for label, value in labels)
        self._line_heads.append(f"{self.declaration.full_name}{{{','.join(pairs)}}} ")

    def text(self, *, is_openmetrics: bool) -> str:
        """Its lines on the page; both formats write a counter's samples in the same way, as the library does."""
        name = self.declaration.full_name.removesuffix("_total" if is_openmetrics else "")
        lines = [f"# HELP {name} {self.declaration.help}", f"# TYPE {name} counter"]
        cells = zip(self._line_heads, self.cells.values(), strict=True)
        return "\n".join([*lines, *[f"{head}{count}.0" for head, count in cells], ""])


class Histogram:
    """Counts by bucket, and the sum."""

    __slots__ = ("_bounds", "_exemplars", "counts", "declaration", "total")

    def __init__(self, declaration: Declaration) -> None:
        self.declaration = declaration
        self._bounds = declaration.buckets
        self.counts = [0] * (len(declaration.buckets) + 1)
        self.total = 0.0
        self._exemplars: dict[int, Exemplar] = {}

    def observe(self, value: float, trace_id: str | None = None) -> None:
        """`trace_id` of the trace that shows what took so long."""
        bucket = bisect_left(self._bounds, value)
        self.counts[bucket] += 1
        self.total += value
        if trace_id is not None:
            self._exemplars[bucket] = Exemplar({"trace_id": trace_id}, value, time.time())

    def family(self) -> Metric:
        names = [*map(str, self._bounds), "+Inf"]
        buckets: list[tuple[str, float] | tuple[str, float, Exemplar]] = list(
            zip(names, accumulate(self.counts), strict=True)
        )
        for bucket, exemplar in self._exemplars.items():
            buckets[bucket] = (names[bucket], buckets[bucket][1], exemplar)
        return HistogramMetricFamily(self.declaration.full_name, self.declaration.help, buckets, self.total)


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
