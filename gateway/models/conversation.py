"""Messages of a chat request as vLLM hands them to a chat template. Pure values, no template.

Follows vLLM 0.32 `renderers/chat_utils.py` (`_parse_chat_message_content`, `_postprocess_messages`) and
`renderers/hf.py` (developer role). Two content formats exist: templates that loop over parts get lists of parts
("openai"), others get one string per message ("string"), where the placeholders of pictures stand before the text.
"""

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

Message = dict[str, Any]


class ContentFormat(StrEnum):
    STRING = "string"
    OPENAI = "openai"


class UncountableError(ValueError):
    """A request whose prompt cannot be counted here: vLLM would refuse it, or reads it by rules not followed here."""


_TEXT_KEYS = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
    "thinking": "thinking",
}
_SKIPPED_WHEN_NONE = {"text", "refusal"}
_IMAGE_TYPES = {"image_url", "input_image", "image_pil", "image_embeds"}
_BILLING_HEADER = "x-anthropic-billing-header"
_KNOWN_KEYS = frozenset(
    {"audio_embeds", "audio_url", "closed", "data", "file", "image_embeds", "image_pil", "image_url", "input_audio"}
    | {"name", "prompt_cache_breakpoint", "refusal", "text", "thinking", "type", "uuid", "video_embeds", "video_url"}
)
"""Keys of a part that the template does not see as they are; it sees all others (`_KNOWN_CONTENT_PART_FIELDS`)."""


class _Part(NamedTuple):
    """`kind` is "text", "image" or "tool_reference"; `extra` holds the part's keys that vLLM does not know."""

    kind: str
    text: str = ""
    extra: Mapping[str, Any] = {}


def convert_messages(
    messages: object, content_format: ContentFormat, image_placeholder: str | None, *, has_developer_role: bool
) -> list[Message]:
    """The conversation that the template sees.

    `image_placeholder` is what stands for a picture in the string format, None where it is not known.
    `has_developer_role`: the template names that role; without it developer messages become system ones.
    Raises UncountableError.
    """
    if not isinstance(messages, list) or not messages:
        raise UncountableError("messages is not a list of messages")
    converted = [_convert_message(message, content_format, image_placeholder) for message in messages]
    is_foreign = any(message["role"] == "developer" for message in converted) and not has_developer_role
    return _merge_system(_as_system(message) for message in converted) if is_foreign else converted


def _convert_message(message: object, content_format: ContentFormat, image_placeholder: str | None) -> Message:
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise UncountableError("a message has no role")
    role = message["role"]
    parts = _parts(message.get("content"), is_system=role == "system")
    if content_format is ContentFormat.OPENAI:
        content: str | list[dict[str, Any]] = [_wrap(part) for part in parts]
    else:
        content = _join(parts, image_placeholder)
    converted = {"role": role, "content": content} | _fields_of_role(role, message)
    if role == "tool" and isinstance(content, list) and all(part["type"] == "text" for part in content):
        converted["content"] = "\n".join(part["text"] for part in content)
    converted |= {key: message[key] for key in ("name", "task") if isinstance(message.get(key), str)}
    return converted


def _fields_of_role(role: str, message: Mapping[str, Any]) -> Message:
    if role == "assistant":
        reasoning = message.get("reasoning", message.get("reasoning_content"))
        thoughts = {} if reasoning is None else {"reasoning": reasoning, "reasoning_content": reasoning}
        return _tool_calls(message.get("tool_calls")) | thoughts
    if role == "tool" and "tool_call_id" in message:
        return {"tool_call_id": message["tool_call_id"]}
    return {"tools": message.get("tools")} if role == "developer" else {}


def _parts(content: object, *, is_system: bool) -> list[_Part]:
    if content is None:
        return []
    parts = [content] if isinstance(content, str) else content
    if not isinstance(parts, list):
        raise UncountableError("content is neither text nor a list of parts")
    read = [found for part in parts if (found := _read_part(part)) is not None]
    return [kept for part in read if (kept := _without_billing_line(part)) is not None] if is_system else read


