"""Each kind of part, as vLLM 0.32 dispatches it (observed by calling its own parser)."""

import json

import msgspec
import pytest

from gateway.domain.errors import Code, GatewayError
from gateway.domain.media import MediaKind
from gateway.wire.content import ImagePart, MediaPart, Part, read_part

URL = "data:image/png;base64,AAAA"
PATH = "messages[0].content[0]"
decoder = msgspec.json.Decoder(Part)


def read(**keys):
    return read_part(decoder.decode(json.dumps(keys).encode()), PATH)


@pytest.mark.parametrize(
    ("keys", "text_bytes"),
    [
        ({"type": "text", "text": "abc"}, 3),
        ({"type": "text", "text": "ä"}, 2),
        ({"type": "text", "text": None}, 0),
        ({"type": "text"}, 0),
        ({"type": "input_text", "text": "ab"}, 2),
        ({"type": "output_text", "text": "ab"}, 2),
        ({"type": "refusal", "refusal": "no"}, 2),
        ({"type": "thinking", "thinking": "hm", "closed": True}, 2),
        ({"type": "tool_reference", "name": "tool"}, 4),
        ({"tool_reference": 1, "name": "tool"}, 4),
        ({"type": "text", "text": "vLLM looks no further", "image_url": {"url": URL}}, 21),
        ({"type": "text", "text": "a", "image_url": None, "uuid": None, "video_url": "x"}, 1),
    ],
)
def test_text(keys, text_bytes):
    assert read(**keys) == text_bytes


@pytest.mark.parametrize(
    ("keys", "is_bare_string", "has_uuid", "detail"),
    [
        ({"type": "image_url", "image_url": {"url": URL}}, False, False, None),
        ({"type": "image_url", "image_url": {"url": URL, "detail": "high"}}, False, False, "high"),
        ({"type": "image_url", "image_url": {"url": URL, "detail": 5}}, False, False, None),
        ({"type": "image_url", "image_url": {"url": URL}, "uuid": "u"}, False, True, None),
        ({"type": "image_url", "image_url": {"url": URL}, "uuid": "ä" * 512}, False, True, None),
        ({"type": "image_url", "image_url": {"url": URL}, "uuid": 0}, False, True, None),
        ({"type": "image_url", "image_url": URL}, True, False, None),
        ({"type": "image_url", "image_url": URL, "uuid": "u"}, True, True, None),
        ({"image_url": URL}, False, False, None),
        ({"type": None, "image_url": URL, "video_url": "x"}, False, False, None),
        ({"type": "input_image", "image_url": URL, "detail": "auto"}, False, False, "auto"),
    ],
)
def test_images(keys, is_bare_string, has_uuid, detail):
    image = read(**keys)

    assert isinstance(image, ImagePart)
    assert (image.is_bare_string, image.has_uuid, image.detail) == (is_bare_string, has_uuid, detail)
    assert (image.url is None) == isinstance(keys["image_url"], str)


