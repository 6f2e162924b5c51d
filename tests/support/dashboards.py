"""The dashboards as they are shipped: the files of deploy/grafana, and every query in them."""

import json
import pathlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

PROJECT = pathlib.Path(__file__).parents[2]
FOLDER = PROJECT / "deploy" / "grafana" / "dashboards"
UIDS = ("overview", "rejections", "budget", "images", "estimates", "upstream")
"""Of those with queries, less the prefix that all have."""


@dataclass(frozen=True, slots=True)
class Target:
    """One query of one panel. `index` counts the panel's queries from 0."""

    dashboard: str
    panel: str
    index: int
    query: str
    legend: str

    @property
    def key(self) -> tuple[str, str, int]:
        return self.dashboard, self.panel, self.index

    def at(self, window_milliseconds: int, **variables: str) -> str:
        """The query as Grafana would send it, were the time range and the interval of rates so long."""
        query = self.query
        values = {"__rate_interval": f"{window_milliseconds}ms", "__range": f"{window_milliseconds}ms"} | variables
        for name in sorted(values, key=len, reverse=True):
            query = query.replace(f"${name}", values[name])
        return query


def dashboards() -> dict[str, dict[str, Any]]:
    """All files, by their uid less the prefix."""
    read = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))]
    return {dashboard["uid"].removeprefix("vlm-gateway-"): dashboard for dashboard in read}


def panels_of(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    """Those that show something, rows left out."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def targets() -> Iterator[Target]:
    """Every query of every panel."""
    for name, dashboard in dashboards().items():
        for panel in panels_of(dashboard):
            for index, target in enumerate(panel.get("targets", ())):
                yield Target(name, panel["title"], index, target["expr"], target["legendFormat"])