def _read_part(part: object) -> _Part | None:
    if isinstance(part, str):
        return _Part("text", part)
    if not isinstance(part, Mapping):
        raise UncountableError("a content part is neither text nor an object")
    kind, extra = part.get("type"), {key: value for key, value in part.items() if key not in _KNOWN_KEYS}
    if kind is not None and not isinstance(kind, str):
        raise UncountableError("the type of a part is not text")
    # With a uuid, or without a type, vLLM goes by the key that is there.
    if part.get("uuid") is not None or kind is None:
        kind = next((key for key in part if key in _IMAGE_TYPES), kind)
    elif kind in _TEXT_KEYS:
        return _text_part(kind, part.get(_TEXT_KEYS[kind]), extra)
    if kind in _IMAGE_TYPES:
        return _Part("image", extra=extra)
    if kind == "tool_reference" and isinstance(part.get("name"), str):
        return _Part("tool_reference", part["name"])
    raise UncountableError(f"a part of type {kind!r} cannot be counted")


def _text_part(kind: str, text: object, extra: Mapping[str, Any]) -> _Part | None:
    if text is None and kind in _SKIPPED_WHEN_NONE:
        return None
    if not isinstance(text, str):
        raise UncountableError(f"a part of type {kind} has no text")
    return _Part("text", text, extra)


def _without_billing_line(part: _Part) -> _Part | None:
    """The line that one client puts at the head of its system prompt, new with every request, is dropped by vLLM."""
    if part.kind != "text" or not part.text.startswith(_BILLING_HEADER):
        return part
    rest = part.text.partition("\n")[2]
    return part._replace(text=rest) if rest else None


def _wrap(part: _Part) -> dict[str, Any]:
    if part.kind == "image":
        return {"type": "image"} | dict(part.extra)
    if part.kind == "tool_reference":
        return {"type": part.kind, "name": part.text}
    return {"type": "text", "text": part.text} | dict(part.extra)


def _join(parts: Sequence[_Part], image_placeholder: str | None) -> str:
    """Texts by line, empty ones left out; placeholders not typed out in them come first."""
    text = "\n".join(part.text for part in parts if part.text)
    images = sum(part.kind == "image" for part in parts)
    if not images:
        return text
    if image_placeholder is None:
        raise UncountableError("how this model's template marks a picture is not known")
    missing = images - text.count(image_placeholder)
    if missing < 0:
        raise UncountableError("the text has more placeholders than the message has images")
    return "\n".join([image_placeholder] * missing + ([text] if text else []))


def _tool_calls(calls: object) -> Message:
    if not isinstance(calls, list) or not calls:
        return {}
    return {"tool_calls": [_tool_call(call) for call in calls]}


def _tool_call(call: object) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(call, Mapping) or call.get("type", "function") != "function" or not isinstance(function, Mapping):
        raise UncountableError("an entry of tool_calls is no function call")
    return {**call, "function": {**function, "arguments": _arguments(function.get("arguments"))}}


def _arguments(arguments: object) -> dict[str, Any]:
    """Templates want an object; what is not one counts as empty."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return {}
    return arguments if isinstance(arguments, dict) else {}


def _as_system(message: Message) -> Message:
    if message["role"] != "developer":
        return message
    return {key: value for key, value in message.items() if key != "tools"} | {"role": "system"}


def _merge_system(messages: Any) -> list[Message]:
    """One system message, at the front, where there are several or it is not the first."""
    conversation = list(messages)
    systems = [index for index, message in enumerate(conversation) if message["role"] == "system"]
    if systems == [0]:
        return conversation
    contents = (_plain(conversation[index]["content"]) for index in systems)
    merged = {"role": "system", "content": "\n\n".join(content for content in contents if content)}
    return [merged, *(message for message in conversation if message["role"] != "system")]


def _plain(content: str | list[dict[str, Any]]) -> str:
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content if "text" in part)
