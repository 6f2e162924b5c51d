"""Pages of Markdown as GitHub shows them: their fenced blocks, links and the anchors of their headings."""

import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[2]
_PARSER = MarkdownIt("commonmark").enable("table")
_NOT_RUN = "not run: "


class Block(NamedTuple):
    """A fenced block: its first line in the file, its language, what stands behind that, and its text."""

    line: int
    language: str
    rest: str
    text: str

    @property
    def why_not_run(self) -> str | None:
        return self.rest.removeprefix(_NOT_RUN) if self.rest.startswith(_NOT_RUN) else None

    def option(self, name: str) -> str | None:
        """The value of `name=value` behind the language."""
        found = re.search(rf"(?:^|\s){name}=(\S+)", self.rest)
        return found.group(1) if found else None


class Link(NamedTuple):
    line: int
    target: str


class Page:
    """One file; `text` where it has another than is there."""

    def __init__(self, path: Path, text: str | None = None) -> None:
        self.path = path
        self.text = path.read_text(encoding="utf-8") if text is None else text
        self._tokens = _PARSER.parse(self.text)

    @property
    def name(self) -> str:
        """From the root of the project."""
        return self.path.relative_to(ROOT).as_posix()

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        return tuple(map(_block, (token for token in self._tokens if token.type == "fence")))

    @cached_property
    def links(self) -> tuple[Link, ...]:
        """Those to pages and to pictures."""
        return tuple(
            Link(line, str(child.attrs.get("href") or child.attrs.get("src")))
            for line, child in self._inline()
            if child.type in {"link_open", "image"}
        )

    @cached_property
    def codes(self) -> tuple[str, ...]:
        """What stands in backquotes in the running text."""
        return tuple(child.content for _, child in self._inline() if child.type == "code_inline")

    @cached_property
    def anchors(self) -> frozenset[str]:
        """Of the headings, as GitHub makes them: a second one of the same words gets a number."""
        found: list[str] = []
        for opening, inline in zip(self._tokens, self._tokens[1:], strict=False):
            if opening.type == "heading_open":
                found.append(_slug(_words(inline)))
        return frozenset(name if times == 0 else f"{name}-{times}" for name, times in _numbered(found))

    def _inline(self) -> Iterator[tuple[int, Token]]:
        for token in self._tokens:
            if token.type == "inline":
                line = (token.map or [0])[0] + 1
                yield from ((line, child) for child in token.children or ())


def pages(*patterns: str) -> list[Page]:
    """All that the patterns find below the root, in order."""
    return [Page(path) for pattern in patterns for path in sorted(ROOT.glob(pattern))]


def _block(token: Token) -> Block:
    language, _, rest = token.info.strip().partition(" ")
    return Block((token.map or [0])[0] + 1, language, rest.strip(), token.content)


def _words(inline: Token) -> str:
    return "".join(child.content for child in inline.children or () if child.type in {"text", "code_inline"})


def _slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _numbered(names: list[str]) -> Iterator[tuple[str, int]]:
    return ((name, names[:index].count(name)) for index, name in enumerate(names))
