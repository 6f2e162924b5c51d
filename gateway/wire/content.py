"""One content part of a chat message: text, an image, a video, audio, or something that must not pass.

Media is recognised by every key by which vLLM 0.32 would (renderers/chat_utils.py,
`_parse_chat_message_content_mm_part`):

- no `uuid` and a `type`: by type;
- a `uuid`, or no `type`: by the first present of `image_url`, `image_pil`, `image_embeds`, `audio_embeds`,
  `video_embeds`, `prompt_embeds`, `audio_url`, `input_audio`, `video_url`, `tool_reference`, whatever `type` says;
- a bare string is text.

A part that vLLM would read by its key although its type says otherwise is refused: where the uuid is taken out, the
part means something else. An image may be its uuid alone, where it was sent before. Videos and audio go on as they
came, so one with a `uuid` is refused: vLLM would take what its cache has under that name, which may be anything.
"""

from typing import Any, NamedTuple

import msgspec

from gateway.domain.errors import GatewayError
from gateway.domain.media import MediaKind
from gateway.wire.read import ABSENT, bad_part, decode_body, rendered_bytes

# Where each type that vLLM reads as text keeps it.
_TEXT_FIELD = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
    "thinking": "thinking",
    "tool_reference": "name",
}
_MOST_UUID_CHARACTERS = 512
"""vLLM sets no bound. Here they are remembered, and thousands of megabytes of them would be too."""
_IMAGE_TYPES = ("image_url", "input_image")
_REFUSED_KEYS = ("image_pil", "image_embeds", "audio_embeds", "video_embeds", "prompt_embeds")
_MEDIA_KINDS = {"audio_url": MediaKind.AUDIO, "input_audio": MediaKind.AUDIO, "video_url": MediaKind.VIDEO}
"""In the order in which vLLM looks for them, after those that are refused."""
_INSTEAD = 'Send images as {"type": "image_url", "image_url": {"url": "data:image/png;base64,..."}}.'
_UNKNOWN_TYPE = "Parts of its type are not known. Send parts of type `text` or `image_url`."
_NOT_SUPPORTED = {
    "image": f"Parts of type `image` are not supported. {_INSTEAD}",
    "image_pil": f"`image_pil` exists only inside vLLM's Python API. {_INSTEAD}",
    "image_embeds": f"Image embeddings are not yet supported. {_INSTEAD}",
    "audio_embeds": "Audio embeddings are not yet supported. Send text and images.",
    "video_embeds": "Video embeddings are not yet supported. Send single frames as images.",
    "prompt_embeds": "Prompt embeddings are not yet supported. Send text.",
    "file": "Files are not yet supported. Send text, and pages as images.",
}


class ImageUrl(msgspec.Struct, gc=False):
    """The object of `image_url`; the URL stays a view of the body."""

    url: msgspec.Raw = ABSENT
    detail: Any = None


class Part(msgspec.Struct):
    """The keys of a part that decide what it is; all others are vLLM's business."""

    type: Any = None
    uuid: Any = None
    text: Any = None
    image_url: ImageUrl | str | msgspec.UnsetType | None = msgspec.UNSET
    detail: Any = None
    refusal: Any = None
    thinking: Any = None
    name: Any = None
    image_pil: msgspec.Raw = ABSENT
    image_embeds: msgspec.Raw = ABSENT
    audio_embeds: msgspec.Raw = ABSENT
    video_embeds: msgspec.Raw = ABSENT
    prompt_embeds: msgspec.Raw = ABSENT
    audio_url: msgspec.Raw = ABSENT
    input_audio: msgspec.Raw = ABSENT
    video_url: msgspec.Raw = ABSENT
    tool_reference: msgspec.Raw = ABSENT


class ImagePart(NamedTuple):
    """An image part. `url` is None where `image_url` is no object with one: its place must be looked up. `uuid` is None
    where the one that is there is no text. `is_named_only`: there is no image beside the uuid.
    """

    url: msgspec.Raw | None
    detail: str | None
    is_bare_string: bool
    has_uuid: bool
    uuid: str | None = None
    is_named_only: bool = False


class MediaPart(NamedTuple):
    """A video or audio part. `url` is the JSON string of its address, or of its base64 alone where `is_data`; `key` is
    the path to it within the part.
    """

    kind: MediaKind
    url: msgspec.Raw
    key: str
    is_data: bool = False


class _Object(msgspec.Struct, gc=False):
    url: msgspec.Raw = ABSENT
    data: msgspec.Raw = ABSENT


_object_decoder = msgspec.json.Decoder(_Object)


def _unsupported(path: str, kind: str) -> GatewayError:
    """A type that is not in the table is the client's own text, and sentences are logged: it is not repeated."""
    return bad_part(path, _NOT_SUPPORTED.get(kind, _UNKNOWN_TYPE))


