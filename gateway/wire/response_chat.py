"""The chat that vLLM makes of a Responses body, for whoever counts its text exactly. The body's images are emptied.

Follows vLLM 0.32 (entrypoints/openai/responses/utils.py): thoughts, words and calls of an assistant that follow each
other are one message, of whose parts the first is kept.
"""

from typing import Any

import msgspec

Values = dict[str, Any]

_SETTINGS = ("chat_template_kwargs",)
_CALLS = ("function_call", "custom_tool_call")
_FREE_TEXT = {
    "type": "object",
    "properties": {"input": {"type": "string", "description": "The freeform text payload for this tool."}},
    "required": ["input"],
    "additionalProperties": False,
}
"""What vLLM shows of a tool that takes any text."""

_CHECKED_LATE = ("annotations", "logprobs")
_UNFINISHED = ("in_progress", "incomplete")


def chat_of_responses(slim: bytes) -> bytes:
    """A chat body. Raises msgspec.DecodeError or RecursionError, and LookupError, TypeError or AttributeError for
    fields that vLLM refuses too.
    """
    body = msgspec.json.decode(slim)
    chat: Values = {key: body[key] for key in _SETTINGS if key in body} | {"messages": _messages(body)}
    effort = (body.get("reasoning") or {}).get("effort")
    if effort is not None:
        chat["reasoning_effort"] = effort
    tools = [tool for each in body.get("tools") or () for tool in _functions(each)]
    if tools:
        chat["tools"] = tools
    if _is_continued(body["input"]):
        chat |= {"add_generation_prompt": False, "continue_final_message": True}
    return msgspec.json.encode(chat)


def _messages(body: Values) -> list[Values]:
    instructions, items = body.get("instructions"), body["input"]
    head: list[Values] = [{"role": "system", "content": instructions}] if instructions else []
    if isinstance(items, str):
        return [*head, {"role": "user", "content": items}]
    turns: list[Values] = []
    for item in items:
        _add(turns, item)
    return head + turns


def _add(turns: list[Values], item: Values) -> None:
    kind = item.get("type", "message")
    if kind in _CALLS:
        said = turns[-1].get("tool_calls") or [] if _is_said(turns) else []
        _say(turns, "tool_calls", [*said, _call(item, kind)], is_added=True)
    elif kind == "reasoning":
        parts = item.get("content") or item.get("summary") or [{"text": ""}]
        _say(turns, "reasoning", parts[0]["text"])
    elif kind != "message":
        turns.append({"role": "tool", "content": item.get("output"), "tool_call_id": item.get("call_id")})
    elif item["role"] == "assistant":
        content = item["content"]
        if not isinstance(content, str) and any(part.get(key) for part in content for key in _CHECKED_LATE):
            raise LookupError("whether vLLM takes the first part alone is not known")
        _say(turns, "content", content if isinstance(content, str) else content[0]["text"])
    else:
        turns.append(item)


def _is_said(turns: list[Values]) -> bool:
    return bool(turns) and turns[-1]["role"] == "assistant"


def _say(turns: list[Values], key: str, value: Any, *, is_added: bool = False) -> None:
    if _is_said(turns) and (is_added or turns[-1].get(key) is None):
        turns[-1][key] = value
    else:
        turns.append({"role": "assistant", key: value})


def _call(item: Values, kind: str) -> Values:
    name, arguments = item["name"], item.get("arguments")
    if item.get("namespace"):
        name = f"{item['namespace']}__{name}"
    if kind == "custom_tool_call":
        arguments = msgspec.json.encode({"input": item.get("input") or ""}).decode()
    return {"id": item.get("call_id"), "type": "function", "function": {"name": name, "arguments": arguments}}


def _functions(tool: Values) -> list[Values]:
    """As the template sees a tool; those of other types are the server's own, and reach no template."""
    kind = tool.get("type")
    if kind == "namespace":
        inner = [each for each in tool["tools"] if each.get("type") == "function"]
        return [_function(each | {"name": f"{tool['name']}__{each['name']}"}) for each in inner]
    if kind == "custom":
        shown = {"name": tool["name"], "description": tool.get("description"), "parameters": _FREE_TEXT}
        return [_function(shown)]
    return [_function(tool)] if kind == "function" else []


def _function(tool: Values) -> Values:
    return {"type": "function", "function": {key: value for key, value in tool.items() if key != "type"}}


def _is_continued(items: str | list[Values]) -> bool:
    last = {} if isinstance(items, str) else items[-1]
    return last.get("type", "message") in {"message", "reasoning"} and last.get("status") in _UNFINISHED
