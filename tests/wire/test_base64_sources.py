"""Images that stand as base64 alone, with their media type beside it: what is repaired, refused, and written anew."""

import json

import pytest

from gateway.domain.errors import Code, GatewayError
from gateway.wire.data_url import read_data_url
from gateway.wire.dialects.anthropic import parse_messages
from gateway.wire.edits import edit_image_url
from gateway.wire.splice import splice

PAYLOAD = "ABCDEFGHIJI="


def body_with(data, media_type='"image/png"'):
    kind = b"" if media_type is None else b'"media_type": ' + media_type.encode() + b", "
    source = b'{"type": "base64", ' + kind + b'"data": ' + data.encode() + b', "later": 1}'
    block = b'{"type": "image", "source": ' + source + b"}"
    return b'{"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": [' + block + b"]}]}"


def read(*written):
    body = body_with(*written)
    (ref,) = parse_messages(body).images
    return body, ref, read_data_url(body, ref)


def source_after(body, ref, url, media_type, encoded=None):
    edited = b"".join(splice(body, edit_image_url(ref, url, media_type, encoded)))
    return json.loads(edited)["messages"][0]["content"][0]["source"]


def test_strict_base64_is_a_view_of_the_body_and_needs_no_edit():
    body, ref, url = read(json.dumps(PAYLOAD))
    assert (url.file.payload.obj, url.copied_bytes, url.media_type) == (body, 0, "image/png")
    assert edit_image_url(ref, url, "image/png") == ()


@pytest.mark.parametrize(
    ("data", "is_strict"),
    [
        (f'"{PAYLOAD[:-1]}"', False),
        ('"ABCD EFGH\\nIJI="', False),
        ('" ABCDEFGHIJI"', False),
        ('"ABCD\\u0045FGHIJI="', True),
    ],
    ids=["no padding", "blanks", "blank and no padding", "an escape"],
)
def test_what_has_one_meaning_is_repaired(data, is_strict):
    body, ref, url = read(data)
    assert url.file.decode() == b"\0\x10\x83\x10\x51\x87\x20\x92"
    assert url.needs_respelling is not is_strict
    expected = {"type": "base64", "media_type": "image/png", "data": PAYLOAD, "later": 1}
    assert source_after(body, ref, url, "image/png") == expected


def test_escaped_slashes_are_taken_out_and_counted_as_a_copy():
    _, ref, url = read('"AB\\/D"')
    assert (bytes(url.file.payload), url.copied_bytes, url.needs_respelling) == (b"AB/D", 4, False)
    assert edit_image_url(ref, url, "image/png") == ()


@pytest.mark.parametrize("data", ['""', '" "', '"\\n"'])
def test_nothing_is_no_image(data):
    with pytest.raises(GatewayError) as refused:
        read(data)
    assert refused.value.code is Code.INVALID_BASE64_IMAGE
    assert refused.value.param == "messages[0].content[0].source.data"


@pytest.mark.parametrize(
    ("media_type", "expected"),
    [
        ('"image/png"', "image/jpeg"),
        ('"IMAGE/JPEG"', "IMAGE/JPEG"),
        ('"image\\/webp"', "image/jpeg"),
        (None, "image/jpeg"),
    ],
)
def test_what_it_says_of_its_kind_is_made_true(media_type, expected):
    body, ref, url = read(json.dumps(PAYLOAD), media_type)
    assert source_after(body, ref, url, "image/jpeg")["media_type"] == expected


@pytest.mark.parametrize("media_type", ['"image/png"', None])
def test_a_new_file_brings_its_kind(media_type):
    body, ref, url = read(json.dumps(PAYLOAD), media_type)
    source = source_after(body, ref, url, "image/webp", b"AAAA")
    assert source == {"type": "base64", "media_type": "image/webp", "data": "AAAA", "later": 1}
