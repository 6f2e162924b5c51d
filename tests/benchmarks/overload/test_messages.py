import io

import pybase64
import pytest
from PIL import Image

from benchmarks.overload.messages import data_url, payload
from benchmarks.overload.traffic import Habits, Stream, endless


def request_of(kind, skip=0):
    source = endless(1, Stream("any", 1.0, ("a",), Habits(kind=kind)))
    for _ in range(skip):
        next(source)
    return next(source)


def images_of(body):
    parts = [part for turn in body["messages"] if isinstance(turn["content"], list) for part in turn["content"]]
    return [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]


def opened(url):
    return Image.open(io.BytesIO(pybase64.b64decode(url.partition(",")[2])))


def test_a_picture_is_a_real_jpeg_of_twelve_megapixels_in_few_bytes():
    url = data_url((4000, 3000), "one")
    picture = opened(url)
    picture.load()
    assert (picture.format, picture.size) == ("JPEG", (4000, 3000))
    assert len(url) < 100_000


def test_no_two_names_have_the_same_bytes_but_all_have_the_same_length():
    one, two = data_url((512, 512), "one"), data_url((512, 512), "two")
    assert one != two
    assert len(one) == len(two)
    with pytest.raises(ValueError, match="longer than"):
        data_url((512, 512), "x" * 49)


def test_a_text_is_a_string_and_max_tokens_stands_only_where_the_client_sets_it():
    request = request_of("text")
    body = payload(request, "s")
    assert body["messages"][0]["content"].endswith(request.text)
    assert body.get("max_tokens") == request.max_tokens


def test_the_second_turn_shows_the_pictures_of_the_first_again_and_begins_like_it():
    first, second = payload(request_of("history"), "s"), payload(request_of("history", skip=1), "s")
    assert images_of(second)[:4] == images_of(first)
    assert len(images_of(second)) == 5
    assert second["messages"][: len(first["messages"])] == first["messages"]


def test_a_cell_shows_no_picture_of_another():
    request = request_of("small")
    assert images_of(payload(request, "001")) != images_of(payload(request, "002"))
