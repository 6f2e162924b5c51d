"""The items of a Responses request as the chat messages that vLLM makes of them. Pure.

Follows `entrypoints/openai/responses/utils.py` of vLLM 0.32: an item with a `role` is a chat message as it stands, even
where its `type` is another; of an assistant's parts only the first text is kept; what a tool gave may hold pictures.
"""

from typing import Any

from gateway.emulator.content import unsupported_type
from gateway.emulator.errors import ApiError, bad_request

Message = dict[str, Any]

_PART_TYPES = ("input_text", "input_image", "input_file")
_ROLES = ("user", "assistant", "system", "developer")
_OUTPUTS = ("function_call_output", "custom_tool_call_output")
_CALLS = ("function_call", "custom_tool_call")
_KNOWN_TO_THE_SCHEMA = frozenset(
    {"computer_call", "computer_call_output", "file_search_call", "image_generation_call", "item_reference"}
    | {"mcp_call", "mcp_list_tools", "web_search_call", "local_shell_call", "code_interpreter_call", "compaction"}
)


def messages_of(
    instructions: str | None, request_input: str | list[Any], history: list[Message] | None = None
) -> list[Message]:
    """The whole conversation: instructions, what is remembered without its own, the new input. Raises ApiError."""
    messages: list[Message] = [{"role": "system", "content": instructions}] if instructions else []
    messages += [message for message in history or () if message["role"] != "system"]
    if isinstance(request_input, str):
        return [*messages, {"role": "user", "content": request_input}]
    own: list[Message] = []
    for item in request_input:
        message = _message_of(item, own[-1] if own and own[-1]["role"] == "assistant" else None)
        if message is not None:
            own.append(message)
    return messages + own


def _message_of(item: Any, before: Message | None) -> Message | None:
    """A new message; None where the item joined the assistant's message `before` it."""
    if not isinstance(item, dict):
        raise _not_valid(item)
    kind = item.get("type", "message")
    if kind in _CALLS:
        arguments = item.get("arguments") or item.get("input") or ""
        call = {"type": "function", "function": {"name": item.get("name"), "arguments": arguments}}
        return _joined(before, "tool_calls", [*((before or {}).get("tool_calls") or ()), call], is_repeatable=True)
    if kind in _OUTPUTS:
        return {"role": "tool", "content": _parts(item.get("output"))}
    if kind == "reasoning":
        thoughts = [part.get("text") for part in (item.get("content") or item.get("summary") or ())]
        return _joined(before, "reasoning", thoughts[0] if thoughts else "")
    if "role" in item:
        return _chat_message(item, kind, before)
    if kind in _KNOWN_TO_THE_SCHEMA:
        raise bad_request(f"Unsupported input item type: {kind}", "input")
    raise _not_valid(item)


def _chat_message(item: Message, kind: str, before: Message | None) -> Message | None:
    if kind in _KNOWN_TO_THE_SCHEMA:
        return item  # not looked at: its content is a chat's
    content = item.get("content")
    if kind != "message" or item["role"] not in _ROLES or not isinstance(content, str | list):
        raise _not_valid(item)
    if item["role"] == "assistant":
        text = content if isinstance(content, str) else content[0].get("text")
        if text is not None:
            return _joined(before, "content", text)
    return item | {"content": _with_detail(_parts(content))}


def _joined(before: Message | None, key: str, value: Any, *, is_repeatable: bool = False) -> Message | None:
    if before is not None and (is_repeatable or before.get(key) is None):
        before[key] = value
        return None
    return {"role": "assistant", key: value}


def _parts(content: Any) -> Any:
    if not isinstance(content, list):
        return content
    for part in content:
        if not isinstance(part, dict) or part.get("type") not in _PART_TYPES:
            raise _not_valid(part)
        if part["type"] == "input_file":
            raise unsupported_type("input_file")
        if part["type"] == "input_image" and not isinstance(part.get("image_url"), str | None):
            raise _not_valid(part)
    return content


def _with_detail(content: Any) -> Any:
    """Where a message leaves it out, its default; what tools gave has none, and is refused without it."""
    parts = content if isinstance(content, list) else ()
    return [{"detail": "auto"} | part if part["type"] == "input_image" else part for part in parts] or content


def _not_valid(value: object) -> ApiError:
    """Every member of its union of item types is listed by vLLM, over two hundred lines; here one stands for them."""
    message = f"1 validation error:\n  {{'type': 'string_type', 'loc': 'body.input', 'input': '{str(value)[:80]}'}}"
    return ApiError(400, "Bad Request", message, "body.input")
