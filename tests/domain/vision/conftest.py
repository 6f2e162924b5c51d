"""Oracle files: what the models' own processors said about each size."""

import json
from pathlib import Path

import pytest

ORACLES = Path(__file__).parents[2] / "data" / "oracles"


@pytest.fixture(scope="session")
def oracle():
    return lambda family: json.loads((ORACLES / f"{family}.json").read_text())
