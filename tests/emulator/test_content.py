"""Content parts: by type, or by the media key they hold, and what is refused."""

import pytest

from gateway.emulator.content import ImageRef, VideoRef, parts_of
from gateway.emulator.errors import ApiError


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("plain", ["plain"]),
        (None, []),
        (["a string", {"type": "text", "text": "b"}], ["a string", "b"]),
        ([{"type": "input_text", "text": "c"}, {"type": "output_text", "text": "d"}], ["c", "d"]),
        ([{"type": "refusal", "refusal": "no"}, {"type": "thinking", "thinking": "hm"}], ["no", "hm"]),
        ([{"type": "text", "text": None}], []),
        ([{"type": "image_url", "image_url": {"url": "u"}}], [ImageRef("u")]),
        ([{"type": "input_image", "image_url": "u", "detail": "low"}], [ImageRef("u")]),
        ([{"image_url": "u"}], [ImageRef("u")]),
        ([{"image_url": {"url": "u"}}], [ImageRef("u")]),
        ([{"type": "text", "text": "looks harmless", "image_url": "u", "uuid": 7}], [ImageRef("u", "7")]),
        ([{"type": "nonsense", "image_url": None, "uuid": "x"}], [ImageRef(None, "x")]),
        ([{"type": "video_url", "video_url": {"url": "u"}}], [VideoRef("u")]),
        ([{"video_url": "u"}], [VideoRef("u")]),
        ([{"type": "text", "video_url": {"url": "u"}, "uuid": 7}], [VideoRef("u", "7")]),
    ],
)
def test_what_a_content_holds(content: object, parts: list[object]) -> None:
    assert list(parts_of(content)) == parts


@pytest.mark.parametrize(
    ("part", "param", "beginning"),
    [
        ({}, "type", "Missing 'type' field in multimodal part."),
        ({"type": "file", "file": {}}, "type", "Unsupported chat content part type: 'file'."),
        ({"type": "hologram"}, None, "8 validation errors for ValidatorIterator\n0.ChatCompletion"),
        ({"type": "video_embeds"}, "video_embeds", "You must set `--enable-mm-embeds`"),
        ({"audio_url": "u"}, "audio", "At most 0 audio(s)"),
        ({"type": "video_url", "video_url": "u"}, None, "1 validation error for ChatCompletionContentPartVideoParam"),
        ({"image_pil": "u", "uuid": "x"}, None, "Failed to load content part of type 'image_pil'"),
        (
            {"type": "input_image", "image_url": {"url": "u"}, "detail": "low"},
            None,
            "1 validation error for ResponseInputImageParam\nimage_url",
        ),
    ],
)
def test_what_is_refused(part: dict[str, object], param: str | None, beginning: str) -> None:
    with pytest.raises(ApiError) as refusal:
        list(parts_of([part]))

    assert (refusal.value.status, refusal.value.param) == (400, param)
    assert refusal.value.message.startswith(beginning)
