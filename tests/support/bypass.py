"""Bodies that a scanner could misread: every key and alias by which vLLM takes media, in every place of every route.

The list is data (tests/data/bypass/bodies.json), and so is what the installed vLLM saw in each of its bodies
(seen.json, by slot: for each part a digit, the media it would load, or `x` where it refuses the body). Who changes the
list writes the second file anew:

    VLLM_PYTHON=.venv-vllm/bin/python python -m tests.support.bypass
"""

import itertools
import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

_DATA = Path(__file__).parents[1] / "data" / "bypass"
_SEEN = _DATA / "seen.json"
_REAL = Path(__file__).parents[1] / "real"

LIST: dict[str, Any] = json.loads((_DATA / "bodies.json").read_text())
REFUSED = "x"


class Case(NamedTuple):
    """`place` is that of the part among all of them."""

    slot: str
    path: str
    place: int
    part: str
    body: bytes


def parts() -> Sequence[str]:
    """JSON, each of one content part."""
    made = []
    for key, value in itertools.product(LIST["keys"], LIST["values"]):
        own = [json.dumps(kind) for kind in LIST["own_types"].get(key, [key])]
        for kind, uuid in itertools.product([*LIST["types"], *own], LIST["uuids"]):
            members = {"text": '"hello"', "detail": '"auto"', "type": kind, "uuid": uuid, key: value}
            written = ",".join(f'"{name}":{each}' for name, each in members.items() if each is not None)
            made.append("{" + written + "}")
    return [*made, *LIST["parts"]]


def cases() -> Iterator[Case]:
    """Each part in each slot."""
    all_parts = parts()
    for slot, (path, body) in LIST["slots"].items():
        for place, part in enumerate(all_parts):
            yield Case(slot, path, place, part, body.replace("@", part).encode())


def seen_by_vllm() -> dict[str, str]:
    """As written down, by slot."""
    seen: dict[str, str] = json.loads(_SEEN.read_text())["seen"]
    return seen


def ask_vllm(python: str) -> dict[str, Any]:
    """What the vLLM of that interpreter sees now: `version`, `part_types`, `part_keys`, `fields` of its requests by
    their names, and `seen` by slot. It is imported, not served.
    """
    bodies = [[case.path, case.body.decode()] for case in cases()]
    ran = subprocess.run(
        [python, str(_REAL / "media_of_vllm.py")],
        input=json.dumps(bodies),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(_REAL / "workarounds"), "VLLM_LOGGING_LEVEL": "ERROR"},
        timeout=600,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    view: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    marks = iter(REFUSED if count is None else str(count) for count in view.pop("counts"))
    return {**view, "seen": {slot: "".join(itertools.islice(marks, len(parts()))) for slot in LIST["slots"]}}


if __name__ == "__main__":
    _SEEN.write_text(json.dumps(ask_vllm(os.environ["VLLM_PYTHON"]), indent=1, sort_keys=True) + "\n")
