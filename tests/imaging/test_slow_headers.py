"""Headers made to keep their reader busy: little work on the event loop, and work in proportion to the file elsewhere.

Time is the thread's own, without the tracer of coverage, and counted in turns of a loop beside it: neither a busy
machine nor a slow one changes anything.
"""

import struct
import sys
import time
import zlib
from typing import Self

import pybase64
import pytest

from gateway.domain.errors import Code, GatewayError
from gateway.domain.image import ImageInfo
from gateway.imaging.body import late_reasons
from gateway.imaging.limits import ImageLimits
from gateway.imaging.probe import glance, probe
from gateway.wire.encoded_file import EncodedFile
from tests.support.pictures import encoded, picture

SIZE = 2 << 20
MARK = b"Exif\x00\x00"
EXIF = MARK + b"II*\x00\x08\x00\x00\x00"
PARAM = "messages[0].content[0].image_url.url"
JPEG, GIF, PNG = (encoded(picture(40, 30), file_format) for file_format in ("JPEG", "GIF", "PNG"))
# The aims are 2 and 200 ms where a turn takes 30 ns; quadratic readers took 500 ms to 5 s for the same files.
MOST_INLINE_TURNS = 650_000
MOST_TURNS = 13_000_000


class Turns:
    """Of a sum, that take as long as the block does."""

    def __enter__(self) -> Self:
        self.tracer = sys.gettrace()
        sys.settrace(None)
        self.begun = time.thread_time()
        return self

    def __exit__(self, *_raised: object) -> None:
        ended = time.thread_time()
        sum(range(200_000))
        sys.settrace(self.tracer)
        self.count = (ended - self.begun) / (time.thread_time() - ended) * 200_000


