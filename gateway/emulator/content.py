"""Content parts of chat messages: which are text, which are images or videos, which vLLM refuses.

Follows `renderers/chat_utils.py::_parse_chat_message_content_mm_part`: a part without uuid and with a known type goes
by its type; any other part goes by the first media key that it holds, whatever its type says.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gateway.emulator.errors import ApiError, bad_request, too_many


@dataclass(frozen=True, slots=True)
class ImageRef:
    """One image of a request. A uuid without url refers to an image that the server has seen."""

    url: str | None
    uuid: str | None = None


@dataclass(frozen=True, slots=True)
class VideoRef(ImageRef):
    """A video likewise, which takes an image's way."""


TEXT_TYPES = ("text", "input_text", "output_text", "refusal", "thinking")
_KEYS_BY_PRECEDENCE = (
    "image_url", "image_pil", "image_embeds", "audio_embeds", "video_embeds", "prompt_embeds", "audio_url",
    "input_audio", "video_url", "tool_reference",
)  # fmt: skip
_SUPPORTED = (
    "audio_embeds, audio_url, image_embeds, image_pil, image_url, input_audio, input_image, input_text, output_text, "
    "prompt_embeds, refusal, text, thinking, tool_reference, video_embeds, video_url"
)
_KNOWN_TYPES = frozenset(_SUPPORTED.split(", "))
_TYPES_THE_SCHEMA_KNOWS = frozenset({"image", "file"})
_DETAILS = ("auto", "low", "high", "original")


def parts_of(content: object) -> Iterator[str | ImageRef]:
    """Text and images of one message's content, in order. Raises ApiError for a part that vLLM refuses."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for place, part in enumerate(content):
            found = part if isinstance(part, str) else _read_part(part, place)
            if found is not None:
                yield found


def _read_part(part: dict[str, Any], place: int) -> str | ImageRef | None:
    kind, uuid = part.get("type"), part.get("uuid")
    if kind in _KNOWN_TYPES and uuid is None:
        return _read_typed(kind, part)
    if kind is None or uuid is not None:
        return _read_by_key(part, None if uuid is None else str(uuid))
    if kind in _TYPES_THE_SCHEMA_KNOWS:
        raise unsupported_type(kind)
    raise _schema_error(8, "ValidatorIterator", f"{place}.ChatCompletionContentPartTextParam.text", "Field required")


def unsupported_type(kind: str) -> ApiError:
    """Of a type that the schema knows and the renderer does not."""
    return bad_request(
        f"Unsupported chat content part type: {kind!r}. Supported types: {_SUPPORTED}.", "type", value=kind
    )


def _read_typed(kind: str, part: dict[str, Any]) -> str | ImageRef | None:
    if kind in TEXT_TYPES:
        text = part.get("thinking" if kind == "thinking" else "refusal" if kind == "refusal" else "text")
        return text if isinstance(text, str) else None
    if kind == "image_url":
        return ImageRef(_url_of_object(part.get("image_url")))
    if kind == "input_image":
        return ImageRef(_url_of_input_image(part))
    if kind == "video_url":
        return VideoRef(_url_of_video(part.get("video_url")))
    raise _refusal(kind)


def _read_by_key(part: dict[str, Any], uuid: str | None) -> str | ImageRef | None:
    key = next((key for key in _KEYS_BY_PRECEDENCE if key in part), None)
    if key is None:
        raise bad_request("Missing 'type' field in multimodal part.", "type")
    if key not in {"image_url", "video_url"}:
        raise _refusal(key)
    value = part[key]
    ref = ImageRef if key == "image_url" else VideoRef
    return ref(value.get("url") if isinstance(value, dict) else value, uuid)


def _url_of_object(value: object) -> str:
    if not isinstance(value, dict):
        raise _schema_error(
            1, "ChatCompletionContentPartImageParam", "image_url", "Input should be a valid dictionary [type=dict_type"
        )
    if value.get("detail", "auto") not in _DETAILS:
        raise _schema_error(
            1,
            "ChatCompletionContentPartImageParam",
            "image_url.detail",
            "Input should be 'auto', 'low', 'high' or 'original' [type=literal_error",
        )
    return str(value.get("url"))


def _url_of_video(value: object) -> str:
    if not isinstance(value, dict):
        raise _schema_error(
            1, "ChatCompletionContentPartVideoParam", "video_url", "Input should be a valid dictionary [type=dict_type"
        )
    return str(value.get("url"))


def _url_of_input_image(part: dict[str, Any]) -> str:
    url = part.get("image_url")
    if part.get("detail") not in _DETAILS:
        count = 1 if isinstance(url, str) else 2
        raise _schema_error(count, "ResponseInputImageParam", "detail", "Field required [type=missing")
    if not isinstance(url, str):
        raise _schema_error(1, "ResponseInputImageParam", "image_url", "Input should be a valid string")
    return url


def _schema_error(count: int, model: str, field: str, message: str) -> ApiError:
    plural = "" if count == 1 else "s"
    return bad_request(f"{count} validation error{plural} for {model}\n{field}\n  {message}")


def _refusal(kind: str) -> ApiError:
    """Media other than images and videos. The server stands for `--limit-mm-per-prompt '{"audio": 0}'`."""
    if kind.endswith("_embeds"):
        return bad_request(f"You must set `--enable-mm-embeds` to input `{kind}`", kind)
    if "audio" in kind:
        return too_many("audio", 0)
    return bad_request(f"Failed to load content part of type {kind!r}")