@pytest.mark.parametrize(
    ("keys", "hint"),
    [
        ({"type": "image", "image": URL}, "data:image/png;base64"),
        ({"type": "image", "source": {"type": "base64", "data": "AAAA"}}, "data:image/png;base64"),
        ({"type": "video_url", "video_url": URL}, "must be an object"),
        ({"type": "video_url", "video_url": {"url": ""}}, "not empty"),
        ({"type": "video_url", "video_url": {"url": None}}, "must be an object"),
        ({"type": "video_url", "video_url": None}, "must be an object"),
        ({"type": "video_url", "image": URL}, "must be an object"),
        ({"type": "audio_url", "audio_url": {"url": ["x"]}}, "must be an object"),
        ({"type": "input_audio", "input_audio": {}}, "must be an object"),
        ({"input_audio": "AAAA"}, "must be an object"),
        ({"video_url": {"url": URL}}, 'needs "type": "video_url"'),
        ({"audio_url": None}, 'needs "type": "audio_url"'),
        ({"type": "video_url", "video_url": {"url": URL}, "uuid": "u"}, "whose cost is unknown"),
        ({"type": "video_url", "video_url": None, "uuid": "u"}, "whose cost is unknown"),
        ({"type": "text", "text": "a", "video_url": URL, "uuid": "u"}, "whose cost is unknown"),
        ({"type": "audio_url", "audio_url": {"url": URL}, "uuid": 0}, "whose cost is unknown"),
        ({"input_audio": {"data": "AAAA"}, "uuid": "u"}, "whose cost is unknown"),
        ({"video_url": "x", "video_embeds": "A"}, "not yet supported"),
        ({"type": "file", "file": {}}, "pages as images"),
        ({"type": "image_embeds", "image_embeds": "A"}, "not yet supported"),
        ({"image_embeds": None, "uuid": "u"}, "not yet supported"),
        ({"type": "text", "text": "a", "audio_embeds": "A", "uuid": "u"}, "not yet supported"),
        ({"type": "video_embeds"}, "not yet supported"),
        ({"type": "prompt_embeds", "data": "A"}, "Send text"),
        ({"prompt_embeds": 1, "data": "A"}, "Send text"),
        ({"image_pil": {}}, "data:image/png;base64"),
        ({"type": "hologram"}, "are not known"),
        ({"type": 5, "image_url": URL}, "`type` must be a string"),
        ({"type": ["text"]}, "`type` must be a string"),
        ({"type": "text", "text": 5}, "`text` must be a string"),
        ({"type": "thinking", "thinking": {}}, "`thinking` must be a string"),
        ({"text": "no type"}, "has no `type`"),
        ({"type": "text", "text": "a", "uuid": "u"}, "`uuid` belongs"),
        ({"tool_reference": 1, "name": "t", "uuid": "u"}, "`uuid` belongs"),
        ({"type": "image_url", "uuid": "u"}, "`uuid` belongs"),
        ({"type": "image_url", "image_url": None, "uuid": 7}, "needs a string as `uuid`"),
        ({"type": "image_url", "image_url": {"url": 7}, "uuid": "u"}, "needs a string as `uuid`"),
        ({"type": "image_url", "image_url": None}, "holds no URL string"),
        ({"type": "image_url", "image_url": {}}, "holds no URL string"),
        ({"type": "image_url", "image_url": {"url": 7}}, "holds no URL string"),
        ({"type": "image_url"}, "holds no URL string"),
        ({"image_url": None, "video_url": "x"}, "holds no URL string"),
        ({"type": "image_url", "image_url": {"url": URL}, "uuid": "u" * 513}, "has 513 characters"),
        ({"type": "image_url", "image_url": None, "uuid": "u" * 513}, "has 513 characters"),
        ({"type": "text", "text": "a", "image_url": {"url": URL}, "uuid": "u"}, "Use type `image_url`"),
        ({"type": "image", "image_url": URL, "uuid": "u"}, "Use type `image_url`"),
        ({"type": 5, "image_url": URL, "uuid": "u"}, "Use type `image_url`"),
        ({"image_url": {"url": URL}}, 'needs "type": "image_url"'),
        ({"type": "input_image", "image_url": {"url": URL}, "detail": "auto"}, 'needs "type": "image_url"'),
        ({"type": "input_image", "image_url": URL}, '"detail": "auto"'),
    ],
)
def test_what_does_not_pass(keys, hint):
    with pytest.raises(GatewayError) as refused:
        read(**keys)
    assert (refused.value.code, refused.value.param) == (Code.INVALID_CONTENT_PART, PATH)
    assert hint in refused.value.message
    assert PATH in refused.value.message


@pytest.mark.parametrize(
    ("keys", "kind", "key", "is_data"),
    [
        ({"type": "video_url", "video_url": {"url": "x"}}, MediaKind.VIDEO, "video_url.url", False),
        ({"type": "video_url", "video_url": {"url": "x"}, "uuid": None}, MediaKind.VIDEO, "video_url.url", False),
        ({"type": "video_url", "video_url": {"url": "x"}, "audio_url": "y"}, MediaKind.VIDEO, "video_url.url", False),
        ({"video_url": "x"}, MediaKind.VIDEO, "video_url", False),
        ({"type": None, "video_url": "x", "tool_reference": "y"}, MediaKind.VIDEO, "video_url", False),
        ({"audio_url": "x", "video_url": "y"}, MediaKind.AUDIO, "audio_url", False),
        ({"type": "audio_url", "audio_url": {"url": "x"}}, MediaKind.AUDIO, "audio_url.url", False),
        (
            {"type": "input_audio", "input_audio": {"data": "x", "format": "wav"}},
            MediaKind.AUDIO,
            "input_audio.data",
            True,
        ),
        ({"input_audio": {"data": "x"}, "video_url": "y"}, MediaKind.AUDIO, "input_audio.data", True),
    ],
)
def test_videos_and_audio(keys, kind, key, is_data):
    media = read(**keys)

    assert isinstance(media, MediaPart)
    assert (media.kind, bytes(media.url), media.key, media.is_data) == (kind, b'"x"', key, is_data)


def test_a_type_that_is_not_known_is_not_repeated():
    """Sentences are logged, and a type can be any text."""
    with pytest.raises(GatewayError) as refused:
        read(type="my secret prompt")
    assert "secret" not in refused.value.message
