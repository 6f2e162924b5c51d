import struct

import pytest

from gateway.domain.geometry import Size
from gateway.domain.image import Why
from gateway.imaging.header.base import BrokenHeaderError, ShortHeaderError, Steps
from gateway.imaging.header.webp import end_of_picture, read_webp
from tests.support.pictures import encoded, picture


def webp(mode: str = "RGB", **options: object) -> bytes:
    return encoded(picture(40, 30, mode=mode), "WEBP", **options)


TWO_FRAMES = {"save_all": True, "append_images": [picture(40, 30, seed=1)]}
XMP = b'<x tiff:Orientation="8"/>'


@pytest.mark.parametrize(
    ("file", "is_lossy", "orientation", "frames", "why"),
    [
        (webp(), True, 1, 1, set()),
        (webp(lossless=True), False, 1, 1, set()),
        (webp("RGBA"), True, 1, 1, {Why.ALPHA}),
        (webp("RGBA", lossless=True), False, 1, 1, {Why.ALPHA}),
        (webp(orientation=6), True, 6, 1, set()),
        (webp(lossless=True, orientation=6), False, 6, 1, set()),
        (webp(xmp=XMP), True, 8, 1, set()),
        (webp(xmp=XMP, orientation=6), True, 6, 1, set()),
        (webp(icc_profile=b"profile"), True, 1, 1, set()),
        (webp(**TWO_FRAMES), True, 1, 2, {Why.FRAMES}),
        (webp(lossless=True, **TWO_FRAMES), False, 1, 2, {Why.FRAMES}),
    ],
)
def test_header(file, is_lossy, orientation, frames, why):
    header = read_webp(file, Steps())

    assert header.stored == Size(40, 30)
    assert (header.is_lossy, header.orientation, header.frames) == (is_lossy, orientation, frames)
    assert header.why == why


def test_metadata_whose_flag_is_not_set_does_not_count():
    file = bytearray(webp(orientation=6, xmp=XMP))
    file[20] &= ~0x08

    assert read_webp(bytes(file), Steps()).orientation == 8


def test_metadata_behind_the_pixels_asks_for_the_whole_container():
    file = encoded(picture(400, 300), "WEBP", orientation=6)
    with pytest.raises(ShortHeaderError) as caught:
        read_webp(file[:1024], Steps())
    assert 1024 < caught.value.needed_bytes <= len(file)


def test_pixels_need_not_be_at_hand_without_metadata():
    assert read_webp(encoded(picture(400, 300, mode="RGBA"), "WEBP", lossless=True)[:1024], Steps()).stored == Size(
        400, 300
    )


def test_the_container_ends_where_its_header_says():
    file = webp()

    assert end_of_picture(file) == len(file)
    assert end_of_picture(file[:4] + struct.pack("<I", 21) + file[8:]) == 30


@pytest.mark.parametrize(
    ("file", "says"),
    [
        (webp()[:23] + b"\x00" + webp()[24:], "start code"),
        (webp(lossless=True)[:20] + b"\x00" + webp(lossless=True)[21:], "signature"),
        (webp()[:12] + b"JUNK" + webp()[16:], "unknown"),
        (b"RIFF" + struct.pack("<I", 22) + b"WEBPVP8X" + struct.pack("<I", 10) + bytes(10), "no picture"),
    ],
)
def test_a_broken_header_says_what_is_wrong(file, says):
    with pytest.raises(BrokenHeaderError, match=says):
        read_webp(file, Steps())
