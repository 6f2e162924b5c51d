"""Client by version by what was tried with it: as a run prints it and as docs/clients.md has it."""

import json
import pathlib
import re

from tests.clients.talking import CLIENTS, ROOT

COLUMNS = ("chat", "image", "stream", "responses", "messages", "embeddings", "retry 429", "retry 503", "no retry 400")
_COLUMN_OF = {
    "responses_stream": "stream", "messages_stream": "stream", "tool_result": "messages", "count_tokens": "messages",
}  # fmt: skip
_LOCKED = re.compile(r"^([a-z0-9-]+)==(\S+)", re.MULTILINE)


def column_of(action: str) -> str:
    return _COLUMN_OF.get(action, action)


def expected(name: str) -> set[str]:
    """The columns that this client fills."""
    actions = set(map(column_of, CLIENTS[name].actions))
    return actions | {"image", "retry 429", "retry 503", "no retry 400"}


def versions() -> dict[str, str]:
    """As they are locked; curl is the system's."""
    python = dict(_LOCKED.findall((ROOT / "requirements" / "clients.txt").read_text(encoding="utf-8")))
    lock = json.loads((ROOT / "requirements" / "node" / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    return {name: _version(known.package, known.script, python, lock) for name, known in CLIENTS.items()}


def _version(package: str, script: str, python: dict[str, str], node: dict[str, dict[str, str]]) -> str:
    if script.endswith(".cjs"):
        return node[f"node_modules/{package}"]["version"]
    return python[package] if script else "Debian's"


class Matrix:
    """What was seen in this run."""

    def __init__(self) -> None:
        self._seen: dict[str, set[str]] = {name: set() for name in CLIENTS}

    def note(self, name: str, column: str) -> None:
        self._seen[name].add(column)

    def lines(self) -> list[str]:
        return table(self._seen)


def table(seen: dict[str, set[str]]) -> list[str]:
    """Markdown."""
    locked = versions()
    rows = [("client", "version", *COLUMNS), ("---",) * (2 + len(COLUMNS))]
    rows += [
        (name, locked[name], *("yes" if column in columns else "-" for column in COLUMNS))
        for name, columns in seen.items()
    ]
    return [f"| {' | '.join(row)} |" for row in rows]


def documented(page: pathlib.Path) -> list[str]:
    return [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
