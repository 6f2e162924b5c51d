import struct

import pytest

from gateway.domain.geometry import Size
from gateway.domain.image import Why
from gateway.imaging.header.base import BrokenHeaderError, ShortHeaderError, Steps
from gateway.imaging.header.gif import read_gif
from tests.support.pictures import encoded, picture

PLAIN = encoded(picture(40, 30).quantize(16), "GIF")


def screen(*blocks: bytes, width: int = 10, height: int = 10) -> bytes:
    return b"GIF89a" + struct.pack("<HHBBB", width, height, 0, 0, 0) + b"".join(blocks)


def frame(left: int, top: int, width: int, height: int) -> bytes:
    return b"," + struct.pack("<HHHHB", left, top, width, height, 0)


@pytest.mark.parametrize(
    ("file", "frames", "why"),
    [
        (PLAIN, 1, {Why.MODE}),
        (encoded(picture(40, 30).quantize(16), "GIF", transparency=1), 1, {Why.MODE, Why.ALPHA}),
        (
            encoded(picture(40, 30), "GIF", save_all=True, append_images=[picture(40, 30, seed=1)], loop=0),
            2,
            {Why.MODE, Why.FRAMES},
        ),
        (encoded(picture(40, 30).quantize(16), "GIF", comment=b"c" * 600), 1, {Why.MODE}),
    ],
)
def test_header(file, frames, why):
    header = read_gif(file, Steps())

    assert header.stored == Size(40, 30)
    assert header.frames == frames
    assert header.why == why
    assert not header.is_lossy


def test_a_frame_that_reaches_over_the_screen_enlarges_it():
    assert read_gif(screen(frame(5, 0, 10, 4)), Steps()).stored == Size(15, 10)


def test_bytes_between_blocks_are_skipped():
    assert read_gif(screen(b"\x00\x07", frame(0, 0, 4, 4)), Steps()).stored == Size(10, 10)


@pytest.mark.parametrize("length", [10, 14, 60, len(PLAIN[: PLAIN.index(b",")]) + 4])
def test_a_header_that_goes_on_asks_for_more(length):
    with pytest.raises(ShortHeaderError):
        read_gif(PLAIN[:length], Steps())


def test_an_extension_that_goes_on_asks_for_more():
    with pytest.raises(ShortHeaderError):
        read_gif(screen(b"!\xfe\xff" + bytes(10)), Steps())


def test_no_picture_is_broken():
    with pytest.raises(BrokenHeaderError, match="before any picture"):
        read_gif(screen(b";\x00"), Steps())
