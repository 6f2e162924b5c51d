"""`vllm serve …` as people paste it, on one line or over several that end with a backslash, taken apart into flags."""

import re
import shlex
from typing import Any

from gateway.domain.doctor.fields import value_of

_COMMAND = re.compile(r"\bvllm serve\s|-m\s+vllm\.entrypoints\.(?:openai\.)?api_server\s")
_NO_COMMAND = re.compile(r"vllm serve: error|usage: vllm serve|\bINFO\b|\bERROR\b|\bWARNING\b")
_LONGEST_COMMAND = 16_384
_SHORT = {
    "-tp": "tensor_parallel_size",
    "-pp": "pipeline_parallel_size",
    "-dp": "data_parallel_size",
    "-q": "quantization",
}


class Collector:
    """Takes the lines of a log, and gives the flags of a command once it is whole."""

    def __init__(self) -> None:
        self._begun = ""

    def take(self, message: str) -> dict[str, Any] | None:
        if not self._begun and (_COMMAND.search(message) is None or _NO_COMMAND.search(message) is not None):
            return None
        begun, self._begun = self._begun + " " + message.strip(), ""
        if begun.endswith("\\") and len(begun) < _LONGEST_COMMAND:
            self._begun = begun[:-1]
            return None
        return flags_of(begun[:_LONGEST_COMMAND])


def flags_of(command: str) -> dict[str, Any]:
    """Names with underscores; `--a.b c` stands under `a` as a dictionary; a flag without a value is True."""
    match = _COMMAND.search(command)
    words = _words(command if match is None else command[match.end() :])
    found: dict[str, Any] = {}
    if match is not None and words and not words[0].startswith("-"):
        found["model"] = words[0]
    index = 0
    while index < len(words):
        word, index = words[index], index + 1
        if word in {"&&", "||", ";", "|", ">", "2>&1", "&"}:
            break
        name, equals, value = word.partition("=")
        if not _is_flag(name):
            continue
        if not equals and index < len(words) and not _is_flag(words[index]):
            value, index = words[index], index + 1
            equals = "="
        _put(found, name, value_of(value) if equals else True)
    return found


def _put(found: dict[str, Any], name: str, value: Any) -> None:
    first, _, inner = _SHORT.get(name, name.lstrip("-")).replace("-", "_").partition(".")
    if inner:
        kept = found.get(first)
        value = {**(kept if isinstance(kept, dict) else {}), inner: value}
    found[first] = value


def _is_flag(word: str) -> bool:
    """A negative number is none."""
    return re.match(r"--?[A-Za-z]", word) is not None


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # a quote that is not closed
        return text.split()
