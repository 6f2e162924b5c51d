import io
import struct

import pytest
from PIL import Image

from gateway.domain.geometry import Size
from gateway.domain.image import Why
from gateway.imaging.header.base import BrokenHeaderError, ShortHeaderError, Steps
from gateway.imaging.header.jpeg import MAX_SCANS, end_of_only_scan, end_of_picture, read_jpeg
from tests.support.pictures import encoded, picture

PLAIN = encoded(picture(40, 30), "JPEG")
PROGRESSIVE = encoded(picture(40, 30), "JPEG", progressive=True)
EMPTY_SCAN = bytes.fromhex("ffda 0008 01 0100 013f00")


def with_segment(file: bytes, marker: int, body: bytes) -> bytes:
    return file[:2] + struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body + file[2:]


def frame_at(file: bytes) -> int:
    return file.index(b"\xff\xc0")


@pytest.mark.parametrize(
    ("file", "why", "is_progressive"),
    [
        (PLAIN, set(), False),
        (encoded(picture(40, 30, mode="L"), "JPEG"), set(), False),
        (encoded(picture(40, 30).convert("CMYK"), "JPEG"), {Why.MODE}, False),
        (PROGRESSIVE, set(), True),
        (PLAIN.replace(bytes.fromhex("ffda 000c 03"), bytes.fromhex("ffda 0008 01")), set(), True),
    ],
)
def test_size_and_reasons(file, why, is_progressive):
    header = read_jpeg(file, Steps())

    assert header.stored == Size(40, 30)
    assert header.is_lossy
    assert header.why == why
    assert header.is_progressive == is_progressive


def test_a_multi_picture_file_has_frames():
    file = io.BytesIO()
    picture(40, 30).save(file, "MPO", save_all=True, append_images=[picture(20, 15)])
    header = read_jpeg(file.getvalue(), Steps())

    assert header.frames == 2
    assert header.why == {Why.FRAMES}
    assert header.stored == Size(40, 30)


def test_a_multi_picture_file_may_be_cmyk():
    index = b"MPF\x00II*\x00\x08\x00\x00\x00\x01\x00" + struct.pack("<HHII", 0xB001, 4, 1, 3)
    cmyk = encoded(picture(40, 30).convert("CMYK"), "JPEG")

    assert read_jpeg(with_segment(cmyk, 0xE2, index), Steps()).why == {Why.FRAMES, Why.MODE}


def test_only_coefficients_of_a_fourth_colour_are_extra():
    cmyk = picture(40, 30).convert("CMYK")

    assert read_jpeg(PROGRESSIVE, Steps()).extra_bytes == 0
    assert read_jpeg(encoded(cmyk, "JPEG"), Steps()).extra_bytes == 0
    assert read_jpeg(encoded(cmyk, "JPEG", progressive=True), Steps()).extra_bytes == 2 * 40 * 30


def test_exif_in_very_many_segments_is_refused():
    """Pillow copies all that came before with each of them."""
    file = PLAIN
    for _ in range(65):
        file = with_segment(file, 0xE1, b"Exif\x00\x00" + bytes(20))
    with pytest.raises(BrokenHeaderError, match="its EXIF is in 65 segments, at most 64 are read"):
        read_jpeg(file, Steps())


def test_a_damaged_picture_index_is_no_reason():
    assert read_jpeg(with_segment(PLAIN, 0xE2, b"MPF\x00garbage"), Steps()).frames == 1


def test_exif_in_two_segments_is_one_block():
    exif = encoded(picture(40, 30), "JPEG", orientation=6)
    start = exif.index(b"Exif\x00\x00")
    block = exif[start : start + 26 + 6]
    halves = with_segment(with_segment(PLAIN, 0xE1, b"Exif\x00\x00" + block[16:]), 0xE1, block[:16])

    assert read_jpeg(halves, Steps()).orientation == 6
    assert Image.open(io.BytesIO(halves)).getexif()[0x0112] == 6


def test_orientation_of_xmp_counts_where_exif_has_none():
    xmp = b'http://ns.adobe.com/xap/1.0/\x00<x tiff:Orientation="8"/>'

    assert read_jpeg(with_segment(PLAIN, 0xE1, xmp), Steps()).orientation == 8


