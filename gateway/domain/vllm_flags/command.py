"""A pasted command that starts vLLM, taken apart into its flags. Lenient: what a value may be, readers know.

`vllm serve MODEL`, `python -m vllm.entrypoints.openai.api_server` and `docker run … vllm/vllm-openai:TAG`. What stands
before is not vLLM's, and what follows `|`, `>`, `;` or `&&` neither.
"""

import re
import shlex
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

ENTRY = re.compile(r"\bvllm\s+serve\s|-m\s+vllm\.entrypoints\.(?:openai\.)?api_server\s")
IMAGE = re.compile(r"\bvllm-openai[\w.-]*(?::v?(?P<version>\d+\.\d+(?:\.\d+)?)?\S*)?(?:@\S+)?\s")
_SHELL = re.compile(r"\d?[<>].*|&>.*|[|&;]+")
SHORT = {
    "tp": "tensor-parallel-size",
    "pp": "pipeline-parallel-size",
    "dp": "data-parallel-size",
    "dcp": "decode-context-parallel-size",
    "cc": "compilation-config",
    "q": "quantization",
}
_LINE_GOES_ON = re.compile(r"[\\^`][ \t]*\r?\n")
"""In a shell, in cmd.exe and in PowerShell."""
_COMMENT = re.compile(r"(?:(?<=\s)|^)#[^\n'\"]*$", re.MULTILINE)
"""Not what may stand in quotes."""
_QUOTES = "'\""
_LEVEL = re.compile(r"-O\d?$")


class Given(NamedTuple):
    """One flag as it was written, its name in long and with dashes. `equals` is what stands behind an equals sign,
    `words` are those that follow before the next flag.
    """

    name: str
    key: str
    equals: str | None
    words: tuple[str, ...]

    @property
    def value(self) -> str | None:
        """None where none followed."""
        return self.equals if self.equals is not None else next(iter(self.words), None)

    @property
    def more(self) -> tuple[str, ...]:
        """Words behind the value."""
        return self.words if self.equals is not None else self.words[1:]


class Command(NamedTuple):
    """`positions` are the words before the first flag, `version` is that of the image."""

    is_whole: bool
    positions: tuple[str, ...]
    given: tuple[Given, ...]
    version: str | None = None


def read_text(text: str) -> Command:
    """Of text as it was pasted, with line ends behind backslashes. Raises ValueError for a quote that is not closed."""
    text = _LINE_GOES_ON.sub(" ", _COMMENT.sub("", text.replace("\N{NO-BREAK SPACE}", " "))) + " "
    image = IMAGE.search(text)
    entry = ENTRY.search(text) or image
    rest = text if entry is None else _in_quotes(text[: entry.start()], text[entry.end() :])
    command = read_words(_up_to_shell(shlex.split(rest)))
    version = None if image is None else image["version"]
    return command._replace(is_whole=command.is_whole or entry is not None, version=version)


def _in_quotes(before: str, rest: str) -> str:
    """`rest` up to where a quote ends that `before` has opened, as `bash -c "…"` does."""
    for quote in _QUOTES:
        if before.count(quote) % 2 and quote in rest:
            return rest[: rest.rindex(quote)].replace(f"\\{quote}", quote)
    return rest


def read_words(words: Sequence[str]) -> Command:
    """Of words as the shell hands them over; with a first word `serve` it is a whole command."""
    is_whole = list(words[:1]) == ["serve"]
    rest = words[1:] if is_whole else words
    starts = [index for index, word in enumerate(rest) if is_flag(word)]
    spans = pairwise([*starts, len(rest)])
    given = [_given(rest[start], rest[start + 1 : end]) for start, end in spans]
    return Command(is_whole, tuple(rest[: starts[0]] if starts else rest), tuple(given))


def is_flag(word: str) -> bool:
    """A negative number is none."""
    return re.match(r"--?[A-Za-z]", word) is not None


def _given(word: str, words: Sequence[str]) -> Given:
    body, equals, value = word.lstrip("-").partition("=")
    name, _, key = body.partition(".")
    name = name.replace("_", "-")
    if not word.startswith("--"):
        name = "optimization-level" if _LEVEL.match(word) else SHORT.get(name, name)
    return Given(name, key, value if equals else None, tuple(words))


def _up_to_shell(words: Sequence[str]) -> list[str]:
    kept = []
    for word in words:
        if _SHELL.fullmatch(word):
            break
        kept.append(word.removesuffix(";"))
        if word.endswith(";"):
            break
    return [word for word in kept if word.strip()]
