"""What users' tools make of deploy/: Helm's own renderer (its Go library, in helm-python-sdk) and kubectl."""

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from helm_python import Chart
from helm_python.errors import HelmError

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy/helm"
KUSTOMIZE = ROOT / "deploy/kustomize"

ChartError = HelmError
"""What ends `helm install`; the text names the value."""


def helm_rendered(values: Mapping[str, Any], chart: Path = CHART) -> list[dict[str, Any]]:
    """All manifests of a release called `release` in the namespace `vlm`. Raises ChartError."""
    with Chart.load(chart) as loaded:
        loaded.validate_schema(dict(values))
        files = loaded.render(dict(values), name="release", namespace="vlm")
    texts = [text for path, text in sorted(files.items()) if path.endswith(".yaml")]
    return [manifest for text in texts for manifest in yaml.safe_load_all(text) if manifest]


def helm_notes(values: Mapping[str, Any]) -> str:
    """What is printed after an install."""
    with Chart.load(CHART) as loaded:
        files = loaded.render(dict(values), name="release", namespace="vlm")
    (notes,) = [text for path, text in files.items() if path.endswith("NOTES.txt")]
    return notes


def kustomized(folder: Path) -> list[dict[str, Any]]:
    """All manifests of an overlay. Raises CalledProcessError after printing what kubectl said."""
    kubectl = shutil.which("kubectl", path=str(Path(sys.executable).parent)) or "kubectl"
    done = subprocess.run([kubectl, "kustomize", str(folder)], capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stderr)
    done.check_returncode()
    return [manifest for manifest in yaml.safe_load_all(done.stdout) if manifest]
