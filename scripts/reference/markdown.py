"""Pieces of Markdown."""

from collections.abc import Iterable, Sequence


def page(title: str, source: str, *pieces: str) -> str:
    """A whole page. `source` is where its words are changed."""
    note = f"<!-- Made by `make docs` from {source}: change it there. -->"
    return "\n\n".join([f"# {title}", note, *pieces]) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|").strip() for cell in line) + " |" for line in lines)


def code(text: str) -> str:
    return f"`{text}`"


def fenced(language: str, text: str) -> str:
    return f"```{language}\n{text.rstrip()}\n```"


def sentence(text: str) -> str:
    """With a full stop, and a capital letter unless it begins with a value (`forward: ...`) or with code."""
    text = " ".join(text.split())
    if text.partition(" ")[0].rstrip(",;").isalpha():
        text = text[:1].upper() + text[1:]
    return text if text.endswith(".") else f"{text}."
