import io
import struct
import zlib

import pytest
from PIL import Image, PngImagePlugin

from gateway.domain.geometry import Size
from gateway.domain.image import Why
from gateway.imaging.header.base import BrokenHeaderError, ShortHeaderError, Steps
from gateway.imaging.header.png import metadata_chunks, read_png
from tests.support.pictures import encoded, picture

PLAIN = encoded(picture(40, 30))
AFTER_IHDR = 33
TURNED = encoded(picture(40, 30), orientation=6)


def chunk(name: bytes, body: bytes = b"") -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


EXIF = chunk(b"eXIf", TURNED[TURNED.index(b"eXIf") + 4 :][:26])


def with_chunk(name: bytes, body: bytes) -> bytes:
    return PLAIN[:AFTER_IHDR] + chunk(name, body) + PLAIN[AFTER_IHDR:]


def as_text(key: str, value: str, **options: bool) -> bytes:
    """A PNG with the text before its pixels, as Pillow writes it."""
    info = PngImagePlugin.PngInfo()
    (info.add_itxt if key.startswith("XML") else info.add_text)(key, value, **options)
    return encoded(picture(40, 30), pnginfo=info)


RAW_EXIF = "\nexif\n      38\n" + (b"Exif\x00\x00" + EXIF[8:-4]).hex()
XMP = '<x tiff:Orientation="8"/>'


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        (TURNED, 6),
        (as_text("Raw profile type exif", RAW_EXIF), 6),
        (as_text("Raw profile type exif", RAW_EXIF, zip=True), 6),
        (as_text("XML:com.adobe.xmp", XMP), 8),
        (as_text("XML:com.adobe.xmp", XMP, zip=True), 8),
        (as_text("Comment", XMP), 1),
        (as_text("Raw profile type exif", "\nexif\n 4\nnot hexadecimal"), 1),
    ],
)
def test_orientation_wherever_pillow_finds_it(file, expected):
    assert read_png(file, Steps()).orientation == expected
    try:
        assert Image.open(io.BytesIO(file)).getexif().get(0x0112, 1) == expected
    except ValueError:  # vLLM suppresses it
        assert expected == 1


@pytest.mark.parametrize("cut", [0, 3])
def test_orientation_behind_the_pixels_counts(cut):
    tail = PLAIN[-200:-12] + EXIF + PLAIN[-12:]

    assert read_png(PLAIN[:-12] + EXIF + PLAIN[-12:], Steps(), tail[cut:]).orientation == 6


@pytest.mark.parametrize(
    "tail", [b"IDAT eXIf IEND", b"eXIf", EXIF[:-1] + b"?", b"\x00\x00\x00\x00tEXt", chunk(b"tEXt", b"a\x00b")]
)
def test_what_only_looks_like_metadata_is_none(tail):
    assert metadata_chunks(tail) == []


@pytest.mark.parametrize(
    ("file", "why"),
    [
        (PLAIN, set()),
        (encoded(picture(40, 30, mode="L")), set()),
        (encoded(picture(40, 30, mode="1")), {Why.MODE}),
        (encoded(picture(40, 30, mode="I;16")), {Why.MODE}),
        (encoded(picture(40, 30, mode="RGBA")), {Why.ALPHA}),
        (encoded(picture(40, 30, mode="LA")), {Why.ALPHA}),
        (encoded(picture(40, 30).quantize(8)), {Why.MODE}),
        (encoded(picture(40, 30).quantize(8), transparency=2), {Why.MODE, Why.ALPHA}),
        (with_chunk(b"tRNS", bytes(6)), {Why.ALPHA}),
        (with_chunk(b"acTL", struct.pack(">II", 3, 0)), {Why.FRAMES}),
        (with_chunk(b"acTL", struct.pack(">II", 1, 0)), set()),
        (with_chunk(b"acTL", b"cut"), set()),
        (with_chunk(b"vpAg", b"anything"), set()),
    ],
)
def test_reasons(file, why):
    header = read_png(file, Steps())

    assert header.why == why
    assert header.stored == Size(40, 30)
    assert not header.is_lossy


def test_a_long_text_asks_for_its_length():
    file = with_chunk(b"tEXt", b"Comment\x00" + bytes(70_000))
    with pytest.raises(ShortHeaderError) as caught:
        read_png(file[:1024], Steps())
    assert caught.value.needed_bytes == AFTER_IHDR + 12 + 70_008


def test_text_that_inflates_without_bound_is_refused():
    bomb = b"Raw profile type exif\x00\x00" + zlib.compress(bytes(5_000_000))
    with pytest.raises(BrokenHeaderError, match="text chunks"):
        read_png(with_chunk(b"zTXt", bomb), Steps())


def ihdr(*, depth: int = 8, colour: int = 2, filtering: int = 0) -> bytes:
    return (
        PLAIN[:8] + chunk(b"IHDR", struct.pack(">IIBBBBB", 40, 30, depth, colour, 0, filtering, 0)) + PLAIN[AFTER_IHDR:]
    )


@pytest.mark.parametrize(
    ("file", "says"),
    [
        (PLAIN[:8] + chunk(b"CgBI", bytes(13)) + PLAIN[8:], "first chunk is not IHDR"),
        (PLAIN[:20] + b"\x77" + PLAIN[21:], "checksum of its IHDR"),
        (ihdr(depth=3), "3 bits"),
        (ihdr(colour=5), "colour type 5"),
        (ihdr(filtering=1), "filter 1"),
        (with_chunk(b"ab-d", b""), "chunk name"),
        (PLAIN[:AFTER_IHDR] + chunk(b"IEND"), "before any pixel"),
    ],
)
def test_a_broken_header_says_what_is_wrong(file, says):
    with pytest.raises(BrokenHeaderError, match=says):
        read_png(file, Steps())
