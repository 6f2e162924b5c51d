"""What starts vLLM in a manifest (Kubernetes, Compose), as the line that it amounts to."""

import re
import shlex
from collections.abc import Iterator
from typing import Any

import yaml

_LOOKS_SO = re.compile(r"^\s*(?:\[|-\s|(?:- )?(?:args|command|entrypoint|image)\s*:)", re.MULTILINE)
_WORDS = ("entrypoint", "command", "args")


def line_of(text: str) -> str:
    """Of the container that starts vLLM, with its image; what is no manifest stays as it is."""
    if not _LOOKS_SO.search(text):
        return text
    try:
        content = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError):
        return text
    found = [_line(content)] if _is_words(content) else list(_lines(content))
    return next((line for line in found if "vllm" in line), found[0] if found else text)


def _lines(content: Any) -> Iterator[str]:
    """Of each container, the outer ones first."""
    if isinstance(content, dict):
        told = [_line(content[name]) for name in _WORDS if content.get(name)]
        if told:
            yield " ".join([str(content.get("image") or ""), *told]).strip()
    for each in content.values() if isinstance(content, dict) else content if isinstance(content, list) else ():
        yield from _lines(each)


def _is_words(content: Any) -> bool:
    return isinstance(content, list) and all(isinstance(each, str | int | float) for each in content)


def _line(words: Any) -> str:
    """A list is one word an entry; a line is taken apart by whoever reads it."""
    return shlex.join(str(each) for each in words) if isinstance(words, list) else str(words)
