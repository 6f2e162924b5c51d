"""`vllm serve …` as people paste it, on one line or over several that end with a backslash, as flags and values."""

import re
from typing import Any

from gateway.domain.doctor.fields import value_of
from gateway.domain.vllm_flags.command import ENTRY, IMAGE, Command, Given, read_text

_NO_COMMAND = re.compile(r"vllm serve: error|usage: vllm serve|\bINFO\b|\bERROR\b|\bWARNING\b")
_CONTAINER = re.compile(r"\b(?:docker|podman|nerdctl) run\s")
_LONGEST_COMMAND = 16_384
_QUOTES = str.maketrans("", "", "'\"")


class Collector:
    """Takes the lines of a log, and gives the flags of a command once it is whole."""

    def __init__(self) -> None:
        self._begun = ""

    def take(self, message: str) -> dict[str, Any] | None:
        if not self._begun and not _begins(message):
            return None
        begun, self._begun = self._begun + " " + message.strip(), ""
        if begun.endswith("\\") and len(begun) < _LONGEST_COMMAND:
            self._begun = begun[:-1] + "\n"
            return None
        is_vllms = ENTRY.search(begun) is not None or IMAGE.search(begun + " ") is not None
        return flags_of(begun[:_LONGEST_COMMAND]) if is_vllms else None


def _begins(message: str) -> bool:
    """The image of a container may stand on a later line."""
    is_command = ENTRY.search(message) is not None or _CONTAINER.search(message) is not None
    return is_command and _NO_COMMAND.search(message) is None


def flags_of(command: str) -> dict[str, Any]:
    """Names with underscores; `--a.b c` stands under `a` as a dictionary; a flag without a value is True."""
    read = _read(command)
    found: dict[str, Any] = {}
    if read.is_whole and read.positions:
        found["model"] = read.positions[0]
    for each in read.given:
        _put(found, each)
    return found


def _put(found: dict[str, Any], given: Given) -> None:
    name = given.name.replace("-", "_")
    value = True if given.value is None else value_of(given.value)
    if given.key:
        kept = found.get(name)
        value = {**(kept if isinstance(kept, dict) else {}), given.key.replace("-", "_"): value}
    found[name] = value


def _read(text: str) -> Command:
    try:
        return read_text(text)
    except ValueError:  # a quote that is not closed, or a backslash at the end
        return read_text(text.translate(_QUOTES).replace("\\", ""))
