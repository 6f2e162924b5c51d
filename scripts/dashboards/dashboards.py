"""Whole dashboards: rows laid out on Grafana's grid, variables, links to each other and to the runbook."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scripts.dashboards.panels import COLUMNS, DATASOURCE, Panel, Row, Text, panel_json, text_json

TAG = "vlm-gateway"
RUNBOOK_UID = "vlm-gateway-runbook"
# Of the oldest Grafana that reads these files without changing them.
_SCHEMA_VERSION = 39

_QUERIES = {
    "job": "label_values(gateway_build_info, job)",
    "instance": 'label_values(gateway_build_info{job=~"$job"}, instance)',
    "model": 'label_values(gateway_requests_total{job=~"$job"}, model)',
    "upstream": 'label_values(gateway_upstream_up{job=~"$job"}, upstream)',
}
_LABELS = {"job": "Job", "instance": "Gateway", "model": "Model", "upstream": "Upstream"}


@dataclass(frozen=True, slots=True)
class Dashboard:
    """`variables` are those beside the data source, in the order in which they are shown. The uid is part of
    addresses that people keep: it never changes.
    """

    uid: str
    title: str
    description: str
    variables: tuple[str, ...]
    rows: Sequence[Row]


def dashboard_json(dashboard: Dashboard, runbook_panels: Mapping[str, int]) -> dict[str, Any]:
    """`runbook_panels` has the panel of the runbook's dashboard that each of its sections is in."""
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.description,
        "tags": [TAG],
        "schemaVersion": _SCHEMA_VERSION,
        "editable": True,
        "graphTooltip": 1,
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "30s",
        "links": _links(),
        "templating": {"list": [_datasource(), *map(_variable, dashboard.variables)] if dashboard.variables else []},
        "panels": list(_placed(dashboard.rows, runbook_panels)),
    }


def runbook_panels_of(runbook: Dashboard) -> dict[str, int]:
    """By title."""
    return {panel["title"]: panel["id"] for panel in _placed(runbook.rows, {}) if panel["type"] == "text"}


def _links() -> list[dict[str, Any]]:
    common = {"icon": "external link", "tooltip": "", "targetBlank": False, "keepTime": True}
    others = {"type": "dashboards", "title": "Dashboards", "tags": [TAG], "asDropdown": True, "includeVars": True}
    runbook = {"type": "link", "title": "Runbook", "url": f"/d/{RUNBOOK_UID}", "tags": [], "asDropdown": False}
    return [common | others, common | runbook | {"includeVars": False}]


def _datasource() -> dict[str, Any]:
    return {
        "type": "datasource",
        "name": "datasource",
        "label": "Data source",
        "query": "prometheus",
        "regex": "",
        "hide": 0,
        "multi": False,
        "includeAll": False,
        "refresh": 1,
    }


def _variable(name: str) -> dict[str, Any]:
    return {
        "type": "query",
        "name": name,
        "label": _LABELS[name],
        "datasource": DATASOURCE,
        "query": _QUERIES[name],
        "regex": "",
        "hide": 0,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "refresh": 2,
        "sort": 1,
    }


def _placed(rows: Sequence[Row], runbook_panels: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    top, number = 0, 1
    for row in rows:
        heading = {"type": "row", "title": row.title, "collapsed": False, "panels": []}
        yield {"id": number, **heading, "gridPos": {"x": 0, "y": top, "w": COLUMNS, "h": 1}}
        top, number = top + 1, number + 1
        left = height = 0
        for panel in row.panels:
            if left + panel.width > COLUMNS:
                top, left, height = top + height, 0, 0
            place = {"x": left, "y": top, "w": panel.width, "h": panel.height}
            yield {"id": number, **_described(panel, runbook_panels), "gridPos": place}
            left, height, number = left + panel.width, max(height, panel.height), number + 1
        top += height


def _described(panel: Panel | Text, runbook_panels: Mapping[str, int]) -> dict[str, Any]:
    if isinstance(panel, Text):
        return text_json(panel)
    if panel.runbook is None:
        return panel_json(panel, ())
    # A Grafana that does not know the parameter shows the whole runbook.
    url = f"/d/{RUNBOOK_UID}?viewPanel={runbook_panels[panel.runbook]}"
    return panel_json(panel, [{"title": f"Runbook: {panel.runbook}", "url": url, "targetBlank": True}])
