import base64
import io
import json
import warnings

import pytest
from PIL import Image

from benchmarks.bodies import BODIES, BodyFiles, image_request, jpeg, padded_jpeg
from benchmarks.loader import UNIQUE_MARK


def picture_of(body):
    content = json.loads(body)["messages"][0]["content"]
    url = content[1]["image_url"]["url"]
    return base64.b64decode(url.removeprefix("data:image/jpeg;base64,"), validate=True)


@pytest.mark.parametrize("about_bytes", [200_000, 786_432])
def test_a_picture_has_about_the_size_asked_for_and_decodes(about_bytes):
    picture = jpeg(about_bytes)
    assert 0.9 * about_bytes < len(picture) <= about_bytes
    with warnings.catch_warnings(action="error"):
        Image.open(io.BytesIO(picture)).load()


def test_any_number_in_the_mark_leaves_the_same_picture_with_other_bytes():
    body = image_request(jpeg(100_000))
    assert body.count(UNIQUE_MARK) == 1
    other = body.replace(UNIQUE_MARK, b"1234567890123456")
    assert picture_of(other) != picture_of(body)
    assert Image.open(io.BytesIO(picture_of(other))).tobytes() == Image.open(io.BytesIO(picture_of(body))).tobytes()


def test_the_size_of_a_picture_stands_within_its_first_kilobyte():
    first = Image.open(io.BytesIO(jpeg(100_000)[:1024]))
    assert first.width * 3 // 4 == first.height


def test_a_padded_picture_has_its_bytes_without_the_pixels():
    picture = padded_jpeg(2_000_000)
    assert 1_900_000 < len(picture) <= 2_000_000
    assert UNIQUE_MARK in base64.b64encode(picture)
    with warnings.catch_warnings(action="error"):
        decoded = Image.open(io.BytesIO(picture))
        decoded.load()
    assert decoded.size == Image.open(io.BytesIO(jpeg(250_000))).size


def test_no_picture_has_more_pixels_than_a_common_model_takes():
    for picture_bytes in (20 * (1 << 20) * 3 // 4, 5 * (1 << 20) * 3 // 4):
        picture = Image.open(io.BytesIO(jpeg(picture_bytes)))
        assert picture.width * picture.height < 12_000_000


def test_a_text_body_has_the_stated_size():
    assert 700 < len(BODIES["text"]()) < 900


def test_a_body_is_made_once(tmp_path):
    files = BodyFiles(tmp_path)
    path = files.path("text")
    path.write_bytes(b"kept")
    assert files.path("text").read_bytes() == b"kept"