def repeated(unit: bytes) -> bytes:
    return unit * (SIZE // len(unit))


def png_chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def riff(chunks: bytes) -> bytes:
    return b"RIFF" + struct.pack("<I", len(chunks) + 4) + b"WEBP" + chunks


def exif_of_many_entries() -> bytes:
    """An orientation of a type that only Pillow understands, behind five thousand other entries."""
    entries = b"".join(struct.pack("<HHII", 0x8000 + n, 4, 1, n) for n in range(5000))
    return b"II*\x00\x08\x00\x00\x00" + struct.pack("<H", 5001) + struct.pack("<HHII", 0x0112, 4, 1, 6) + entries


BUSY = {
    "jpeg of tiny exif segments": JPEG[:2] + repeated(b"\xff\xe1\x00\x08Exif\x00\x00") + JPEG[2:],
    "jpeg of markers without body": JPEG[:2] + repeated(b"\xff\xd0") + JPEG[2:],
    "jpeg of junk": JPEG[:2] + repeated(b"\xff\x00") + JPEG[2:],
    "gif of tiny sub-blocks": GIF[:781] + b"!\xfe" + repeated(b"\x01a") + b"\x00" + GIF[781:],
    "gif of empty extensions": GIF[:781] + repeated(b"!\xfe\x00") + GIF[781:],
    "png of empty chunks": PNG[:33] + repeated(png_chunk(b"prVt", b"")) + PNG[33:],
    "webp of empty chunks": riff(b"VP8X" + struct.pack("<I", 10) + b"\x08" + bytes(9) + repeated(b"junk" + bytes(4))),
}
LONG = {
    "jpeg of padding": JPEG[:2] + repeated(b"\xff") + JPEG[2:],
    "jpeg of large exif": JPEG[:2]
    + b"\xff\xe1\x00\x10"
    + EXIF
    + repeated(b"\xff\xe1\xff\xff" + MARK + bytes(65527))
    + JPEG[2:],
    "gif of zeros before its picture": GIF[:781] + bytes(SIZE) + GIF[781:],
    "png of text that inflates": PNG[:33]
    + png_chunk(b"zTXt", b"Raw profile type exif\x00\x00" + zlib.compress(bytes(1 << 20))) * 7
    + PNG[33:],
    "png of many exif entries": PNG[:33] + png_chunk(b"eXIf", exif_of_many_entries()) + PNG[33:],
}


def as_file(data: bytes) -> EncodedFile:
    return EncodedFile(pybase64.b64encode(data))


def glanced(data: bytes) -> ImageInfo | None:
    return glance(as_file(data), ImageLimits(), PARAM)


def probed(data: bytes) -> ImageInfo:
    return probe(as_file(data), ImageLimits(), PARAM)


@pytest.mark.parametrize("name", [*BUSY, *LONG])
def test_the_event_loop_gives_up_soon(name):
    file = as_file((BUSY | LONG)[name])
    with Turns() as turns:
        assert glance(file, ImageLimits(), PARAM) is None
    assert turns.count < MOST_INLINE_TURNS


@pytest.mark.parametrize("name", BUSY)
def test_too_many_parts_are_refused_with_their_number(name):
    with Turns() as turns, pytest.raises(GatewayError, match="more than 16384 parts") as caught:
        probed(BUSY[name])
    assert turns.count < MOST_TURNS
    assert (caught.value.code, caught.value.param) == (Code.IMAGE_PARSE_ERROR, PARAM)


@pytest.mark.parametrize("name", LONG)
def test_a_long_header_of_few_parts_is_read(name):
    with Turns() as turns:
        assert probed(LONG[name]).stored.width == 40
    assert turns.count < MOST_TURNS


def test_more_texts_than_any_file_has_are_not_handed_to_pillow():
    text = png_chunk(b"zTXt", b"Raw profile type exif\x00\x00" + zlib.compress(bytes(1 << 20)))
    with pytest.raises(GatewayError, match="65 of its chunks may turn it, at most 64 are read"):
        probed(PNG[:33] + text * 65 + PNG[33:])


def test_metadata_larger_than_any_true_one_is_not_handed_to_pillow():
    entries = exif_of_many_entries() + bytes(1 << 20)
    with pytest.raises(GatewayError, match=r"its EXIF has .* at most 1048576 are read"):
        probed(PNG[:33] + png_chunk(b"eXIf", entries) + PNG[33:])


@pytest.mark.parametrize("file_format", ["BMP", "TIFF", "AVIF"])
def test_what_pillow_reads_is_never_read_at_a_glance(file_format):
    assert glanced(encoded(picture(40, 30), file_format)) is None


@pytest.mark.parametrize("file_format", ["JPEG", "PNG", "WEBP", "GIF"])
@pytest.mark.parametrize("orientation", [1, 6])
def test_common_headers_are_read_at_a_glance(file_format, orientation):
    options = {} if file_format == "GIF" else {"orientation": orientation}
    file = encoded(picture(400, 300), file_format, **options)
    assert glanced(file) == probed(file)


def test_a_glance_refuses_what_it_can():
    with pytest.raises(GatewayError) as caught:
        glanced(PNG[:19] + b"\x01" + PNG[20:])
    assert (caught.value.code, caught.value.param) == (Code.IMAGE_PARSE_ERROR, PARAM)


@pytest.mark.parametrize(
    "late",
    [
        png_chunk(b"prVt", b"eXIf" * (SIZE // 4)),
        png_chunk(b"prVt", b"\x00\x10\x00\x00eXIf" * (SIZE // 8)),
        png_chunk(b"prVt", b"") * 60_000,
    ],
)
def test_what_stands_behind_the_pixels_is_walked_by_its_lengths(late):
    file = PNG[:-12] + late + PNG[-12:]
    info = probed(file)
    with Turns() as turns:
        assert late_reasons(file, info) == set()
    assert turns.count < MOST_TURNS


def test_a_png_of_endless_chunks_is_refused():
    file = PNG[:-12] + png_chunk(b"prVt", b"") * 70_000 + PNG[-12:]
    with pytest.raises(GatewayError, match="more than 65536 chunks"):
        late_reasons(file, probed(file))
