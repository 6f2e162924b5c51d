"""Oracle files: what the models' own processors said about each size."""

import json
from pathlib import Path

ORACLES = Path(__file__).parents[1] / "data" / "oracles"


def read_oracle(family):
    """As it was made: `cases` are objects, with `c` for their configuration and `error` where there are no tokens."""
    table = json.loads((ORACLES / f"{family}.json").read_text())
    if "columns" not in table:
        return table
    cases = [
        dict(zip(table["columns"], row, strict=False)) | {"c": index}
        for index, rows in enumerate(table["cases"])
        for row in rows
    ]
    for case in cases:
        if case["tokens"] is None:
            case["error"] = "refused"
    return table | {"cases": cases}
