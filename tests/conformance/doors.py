"""Every door that an image can come through: route, way to write the image, role, and what becomes of it there.

The one table behind the tests of test_doors.py and the matrix of docs/routes.md. `python -m tests.conformance.doors`
prints the matrix. A new route joins with a Door at the end of DOORS.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

MODEL = "tiny"


class Fate(StrEnum):
    """What becomes of one image."""

    SERVED = "served"
    REFUSED = "refused"
    NOT_SEEN = "not seen"
    """vLLM takes no image there, so it costs nothing; the body goes on as it came."""


_WORDS = {Fate.SERVED: "yes", Fate.REFUSED: "400", Fate.NOT_SEEN: "ignored"}


@dataclass(frozen=True, slots=True)
class Picture:
    """One picture in the forms in which clients have it."""

    base64: str
    address: str

    @property
    def data_url(self) -> str:
        return f"data:image/png;base64,{self.base64}"


Write = Callable[[Picture], Any]


@dataclass(frozen=True, slots=True)
class Door:
    """`sources` write the image as parts; `roles` make a body around the parts, the first of them a plain user's.

    All are served but those in `fates`, by source or by role, the source first. `counted` reads the prompt's tokens out
    of an answer; None where its text is not counted exactly. `runner` is what a server does that has the route.
    """

    path: str
    sources: Mapping[str, Write]
    roles: Mapping[str, Callable[[list[Any]], dict[str, Any]]]
    text: Callable[[str], Any]
    counted: Callable[[Any], int] | None
    fates: Mapping[str, Fate] = field(default_factory=dict)
    runner: str = "generate"

    def fate(self, source: str, role: str) -> Fate:
        return self.fates.get(source) or self.fates.get(role) or Fate.SERVED

    def cells(self) -> Iterator[tuple[str, str]]:
        return ((source, role) for source in self.sources for role in self.roles)


SOURCES = ("data URL", "http(s) address", "bare string", "base64", "with a uuid", "uuid alone")
ROLES = ("system", "user", "assistant", "tool")


def _text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def _image_url(url: str, **more: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}, **more}


CHAT_SOURCES: Mapping[str, Write] = {
    "data URL": lambda picture: _image_url(picture.data_url),
    "http(s) address": lambda picture: _image_url(picture.address),
    "bare string": lambda picture: {"type": "image_url", "image_url": picture.data_url},
    "with a uuid": lambda picture: _image_url(picture.data_url, uuid="u-1"),
    "uuid alone": lambda _picture: {"type": "image_url", "image_url": None, "uuid": "u-2"},
}


def _source(**source: Any) -> dict[str, Any]:
    return {"type": "image", "source": source}


ANTHROPIC_SOURCES: Mapping[str, Write] = {
    "data URL": lambda picture: _source(type="url", url=picture.data_url),
    "http(s) address": lambda picture: _source(type="url", url=picture.address),
    "base64": lambda picture: _source(type="base64", media_type="image/png", data=picture.base64),
}


def _input_text(words: str) -> dict[str, Any]:
    return {"type": "input_text", "text": words}


def _input_image(url: str | None, **more: Any) -> dict[str, Any]:
    return {"type": "input_image", "image_url": url, "detail": "auto", **more}


RESPONSES_SOURCES: Mapping[str, Write] = {
    "data URL": lambda picture: _input_image(picture.data_url),
    "http(s) address": lambda picture: _input_image(picture.address),
    "with a uuid": lambda picture: _input_image(picture.data_url, uuid="u-1"),
    "uuid alone": lambda _picture: _input_image(None, uuid="u-2"),
}


def _input(role: str) -> Callable[[list[Any]], dict[str, Any]]:
    return lambda parts: {"model": MODEL, "max_output_tokens": 2, "input": _conversation(role, parts)}


def _output(parts: list[Any]) -> dict[str, Any]:
    call = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
    items = [call, {"type": "function_call_output", "call_id": "c1", "output": parts}]
    return {"model": MODEL, "max_output_tokens": 2, "input": items}


def _conversation(role: str, parts: list[Any]) -> list[dict[str, Any]]:
    messages = [{"role": role, "content": parts}]
    return messages if role == "user" else [*messages, {"role": "user", "content": "What do you see?"}]


def _chat(role: str) -> Callable[[list[Any]], dict[str, Any]]:
    return lambda parts: {"model": MODEL, "max_tokens": 2, "messages": _conversation(role, parts)}


def _batch(role: str) -> Callable[[list[Any]], dict[str, Any]]:
    alone = [{"role": "user", "content": "Hm?"}]
    return lambda parts: {"model": MODEL, "max_tokens": 2, "messages": [alone, _conversation(role, parts)]}


def _messages(turns: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"model": MODEL, "max_tokens": 2, "messages": turns, **more}


_ASKED = {"role": "user", "content": "What do you see?"}
_USE = {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "look", "input": {}}]}


def _tool_result(parts: list[Any]) -> list[dict[str, Any]]:
    return [_USE, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": parts}]}]


ANTHROPIC_ROLES: Mapping[str, Callable[[list[Any]], dict[str, Any]]] = {
    "user": lambda parts: _messages([{"role": "user", "content": parts}]),
    "system": lambda parts: _messages([_ASKED], system=parts),
    "assistant": lambda parts: _messages([{"role": "assistant", "content": parts}, _ASKED]),
    "tool": lambda parts: _messages(_tool_result(parts)),
}
_CHAT_FATES = {"uuid alone": Fate.REFUSED}
_RESPONSES_FATES = {"uuid alone": Fate.REFUSED, "assistant": Fate.REFUSED}
_ANTHROPIC_FATES = {"system": Fate.NOT_SEEN}

DOORS: tuple[Door, ...] = (
    Door(
        "/v1/chat/completions",
        CHAT_SOURCES,
        {role: _chat(role) for role in ROLES},
        _text,
        lambda answer: answer["usage"]["prompt_tokens"],
        _CHAT_FATES,
    ),
    Door(
        "/v1/chat/completions/batch",
        CHAT_SOURCES,
        {role: _batch(role) for role in ROLES},
        _text,
        lambda answer: answer["usage"]["prompt_tokens"],
        _CHAT_FATES,
    ),
    Door(
        "/v1/messages",
        ANTHROPIC_SOURCES,
        ANTHROPIC_ROLES,
        _text,
        lambda answer: answer["usage"]["input_tokens"],
        _ANTHROPIC_FATES,
    ),
    Door(
        "/v1/messages/count_tokens",
        ANTHROPIC_SOURCES,
        ANTHROPIC_ROLES,
        _text,
        lambda answer: answer["input_tokens"],
        _ANTHROPIC_FATES,
    ),
    Door(
        "/v1/responses",
        RESPONSES_SOURCES,
        {role: _input(role) for role in ("system", "user", "assistant")} | {"tool": _output},
        _input_text,
        lambda answer: answer["usage"]["input_tokens"],
        _RESPONSES_FATES,
    ),
)

_WITHOUT_UUID_ALONE = {"uuid alone": Fate.REFUSED}


def _under(key: str) -> Callable[[list[Any]], dict[str, Any]]:
    return lambda parts: {"model": MODEL, key: [{"role": "user", "content": parts}]}


def _held_against(key: str, other: str) -> Callable[[list[Any]], dict[str, Any]]:
    return lambda parts: {"model": MODEL, key: {"content": parts}, other: "a"}


def _pooling_door(path: str, roles: Mapping[str, Callable[[list[Any]], dict[str, Any]]], *, is_exact: bool) -> Door:
    counted = (lambda answer: answer["usage"]["prompt_tokens"]) if is_exact else None
    return Door(path, CHAT_SOURCES, roles, _text, counted, _WITHOUT_UUID_ALONE, "pooling")


_SCORED = {
    "query": _held_against("queries", "documents"),
    "document": _held_against("documents", "queries"),
}
_RERANKED = {"query": _held_against("query", "documents"), "document": _held_against("documents", "query")}
DOORS += (
    _pooling_door("/v1/embeddings", {"user": _under("messages"), "input": _under("input")}, is_exact=True),
    _pooling_door("/pooling", {"user": _under("messages")}, is_exact=True),
    _pooling_door("/classify", {"user": _under("messages")}, is_exact=True),
    _pooling_door(
        "/v2/embed", {"input": lambda parts: {"model": MODEL, "inputs": [{"content": parts}]}}, is_exact=False
    ),
    *(_pooling_door(path, _SCORED, is_exact=False) for path in ("/score", "/v1/score")),
    *(_pooling_door(path, _RERANKED, is_exact=False) for path in ("/rerank", "/v1/rerank", "/v2/rerank")),
    Door("/tokenize", CHAT_SOURCES, {"user": _under("messages")}, _text, lambda answer: answer["count"], _CHAT_FATES),
)


def matrix() -> str:
    """A Markdown table: a line for each route and role, a column for each way to write an image."""
    lines = [f"| Route | Role | {' | '.join(SOURCES)} |", "| --- " * (2 + len(SOURCES)) + "|"]
    for door in DOORS:
        for role in sorted(door.roles, key=_place):
            cells = [_WORDS[door.fate(source, role)] if source in door.sources else "—" for source in SOURCES]
            lines.append(f"| `{door.path}` | {role} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _place(role: str) -> int:
    return ROLES.index(role) if role in ROLES else len(ROLES)


if __name__ == "__main__":
    print(matrix())