def read_part(part: Part, path: str) -> ImagePart | MediaPart | int:
    """An image, a video, audio, or the UTF-8 bytes of a text. Raises GatewayError invalid_content_part for all else."""
    kind = part.type
    if part.uuid is not None or kind is None:
        return _read_by_key(part, path)
    if not isinstance(kind, str):
        raise bad_part(path, "`type` must be a string.")
    if kind in _TEXT_FIELD:
        return _text(part, _TEXT_FIELD[kind], path)
    if kind in _IMAGE_TYPES:
        return _image(part, path)
    if kind in _MEDIA_KINDS:
        return _media(part, kind, path)
    raise _unsupported(path, kind)


def _text(part: Part, field: str, path: str) -> int:
    value = getattr(part, field)
    if value is not None and not isinstance(value, str):
        raise bad_part(path, f"`{field}` must be a string.")
    return rendered_bytes(value)


def _read_by_key(part: Part, path: str) -> ImagePart | MediaPart | int:
    if part.image_url is not msgspec.UNSET:
        return _image(part, path)
    for key in _REFUSED_KEYS:
        if memoryview(getattr(part, key)):
            raise _unsupported(path, key)
    for key in _MEDIA_KINDS:
        if memoryview(getattr(part, key)):
            return _media(part, key, path)
    if part.uuid is None and memoryview(part.tool_reference):
        return _text(part, "name", path)
    if part.uuid is not None:
        raise bad_part(path, "`uuid` belongs to a part with an image. Take it out, or send the image beside it.")
    raise bad_part(path, "The part has no `type`. Give it one: `text` or `image_url`.")


def _image(part: Part, path: str) -> ImagePart:
    has_uuid, uuid = part.uuid is not None, part.uuid if isinstance(part.uuid, str) else None
    if uuid is not None and len(uuid) > _MOST_UUID_CHARACTERS:
        raise bad_part(path, f"Its `uuid` has {len(uuid)} characters, and at most {_MOST_UUID_CHARACTERS} are taken.")
    if part.type is not None and part.type not in _IMAGE_TYPES:
        raise bad_part(
            path, "With `uuid`, vLLM reads `image_url` here although `type` says otherwise. Use type `image_url`."
        )
    value = part.image_url
    if uuid is not None and _is_nothing(value):
        return ImagePart(None, None, is_bare_string=False, has_uuid=True, uuid=uuid, is_named_only=True)
    if isinstance(value, str):
        _check_input_image(part, path)
        return ImagePart(None, _detail(part.detail), part.type == "image_url", has_uuid, uuid)
    if isinstance(value, ImageUrl) and memoryview(value.url)[:1].tobytes() == b'"':
        if part.type != "image_url":
            raise bad_part(path, 'An `image_url` with {"url": ...} needs "type": "image_url".')
        return ImagePart(value.url, _detail(value.detail), is_bare_string=False, has_uuid=has_uuid, uuid=uuid)
    if has_uuid:
        raise bad_part(path, f"An image that is only named needs a string as `uuid`. {_INSTEAD}")
    raise bad_part(path, f"`image_url` holds no URL string. {_INSTEAD}")


def _is_nothing(value: ImageUrl | str | msgspec.UnsetType | None) -> bool:
    """Nothing that vLLM would fetch."""
    if isinstance(value, ImageUrl):
        return bytes(memoryview(value.url)[:4]) in {b"", b'""', b"null"}
    return not value


def _media(part: Part, key: str, path: str) -> MediaPart:
    """Of the key that vLLM would go by: a string where the part has no type, an object where it has one."""
    kind, value = _MEDIA_KINDS[key], getattr(part, key)
    if part.uuid is not None:
        raise bad_part(
            path,
            f"With a `uuid`, vLLM takes the {kind} that it keeps under that name, whose cost is unknown. Take it out, "
            f"and send the {kind} itself.",
        )
    first = bytes(memoryview(value)[:1])
    if part.type is None and key != "input_audio":
        if first != b'"':
            raise bad_part(path, f'A `{key}` that is an object needs "type": "{key}".')
        return MediaPart(kind, value, key)
    field = "data" if key == "input_audio" else "url"
    found = getattr(decode_body(_object_decoder, value), field) if first == b"{" else ABSENT
    start = bytes(memoryview(found)[:2])
    if start[:1] != b'"' or start == b'""':
        raise bad_part(path, f'`{key}` must be an object with a string, {{"{field}": "..."}}, that is not empty.')
    return MediaPart(kind, found, f"{key}.{field}", is_data=field == "data")


def _check_input_image(part: Part, path: str) -> None:
    """For vLLM, `input_image` is the Responses API's part, where `detail` is required."""
    if part.type == "input_image" and not isinstance(part.detail, str):
        raise bad_part(path, 'vLLM takes `input_image` only with "detail": "auto". Add it, or use type `image_url`.')


def _detail(value: Any) -> str | None:
    return value if isinstance(value, str) else None
