"""A panel as its dashboard describes it, and as Grafana reads it.

The keys are those of Grafana's dashboard schema (kind 11); tests/deploy holds every file against the schema's own
model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from scripts.dashboards import promql

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
COLUMNS = 24

Kind = Literal["graph", "number", "bars", "heatmap"]
_TYPES: Mapping[Kind, str] = {"graph": "timeseries", "number": "stat", "bars": "bargauge", "heatmap": "heatmap"}
# Their value is that of the whole time range or of now; the others show how it went.
_OF_ONE_MOMENT = frozenset({"number", "bars"})
_HEIGHTS: Mapping[Kind, int] = {"graph": 8, "number": 4, "bars": 8, "heatmap": 8}


@dataclass(frozen=True, slots=True)
class Query:
    """`legend` is Grafana's template of a series' name, such as `{{reason}}`."""

    expr: str
    legend: str


@dataclass(frozen=True, slots=True)
class Panel:
    """`unit` is one of Grafana's unit ids. `runbook` is the section of docs/runbook.md that helps. `red_from` is the
    value from which a number is a matter of concern, `most` the end of its scale.
    """

    title: str
    description: str
    queries: tuple[Query, ...]
    unit: str
    kind: Kind = "graph"
    width: int = 8
    runbook: str | None = None
    red_from: float | None = None
    most: float | None = None

    @property
    def height(self) -> int:
        return _HEIGHTS[self.kind]


@dataclass(frozen=True, slots=True)
class Text:
    """A panel of Markdown."""

    title: str
    description: str
    markdown: str
    width: int = COLUMNS
    height: int = 9


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under a heading, from left to right and top to bottom."""

    title: str
    panels: Sequence[Panel | Text]


def graph(title: str, description: str, *queries: Query, unit: str, **more: Any) -> Panel:
    """How it went over time."""
    return Panel(title, description, queries, unit, **more)


def number(title: str, description: str, *queries: Query, unit: str, width: int = 4, **more: Any) -> Panel:
    """One number, or one for each series."""
    return Panel(title, description, queries, unit, kind="number", width=width, **more)


def bars(title: str, description: str, query: Query, *, unit: str, **more: Any) -> Panel:
    """A bar for each series, of the whole time range."""
    return Panel(title, description, (query,), unit, kind="bars", **more)


def heatmap(title: str, description: str, query: str, *, unit: str, **more: Any) -> Panel:
    """A histogram over time; `query` gives its buckets by `le`."""
    return Panel(title, description, (Query(query, "{{le}}"),), unit, kind="heatmap", **more)


def quantiles(metric: str, *shares: float) -> list[Query]:
    """Of a histogram, for a graph."""
    return [Query(promql.quantile(share, metric), f"p{share * 100:g}") for share in shares]


def panel_json(panel: Panel, links: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Without its place on the page."""
    return {
        "type": _TYPES[panel.kind],
        "title": panel.title,
        "description": panel.description,
        "datasource": DATASOURCE,
        "links": list(links),
        "targets": [_target(panel, index, query) for index, query in enumerate(panel.queries)],
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": _OPTIONS[panel.kind](panel),
    }


def text_json(text: Text) -> dict[str, Any]:
    """Without its place on the page."""
    return {
        "type": "text",
        "title": text.title,
        "description": text.description,
        "options": {"mode": "markdown", "content": text.markdown},
    }


def _target(panel: Panel, index: int, query: Query) -> dict[str, Any]:
    is_instant = panel.kind in _OF_ONE_MOMENT
    return {
        "refId": chr(ord("A") + index),
        "datasource": DATASOURCE,
        "editorMode": "code",
        "expr": query.expr,
        "legendFormat": query.legend,
        "instant": is_instant,
        "range": not is_instant,
        "format": "heatmap" if panel.kind == "heatmap" else "time_series",
    }


def _defaults(panel: Panel) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0, "thresholds": _thresholds(panel)}
    if panel.most is not None:
        defaults["max"] = panel.most
    if panel.kind == "graph":
        defaults["custom"] = {"drawStyle": "line", "lineWidth": 1, "fillOpacity": 10, "showPoints": "auto"}
    return defaults


def _thresholds(panel: Panel) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.red_from is not None:
        steps.append({"color": "red", "value": panel.red_from})
    return {"mode": "absolute", "steps": steps}


def _graph_options(_panel: Panel) -> dict[str, Any]:
    legend = {"displayMode": "table", "placement": "bottom", "showLegend": True, "calcs": ["lastNotNull", "max"]}
    return {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}


def _reduced() -> dict[str, Any]:
    return {"values": False, "calcs": ["lastNotNull"], "fields": ""}


def _number_options(_panel: Panel) -> dict[str, Any]:
    return {"reduceOptions": _reduced(), "orientation": "auto", "colorMode": "value", "graphMode": "none"}


def _bars_options(_panel: Panel) -> dict[str, Any]:
    return {"reduceOptions": _reduced(), "orientation": "horizontal", "displayMode": "basic", "showUnfilled": True}


def _heatmap_options(panel: Panel) -> dict[str, Any]:
    return {
        "calculate": False,
        "cellGap": 1,
        "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64},
        "yAxis": {"unit": panel.unit, "axisPlacement": "left"},
        "legend": {"show": True},
        "tooltip": {"mode": "single", "yHistogram": True},
    }


_OPTIONS = {"graph": _graph_options, "number": _number_options, "bars": _bars_options, "heatmap": _heatmap_options}
