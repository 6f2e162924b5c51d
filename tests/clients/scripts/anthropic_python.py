"""Anthropic's own SDK for Python."""

from typing import Any

import anthropic
from lines import KEY, MODEL, QUESTION, serve


def client(url: str) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=url, api_key=KEY)


def block(image: str) -> dict[str, Any]:
    """A data URL as Anthropic has pictures."""
    kind, data = image.removeprefix("data:").split(";base64,")
    return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}


def content(image: str | None) -> list[dict[str, Any]]:
    return [{"type": "text", "text": QUESTION}, *([block(image)] if image else [])]


def seen(answer: anthropic.types.Message) -> dict[str, Any]:
    text = "".join(part.text for part in answer.content if part.type == "text")
    usage = answer.usage
    cached = (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0)
    return {"text": text, "prompt_tokens": usage.input_tokens + cached}


def messages(url: str, image: str | None = None, text: str | None = None) -> dict[str, Any]:
    asked = [{"role": "user", "content": text or content(image)}]
    return seen(client(url).messages.create(model=MODEL, max_tokens=8, messages=asked))


def messages_stream(url: str, image: str | None = None) -> dict[str, Any]:
    asked = [{"role": "user", "content": content(image)}]
    with client(url).messages.stream(model=MODEL, max_tokens=8, messages=asked) as events:
        pieces = list(events.text_stream)
        answer = events.get_final_message()
    return seen(answer) | {"pieces": len(pieces)}


def tool_result(url: str, image: str) -> dict[str, Any]:
    """A picture that a tool brought."""
    call = {"type": "tool_use", "id": "toolu_1", "name": "screenshot", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [block(image)]}
    asked = [
        {"role": "user", "content": "Look at the screen."},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
    ]
    tool = {"name": "screenshot", "description": "The screen.", "input_schema": {"type": "object", "properties": {}}}
    return seen(client(url).messages.create(model=MODEL, max_tokens=8, messages=asked, tools=[tool]))


def count_tokens(url: str, image: str | None = None) -> dict[str, Any]:
    asked = [{"role": "user", "content": content(image)}]
    return {"prompt_tokens": client(url).messages.count_tokens(model=MODEL, messages=asked).input_tokens}


serve(
    {
        "messages": messages,
        "messages_stream": messages_stream,
        "tool_result": tool_result,
        "count_tokens": count_tokens,
    }
)
