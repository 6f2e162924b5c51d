"""`name=value` lists and dictionaries as Python prints them, which is how vLLM logs its arguments and configuration.

They hold what no parser of literals takes (`SecretStr('***')`, `<enum: 1>`), and a log may end within one, so each
value is cut out by brackets and quotes alone, and understood only where it is plain.
"""

from collections.abc import Iterator, Mapping
from typing import Any

_OPENING, _CLOSING, _QUOTES = "([{<", ")]}>", "'\""
_DEEPEST = 4
_MOST_FIELDS = 2000
_LARGEST = 1 << 62
_WORDS: Mapping[str, Any] = {
    "None": None, "null": None, "True": True, "true": True, "False": False, "false": False,
}  # fmt: skip


def fields(text: str, between: str = "=") -> dict[str, str]:
    """The fields of a list, each with the text of its value; names without quotes. Repeated names: the last."""
    found: dict[str, str] = {}
    for piece in _cut(text, ","):
        name, sign, value = next(_partitions(piece, between), (piece, "", ""))
        if sign and len(found) < _MOST_FIELDS:
            found[name.strip().strip(_QUOTES)] = value.strip()
    return found


def value_of(text: str, depth: int = 0) -> Any:
    """A plain value: None, a boolean, a number, a string, a dictionary or list of these; else the text itself."""
    text = text.strip()
    if text in _WORDS:
        return _WORDS[text]
    if len(text) > 1 and text[0] in _QUOTES and text[-1] == text[0]:
        return text[1:-1]
    if depth < _DEEPEST and text[:1] == "{" and text[-1:] == "}":
        return {name: value_of(value, depth + 1) for name, value in fields(text[1:-1], ":").items()}
    if depth < _DEEPEST and text[:1] == "[" and text[-1:] == "]":
        return [value_of(piece, depth + 1) for piece in _cut(text[1:-1], ",") if piece.strip()]
    return _number(text)


def _number(text: str) -> Any:
    """What is no number that could be meant stays text, so that nobody calculates with it."""
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        return number if abs(number) <= _LARGEST else text
    return text


def _partitions(text: str, sign: str) -> Iterator[tuple[str, str, str]]:
    pieces = _cut(text, sign)
    name = next(pieces)
    if len(name) < len(text):
        yield name, sign, text[len(name) + len(sign) :]


def _cut(text: str, sign: str) -> Iterator[str]:
    """The pieces between those of `sign` that stand outside of brackets and quotes."""
    start, depth, quote = 0, 0, ""
    for index, character in enumerate(text):
        if quote:
            if character == quote and text[index - 1] != "\\":
                quote = ""
        elif character in _QUOTES:
            quote = character
        elif character in _OPENING:
            depth += 1
        elif character in _CLOSING:
            depth = max(0, depth - 1)
        elif character == sign and depth == 0:
            yield text[start:index]
            start = index + 1
    yield text[start:]
