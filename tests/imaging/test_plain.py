"""Pictures of one colour."""

import io

from PIL import Image

from gateway.domain.calibration import PICTURES
from gateway.domain.geometry import Size
from gateway.imaging.plain import plain_picture


def test_a_picture_has_its_size_and_its_colour():
    opened = Image.open(io.BytesIO(plain_picture(Size(98, 42), b"\x01\x02\x03")))
    assert (opened.format, opened.mode, opened.size) == ("PNG", "RGB", (98, 42))
    assert opened.getcolors() == [(98 * 42, (1, 2, 3))]


def test_each_colour_is_another_file():
    size = Size(64, 64)
    assert plain_picture(size, b"\x01\x02\x03") != plain_picture(size, b"\x01\x02\x04")


def test_all_that_are_sent_are_a_few_kilobytes():
    assert sum(len(plain_picture(size, b"\x01\x02\x03")) for size in PICTURES) < 32 * 1024
