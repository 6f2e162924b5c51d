"""docs/runbook.md as a dashboard of its own, one panel a section, so that panels can link to what helps them.

The project knows no address at which its documents are to be read; a Grafana always has its own.
"""

import re
from collections.abc import Iterator

from scripts.dashboards.dashboards import RUNBOOK_UID, Dashboard
from scripts.dashboards.panels import Row, Text

_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
_LINES_PER_UNIT = 1.3
_LEAST_HEIGHT = 6


def runbook_dashboard(markdown: str) -> Dashboard:
    """Of the whole file but what stands before its first section."""
    panels = [
        Text(title, f"The section {title} of docs/runbook.md.", text, height=_height(text))
        for title, text in sections_of(markdown)
    ]
    description = "What each alert and each reason of a refusal means, how to confirm it, and what to do."
    return Dashboard(RUNBOOK_UID, "vlm-gateway / Runbook", description, (), [Row("Runbook", panels)])


def sections_of(markdown: str) -> Iterator[tuple[str, str]]:
    """Title and text of each."""
    _, *parts = _SECTION.split(markdown)
    for title, text in zip(parts[::2], parts[1::2], strict=True):
        yield title.strip(), text.strip()


def _height(text: str) -> int:
    lines = sum(1 + len(line) // 200 for line in text.splitlines())
    return max(_LEAST_HEIGHT, int(lines / _LINES_PER_UNIT) + 2)
