import struct

import pytest
from PIL import Image

from gateway.domain.geometry import Size
from gateway.domain.image import ImageFormat, Why
from gateway.imaging.header.base import BrokenHeaderError
from gateway.imaging.header.opened import read_opened
from tests.support.pictures import encoded, picture


@pytest.mark.parametrize(
    ("image_format", "mode", "why"),
    [
        (ImageFormat.BMP, "RGB", set()),
        (ImageFormat.BMP, "1", {Why.MODE}),
        (ImageFormat.BMP, "P", {Why.MODE}),
        (ImageFormat.TIFF, "RGB", set()),
        (ImageFormat.TIFF, "L", set()),
        (ImageFormat.TIFF, "RGBA", {Why.ALPHA}),
        (ImageFormat.TIFF, "CMYK", {Why.MODE}),
        (ImageFormat.TIFF, "I;16", {Why.MODE}),
        (ImageFormat.AVIF, "RGB", set()),
        (ImageFormat.AVIF, "RGBA", {Why.ALPHA}),
    ],
)
def test_reasons(image_format, mode, why):
    header = read_opened(encoded(picture(40, 30, mode=mode), image_format.upper()), image_format)

    assert header.stored == Size(40, 30)
    assert header.why == why
    assert header.is_lossy == (image_format is ImageFormat.AVIF)


@pytest.mark.parametrize("image_format", [ImageFormat.TIFF, ImageFormat.AVIF])
def test_stored_size_is_the_one_before_orientation(image_format):
    header = read_opened(encoded(picture(40, 30), image_format.upper(), orientation=6), image_format)

    assert (header.stored, header.orientation) == (Size(40, 30), 6)


@pytest.mark.parametrize("image_format", [ImageFormat.TIFF, ImageFormat.AVIF])
def test_more_pages_are_frames(image_format):
    pages = encoded(picture(40, 30), image_format.upper(), save_all=True, append_images=[picture(40, 30, seed=1)] * 2)
    header = read_opened(pages, image_format)

    assert header.frames == (3 if image_format is ImageFormat.AVIF else 2)
    assert header.why == {Why.FRAMES}


def test_the_biggest_icon_counts():
    icon = encoded(picture(64, 64), "ICO", sizes=[(16, 16), (64, 64), (32, 32)])

    assert read_opened(icon, ImageFormat.ICO).stored == Size(64, 64)


@pytest.mark.parametrize("bitmap_format", ["png", "bmp"])
def test_an_icon_that_hides_a_large_picture_is_not_opened(bitmap_format):
    icon = bytearray(encoded(picture(32, 32), "ICO", sizes=[(32, 32)], bitmap_format=bitmap_format))
    start = struct.unpack_from("<I", icon, 18)[0]
    if bitmap_format == "png":
        struct.pack_into(">II", icon, start + 16, 30_000, 30_000)
    else:
        struct.pack_into("<II", icon, start + 4, 30_000, 60_000)

    with pytest.raises(BrokenHeaderError, match="icon 0 is 30000x"):
        read_opened(bytes(icon), ImageFormat.ICO)


@pytest.mark.parametrize("file", [b"BM" + bytes(30), b"II*\x00", b"\x00\x00\x00\x20ftypavif" + bytes(40)])
def test_what_pillow_refuses_is_broken(file):
    image_format = {b"B": ImageFormat.BMP, b"I": ImageFormat.TIFF}.get(file[:1], ImageFormat.AVIF)

    with pytest.raises(BrokenHeaderError):
        read_opened(file, image_format)


def test_no_pixel_of_a_large_bitmap_is_touched():
    header = bytearray(encoded(Image.new("RGB", (4, 4)), "BMP")[:54])
    struct.pack_into("<ii", header, 18, 60_000, 60_000)

    assert read_opened(bytes(header), ImageFormat.BMP).stored == Size(60_000, 60_000)


def run_length_coded(width: int, height: int, data: bytes) -> bytes:
    header = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 8, 1, len(data), 0, 0, 0, 0)
    return b"BM" + struct.pack("<IHHI", 1078 + len(data), 0, 0, 1078) + header + bytes(1024) + data


def test_run_lengths_of_a_small_bitmap_are_read():
    assert read_opened(run_length_coded(1448, 1448, bytes(100)), ImageFormat.BMP).stored == Size(1448, 1448)


@pytest.mark.parametrize(("width", "height", "data"), [(1449, 1448, b""), (100, 100, bytes(2 << 20))])
def test_run_lengths_that_would_keep_the_interpreter_busy_are_refused(width, height, data):
    """A pixel in each row, the rest filled up one by one: seconds for 30 KB."""
    with pytest.raises(BrokenHeaderError, match=f"run-length coded and {width}x{height} in .* 2097152 pixels"):
        read_opened(run_length_coded(width, height, data), ImageFormat.BMP)


def test_a_frame_that_overhangs_is_extra():
    plain = encoded(picture(320, 240), "AVIF", speed=10)
    file = bytearray(plain)
    struct.pack_into(">II", file, file.index(b"ispe") + 8, 300, 240)

    assert read_opened(plain, ImageFormat.AVIF).extra_bytes == 0
    assert read_opened(bytes(file), ImageFormat.AVIF).extra_bytes == 11 * 20 * 240


def test_a_large_frame_in_a_small_container_is_refused():
    file = bytearray(encoded(picture(320, 240), "AVIF", speed=10))
    struct.pack_into(">II", file, file.index(b"ispe") + 8, 64, 48)

    with pytest.raises(BrokenHeaderError, match="it says 64x48 and holds a frame of 320x240"):
        read_opened(bytes(file), ImageFormat.AVIF)