@pytest.mark.parametrize("junk", [b"\xff\xff\xff", b"\x00\x01junk", b"\xff\x00\xff\x00", b"\xff\xd0"])
def test_junk_between_segments_is_skipped(junk):
    file = PLAIN[: frame_at(PLAIN)] + junk + PLAIN[frame_at(PLAIN) :]

    assert read_jpeg(file, Steps()).stored == Size(40, 30)
    assert Image.open(io.BytesIO(file)).size == (40, 30)


def test_more_bytes_are_asked_for_by_segment_length():
    long_segment = with_segment(PLAIN, 0xE2, bytes(60_000))
    with pytest.raises(ShortHeaderError) as caught:
        read_jpeg(long_segment[:1024], Steps())
    assert caught.value.needed_bytes == 60_006


def test_junk_to_the_end_asks_for_more():
    with pytest.raises(ShortHeaderError):
        read_jpeg(b"\xff\xd8" + b"junk" * 10, Steps())


@pytest.mark.parametrize(
    ("file", "says"),
    [
        (b"\xff\xd8\xff\x02\x00\x04ab", "marker 0x02"),
        (with_segment(PLAIN, 0xE0, b"").replace(b"\xff\xe0\x00\x02", b"\xff\xe0\x00\x01", 1), "length below 2"),
        (PLAIN.replace(b"\xff\xc0\x00\x11\x08", b"\xff\xc0\x00\x11\x0c", 1), "3 components of 12 bits"),
        (b"\xff\xd8\xff\xda\x00\x04ab", "no frame header"),
    ],
)
def test_a_broken_header_says_what_is_wrong(file, says):
    with pytest.raises(BrokenHeaderError, match=says):
        read_jpeg(file, Steps())


def test_the_end_is_the_first_end_marker_after_the_scan():
    in_metadata = with_segment(PLAIN, 0xFE, b"\xff\xd9" * 4)

    assert end_of_picture(in_metadata + b"tail") == len(in_metadata)
    assert end_of_picture(PLAIN[:-2]) == len(PLAIN) - 2


def test_the_end_of_a_scan_is_told_only_where_it_holds_the_whole_picture():
    start = PLAIN.index(b"\xff\xda")
    one_of_three = PLAIN[:start] + bytes.fromhex("ffda 0008 01 0100 003f00") + PLAIN[start + 14 :]

    assert end_of_only_scan(PLAIN + b"tail") == len(PLAIN) - 2
    assert end_of_only_scan(one_of_three) is None
    assert end_of_only_scan(PROGRESSIVE) is None
    assert end_of_only_scan(PLAIN[:-2]) is None
    assert end_of_only_scan(PLAIN[:start]) is None


def with_scans(scans: bytes) -> bytes:
    return PROGRESSIVE[:-2] + scans + PROGRESSIVE[-2:]


def test_more_scans_than_any_encoder_writes_are_refused():
    own = PROGRESSIVE.count(b"\xff\xda")
    assert end_of_only_scan(with_scans(EMPTY_SCAN * (MAX_SCANS - own))) is None
    with pytest.raises(BrokenHeaderError, match="it has more than 100 scans"):
        end_of_only_scan(with_scans(EMPTY_SCAN * (MAX_SCANS - own + 1)))


@pytest.mark.parametrize(
    "before",
    [
        bytes.fromhex("fffe 0004 ffd9"),  # an end marker in a comment ends nothing
        bytes.fromhex("ffd0 ff00 ffff"),
        bytes.fromhex("fffe 0000"),
    ],
)
def test_scans_are_counted_behind_whatever_stands_between_them(before):
    with pytest.raises(BrokenHeaderError, match="it has more than 100 scans"):
        end_of_only_scan(with_scans(before + EMPTY_SCAN * MAX_SCANS))


def test_scans_behind_the_end_do_not_count():
    assert end_of_only_scan(PROGRESSIVE + EMPTY_SCAN * MAX_SCANS) is None


def test_endless_segments_between_scans_are_refused():
    with pytest.raises(BrokenHeaderError, match="more than 16384 parts"):
        end_of_only_scan(with_scans(bytes.fromhex("fffe 0002") * 17_000))
