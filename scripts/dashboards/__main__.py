"""`python -m scripts.dashboards [--check]`."""

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path

from scripts.dashboards.budget import BUDGET
from scripts.dashboards.dashboards import dashboard_json, runbook_panels_of
from scripts.dashboards.estimates import ESTIMATES
from scripts.dashboards.images import IMAGES
from scripts.dashboards.overview import OVERVIEW
from scripts.dashboards.rejections import REJECTIONS
from scripts.dashboards.runbook import runbook_dashboard
from scripts.dashboards.upstream import UPSTREAM

PROJECT = Path(__file__).parents[2]
FOLDER = PROJECT / "deploy" / "grafana" / "dashboards"
RUNBOOK = PROJECT / "docs" / "runbook.md"
DASHBOARDS = (OVERVIEW, REJECTIONS, BUDGET, IMAGES, ESTIMATES, UPSTREAM)


def files() -> dict[str, str]:
    """What each file is to hold, by its name."""
    runbook = runbook_dashboard(RUNBOOK.read_text(encoding="utf-8"))
    panels = runbook_panels_of(runbook)
    return {
        f"{dashboard.uid}.json": json.dumps(dashboard_json(dashboard, panels), indent=2) + "\n"
        for dashboard in (*DASHBOARDS, runbook)
    }


def differences(wanted: Mapping[str, str], folder: Path) -> list[str]:
    """A sentence for each file that is not as it is to be."""
    found = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.json")}
    names = sorted({*wanted, *found})
    return [f"{name} is not what the generator makes" for name in names if wanted.get(name) != found.get(name)]


def write(wanted: Mapping[str, str], folder: Path) -> None:
    """Files of dashboards that are no more go."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("*.json"):
        if path.name not in wanted:
            path.unlink()
    for name, text in wanted.items():
        (folder / name).write_text(text, encoding="utf-8")


def main(arguments: list[str] | None = None, folder: Path = FOLDER) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="python -m scripts.dashboards", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a file differs")
    if not parser.parse_args(arguments).check:
        write(files(), folder)
        return 0
    sentences = differences(files(), folder)
    for sentence in sentences:
        print(f"{sentence}: run `make dashboards`", file=sys.stderr)  # noqa: T201  # a command says what is wrong
    return 1 if sentences else 0


if __name__ == "__main__":
    sys.exit(main())
