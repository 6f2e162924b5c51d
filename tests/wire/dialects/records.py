"""One record for each route that can carry images: how a client writes them there, and what the edited body is to hold.

A new route joins the suite with a record at the end. Everything is written from the client's side and from vLLM's
sources; nothing here asks the gateway.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gateway.wire.routes import Kind

PIXELS = "iVBORw0KGgo="
"""Base64 that has the size of no picture: nobody decodes it here."""
URL = f"data:image/png;base64,{PIXELS}"
ADDRESS = "https://pictures.example/a.png"


@dataclass(frozen=True)
class Written:
    """A way to write an image: what stands in the body (`part`), the path of its string from there (`key`, for errors),
    and the part that the body is to hold once the image is `encoded` as `media_type`.
    """

    name: str
    part: Any
    key: str
    edited: Callable[[str, str], Any]
    is_remote: bool = False
    with_uuid: Callable[[], Any] | None = None


@dataclass(frozen=True)
class Record:
    """`body` puts parts into a place of `places` (each is its path in errors); `marker` is what a text looks like."""

    kind: Kind
    images: tuple[Written, ...]
    places: dict[str, Callable[[list[Any]], dict[str, Any]]]
    text: Callable[[str], Any] | None
    marker: Callable[[str], Any] | None

    @property
    def name(self) -> str:
        return str(self.kind)


def _text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def _data_url(media_type: str, encoded: str) -> str:
    return f"data:{media_type};base64,{encoded}"


def _image_url(url: str, **more: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}, **more}


def _source(**source: Any) -> dict[str, Any]:
    return {"type": "image", "source": source}


CHAT_IMAGES = (
    Written("data_url", _image_url(URL), ".image_url.url", lambda kind, new: _image_url(_data_url(kind, new))),
    Written(
        "address",
        _image_url(ADDRESS),
        ".image_url.url",
        lambda kind, new: _image_url(_data_url(kind, new)),
        is_remote=True,
    ),
    Written(
        "bare_string",
        {"type": "image_url", "image_url": URL},
        ".image_url",
        lambda kind, new: _image_url(_data_url(kind, new)),
    ),
    Written(
        "uuid",
        _image_url(URL, uuid="u-1"),
        ".image_url.url",
        lambda kind, new: _image_url(_data_url(kind, new)),
        with_uuid=lambda: _image_url(URL),
    ),
)
ANTHROPIC_IMAGES = (
    Written(
        "base64",
        _source(type="base64", media_type="image/png", data=PIXELS),
        ".source.data",
        lambda kind, new: _source(type="base64", media_type=kind, data=new),
    ),
    Written(
        "base64_of_no_type",
        _source(data=PIXELS),
        ".source.data",
        lambda kind, new: _source(data=new, media_type=kind),
    ),
    Written(
        "data_url",
        _source(type="url", url=URL),
        ".source.url",
        lambda kind, new: _source(type="url", url=_data_url(kind, new)),
    ),
    Written(
        "address",
        _source(type="url", url=ADDRESS),
        ".source.url",
        lambda kind, new: _source(type="url", url=_data_url(kind, new)),
        is_remote=True,
    ),
)


def _chat(role: str) -> Callable[[list[Any]], dict[str, Any]]:
    def body(parts: list[Any]) -> dict[str, Any]:
        history = [{"role": role, "content": parts}, {"role": "assistant", "content": "I see."}]
        return {"model": "m", "messages": [*history, {"role": "user", "content": "And?"}], "temperature": 0.5}

    return body


def _batch(parts: list[Any]) -> dict[str, Any]:
    asked = [{"role": "user", "content": parts}, {"role": "assistant", "content": "I see."}]
    return {"messages": [[{"role": "user", "content": "Hm?"}], [*asked, {"role": "user", "content": "And?"}]], "n": 1}


def _messages(parts: list[Any]) -> dict[str, Any]:
    turns = [{"role": "user", "content": parts}, {"role": "assistant", "content": "I see."}]
    return {"model": "m", "max_tokens": 8, "messages": [*turns, {"role": "user", "content": "And?"}]}


def _tool_result(parts: list[Any]) -> dict[str, Any]:
    call = {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "look", "input": {}}]}
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": parts}]}
    turns = [call, result, {"role": "assistant", "content": "I see."}, {"role": "user", "content": "And?"}]
    return {"model": "m", "max_tokens": 8, "messages": turns, "system": "Look."}


def _input_text(words: str) -> dict[str, Any]:
    return {"type": "input_text", "text": words}


def _input_image(url: str, **more: Any) -> dict[str, Any]:
    return {"type": "input_image", "image_url": url, **more}


RESPONSES_IMAGES = (
    Written("data_url", _input_image(URL), ".image_url", lambda kind, new: _input_image(_data_url(kind, new))),
    Written(
        "with_detail",
        _input_image(URL, detail="low"),
        ".image_url",
        lambda kind, new: _input_image(_data_url(kind, new), detail="low"),
    ),
    Written(
        "address",
        _input_image(ADDRESS),
        ".image_url",
        lambda kind, new: _input_image(_data_url(kind, new)),
        is_remote=True,
    ),
    Written(
        "uuid",
        _input_image(URL, uuid="u-1"),
        ".image_url",
        lambda kind, new: _input_image(_data_url(kind, new)),
        with_uuid=lambda: _input_image(URL),
    ),
)


def _input(parts: list[Any]) -> dict[str, Any]:
    said = {"role": "assistant", "content": "I see."}
    turns = [{"role": "user", "content": parts}, said, {"role": "user", "content": "And?"}]
    return {"model": "m", "input": turns, "instructions": "Look.", "store": False}


def _output(parts: list[Any]) -> dict[str, Any]:
    call = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
    return {"model": "m", "input": [call, {"type": "function_call_output", "call_id": "c", "output": parts}, call]}


RESPONSES_PLACES = {
    "input[0].content": _input,
    "input[1].output": _output,
}


def _asked(key: str) -> Callable[[list[Any]], dict[str, Any]]:
    """One conversation under `key`."""
    return lambda parts: {
        "model": "m",
        key: [{"role": "system", "content": "Look."}, {"role": "user", "content": parts}],
    }


def _asked_twice(key: str) -> Callable[[list[Any]], dict[str, Any]]:
    return lambda parts: {
        key: [[{"role": "user", "content": "Hm?"}], [{"role": "user", "content": parts}]],
        "user": "u",
    }


def _embed_inputs(parts: list[Any]) -> dict[str, Any]:
    return {"inputs": [{"content": [_text("Hm?")]}, {"content": parts}], "truncate": "NONE", "input_type": "document"}


def _scored(first: str, second: str, *, is_list: bool) -> Callable[[list[Any]], dict[str, Any]]:
    """Parts on the second side, alone or behind a text."""
    if is_list:
        return lambda parts: {first: "Hm?", second: ["a", {"content": parts}], "priority": 0}
    return lambda parts: {first: "Hm?", second: {"content": parts}, "priority": 0}


def _asked_by_pictures(key: str) -> Callable[[list[Any]], dict[str, Any]]:
    other = "documents" if key == "query" else "text_2"
    return lambda parts: {key: {"content": parts}, other: ["a", "b"]}


ANTHROPIC_PLACES = {"messages[0].content": _messages, "messages[1].content[0].content": _tool_result}
RECORDS = (
    Record(
        Kind.CHAT,
        CHAT_IMAGES,
        {"messages[0].content": _chat("user")},
        _text,
        _text,
    ),
    Record(Kind.BATCH, CHAT_IMAGES, {"messages[1][0].content": _batch}, _text, _text),
    Record(Kind.MESSAGES, ANTHROPIC_IMAGES, ANTHROPIC_PLACES, _text, _text),
    Record(Kind.TOKENIZE, CHAT_IMAGES, {"messages[0].content": _chat("user")}, _text, _text),
    Record(
        Kind.EMBEDDINGS,
        CHAT_IMAGES,
        {
            "messages[1].content": _asked("messages"),
            "messages[1][0].content": _asked_twice("messages"),
            "input[1].content": _asked("input"),
            "input[1][0].content": _asked_twice("input"),
        },
        _text,
        None,
    ),
    Record(Kind.POOLING, CHAT_IMAGES, {"messages[1].content": _asked("messages")}, _text, None),
    Record(Kind.COHERE_EMBED, CHAT_IMAGES, {"inputs[1].content": _embed_inputs}, _text, None),
    Record(
        Kind.SCORE,
        CHAT_IMAGES,
        {
            "documents.content": _scored("queries", "documents", is_list=False),
            "items[1].content": _scored("queries", "items", is_list=True),
            "data_2[1].content": _scored("data_1", "data_2", is_list=True),
            "text_1.content": _asked_by_pictures("text_1"),
        },
        _text,
        None,
    ),
    Record(
        Kind.RERANK,
        CHAT_IMAGES,
        {
            "documents[1].content": _scored("query", "documents", is_list=True),
            "documents.content": _scored("query", "documents", is_list=False),
            "query.content": _asked_by_pictures("query"),
        },
        _text,
        None,
    ),
    Record(Kind.MESSAGE_TOKENS, ANTHROPIC_IMAGES, ANTHROPIC_PLACES, _text, _text),
    Record(Kind.RESPONSES, RESPONSES_IMAGES, RESPONSES_PLACES, _input_text, _input_text),
)
