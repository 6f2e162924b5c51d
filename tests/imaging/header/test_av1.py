"""The frame inside a container is found wherever libavif would find it."""

import struct

import pytest

from gateway.domain.geometry import Size
from gateway.imaging.header.av1 import _frame_sizes, check_frames
from gateway.imaging.header.base import BrokenHeaderError
from tests.support.pictures import encoded, picture

STILL = encoded(picture(320, 240), "AVIF", speed=10)
WITH_ALPHA = encoded(picture(320, 240, mode="RGBA"), "AVIF", speed=10, orientation=6)
MOVING = encoded(picture(320, 240), "AVIF", speed=10, save_all=True, append_images=[picture(320, 240, seed=1)])


def box(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body) + 8) + name + body


def unit(kind: int, body: bytes) -> bytes:
    return bytes([kind << 3 | 2, len(body)]) + body


def sequence(*fields: tuple[int, int]) -> bytes:
    """A sequence header unit of (value, bits) pairs."""
    bits = "".join(format(value, f"0{count}b") for value, count in fields)
    bits += "0" * (-len(bits) % 8)
    return unit(1, int(bits, 2).to_bytes(len(bits) // 8, "big"))


SIZE = ((9, 4), (8, 4), (639, 10), (479, 9))
REDUCED = sequence((0, 3), (1, 1), (1, 1), (8, 5), *SIZE)


@pytest.mark.parametrize("file", [STILL, WITH_ALPHA, MOVING])
def test_a_true_container_passes_and_a_small_one_does_not(file):
    check_frames(file, Size(320, 240))
    check_frames(file, Size(160, 120))
    with pytest.raises(BrokenHeaderError, match="it says 64x48 and holds a frame of 320x240"):
        check_frames(file, Size(64, 48))


@pytest.mark.parametrize(
    "units",
    [
        REDUCED,
        unit(2, b"") + REDUCED,
        b"\x0e\x00" + REDUCED[1:],
        b"\x08" + REDUCED[2:],
        sequence((0, 3), (0, 1), (0, 1), (0, 1), (0, 1), (0, 5), (0, 12), (5, 5), *SIZE),
        sequence((0, 3), (0, 1), (0, 1), (0, 1), (1, 1), (0, 5), (0, 12), (9, 5), (0, 1), (1, 1), (3, 4), *SIZE),
        sequence((0, 3), (0, 1), (0, 1), (0, 1), (1, 1), (0, 5), (0, 12), (5, 5), (0, 1), *SIZE),
    ],
    ids=[
        "reduced",
        "behind a delimiter",
        "with an extension",
        "to the end",
        "full",
        "full, high level",
        "full, no delay",
    ],
)
def test_every_form_of_sequence_header_is_read(units):
    assert list(_frame_sizes(units)) == [Size(640, 480)]


def test_the_chain_of_units_is_followed_to_its_end():
    assert list(_frame_sizes(unit(15, bytes(90)) + REDUCED + REDUCED)) == [Size(640, 480)] * 2
    assert list(_frame_sizes(unit(2, b"") * 64 + REDUCED)) == []
    assert list(_frame_sizes(b"Exif\x00\x00")) == []


def test_lengths_may_take_several_bytes():
    assert list(_frame_sizes(b"\x7a\x80\x01" + bytes(128) + REDUCED)) == [Size(640, 480)]


def test_timing_is_not_supported():
    with pytest.raises(BrokenHeaderError, match="timing"):
        list(_frame_sizes(sequence((0, 3), (0, 1), (0, 1), (1, 1), *SIZE)))


@pytest.mark.parametrize("units", [sequence((0, 3), (1, 1), (1, 1), (8, 5)), b"\x0a"])
def test_a_unit_that_ends_early(units):
    with pytest.raises(IndexError):
        list(_frame_sizes(units))


def item_location(version: int, *, method: int = 0, length: int = len(REDUCED)) -> bytes:
    """An `iloc` box body for one item at offset 8 in one piece."""
    wide = ">I" if version == 2 else ">H"
    head = bytes([version, 0, 0, 0, 0x44, 0x00]) + struct.pack(wide, 1) + struct.pack(wide, 1)
    method_field = struct.pack(">H", method) if version else b""
    return head + method_field + bytes(2) + struct.pack(">HII", 1, 0 if method else 8, length)


@pytest.mark.parametrize(
    "file",
    [
        box(b"mdat", REDUCED) + box(b"meta", bytes(4) + box(b"iloc", item_location(0))),
        box(b"mdat", REDUCED) + box(b"meta", bytes(4) + box(b"iloc", item_location(2))),
        box(b"mdat", REDUCED) + box(b"meta", bytes(4) + box(b"iloc", item_location(0, length=0))),
        box(b"meta", bytes(4) + box(b"iloc", item_location(1, method=1)) + box(b"idat", REDUCED)),
        box(b"mdat", REDUCED) + box(b"moov", box(b"trak", box(b"stco", bytes(4) + struct.pack(">II", 1, 8)))),
        box(b"mdat", REDUCED) + box(b"moov", box(b"co64", bytes(4) + struct.pack(">IQ", 1, 8))),
        b"\x00\x00\x00\x01free"
        + struct.pack(">Q", 16)
        + b"\x00\x00\x00\x00meta"
        + bytes(4)
        + box(b"iloc", item_location(1, method=1))
        + box(b"idat", REDUCED),
    ],
)
def test_every_way_to_place_an_item_is_followed(file):
    with pytest.raises(BrokenHeaderError, match="a frame of 640x480"):
        check_frames(file, Size(64, 48))
    check_frames(file, Size(640, 480))


def test_a_meta_box_without_locations_holds_no_item():
    check_frames(box(b"meta", bytes(4)), Size(1, 1))


def test_boxes_must_fit():
    with pytest.raises(BrokenHeaderError, match="box at byte 0 does not fit"):
        check_frames(b"\x00\x00\xff\xffmeta", Size(1, 1))
    with pytest.raises(IndexError, match="ends early"):
        check_frames(box(b"meta", bytes(4) + box(b"iloc", b"\x00\x00")), Size(1, 1))


def test_a_length_has_eight_bytes_at_most():
    where = box(b"meta", bytes(4) + box(b"iloc", item_location(0, length=40)))
    check_frames(box(b"mdat", b"\x12" + b"\x80" * 7 + b"\x00" + bytes(40)) + where, Size(1, 1))
    with pytest.raises(BrokenHeaderError, match="more than 8 bytes"):
        check_frames(box(b"mdat", b"\x12" + b"\x80" * 60) + where, Size(1, 1))


def test_items_and_pieces_of_no_bytes_are_counted():
    items = bytes(6) + b"\xff\xff"
    with pytest.raises(BrokenHeaderError, match="more than 2048"):
        check_frames(box(b"meta", bytes(4) + box(b"iloc", items + bytes(6 * 0xFFFF))), Size(1, 1))
    pieces = bytes(6) + struct.pack(">HHHH", 1, 0, 0, 0xFFFF)
    with pytest.raises(BrokenHeaderError, match="more than 2048"):
        check_frames(box(b"meta", bytes(4) + box(b"iloc", pieces)), Size(1, 1))


def test_what_would_take_long_to_look_through_is_refused():
    pieces = bytes([0, 0, 0, 0, 0x44, 0, 0, 1, 0, 1, 0, 0, 0, 2]) + struct.pack(">IIII", 8, 60, 8, 60)
    with pytest.raises(BrokenHeaderError, match="larger than the file"):
        check_frames(box(b"meta", bytes(4) + box(b"iloc", pieces)), Size(1, 1))
    with pytest.raises(BrokenHeaderError, match="overlap"):
        check_frames(box(b"moov", box(b"stco", bytes(12)) * 9), Size(1, 1))
    with pytest.raises(BrokenHeaderError, match="too many"):
        check_frames(box(b"free", b"") * 3000, Size(1, 1))
