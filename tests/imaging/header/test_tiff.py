"""What a TIFF's directory shows of the memory that opening and decoding take."""

import struct

import pytest

from gateway.domain.geometry import Size
from gateway.domain.image import ImageFormat
from gateway.imaging.header.base import BrokenHeaderError
from gateway.imaging.header.opened import read_opened
from gateway.imaging.header.tiff import MAX_VALUES, check_directory, check_jpeg_pieces, piece_bytes
from tests.support.pictures import encoded, picture
from tests.support.tiff_files import in_one_strip, tiff, tiled

SMALL = in_one_strip(64, 48)
RGB = {256: 640, 257: 480, 258: (8, 8, 8), 259: 8, 262: 2, 277: 3}


def read(file: bytes):
    return read_opened(file, ImageFormat.TIFF)


def with_entries(file: bytes, entries: bytes) -> bytes:
    """More entries behind those that the directory, at the end of the file, has."""
    (start,) = struct.unpack_from("<I", file, 4)
    count = struct.unpack_from("<H", file, start)[0] + len(entries) // 12
    return file[:start] + struct.pack("<H", count) + file[start + 2 : -4] + entries + bytes(4)


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ({}, 640 * 480 * 3),
        ({278: 16}, 640 * 16 * 3),
        ({278: 0xFFFFFFFF}, 640 * 480 * 3),
        ({322: 128, 323: 64}, 128 * 64 * 3),
        ({258: (16, 16, 16, 16), 277: 4, 278: 1}, 640 * 8),
        ({258: (1,), 277: 1, 278: 1}, 80),
        ({258: (16,), 277: 3, 278: 1}, 640 * 6),
        ({262: 6, 278: 8}, 640 * 8 * 8),
        ({259: 50001, 278: 8}, 640 * 8 * 8),
        ({259: 7, 278: 8}, 640 * 8 * 16),
    ],
)
def test_a_strip_or_tile_is_held_while_it_is_decoded(tags, expected):
    assert piece_bytes(RGB | tags) == expected


@pytest.mark.parametrize(
    ("tags", "says"),
    [
        ({322: 16_384, 323: 16_384}, "it is 640x480 and its tiles of 16384x16384 have 268435456 pixels"),
        ({322: 16_384, 323: 300}, "have 9830400 pixels"),
        ({322: 128}, "its tag 323 is 0"),
        ({323: 0}, "its tag 322 is 0"),
        ({278: 0}, "its tag 278 is 0"),
        ({278: (8, 8)}, r"its tag 278 is \(8, 8\)"),
    ],
)
def test_tiles_far_larger_than_the_picture_and_odd_sizes_are_refused(tags, says):
    with pytest.raises(BrokenHeaderError, match=says):
        piece_bytes(RGB | tags)


def test_tiles_may_reach_over_a_small_picture():
    assert piece_bytes(RGB | {322: 2048, 323: 2048}) == 2048 * 2048 * 3


def test_pieces_and_numbers_are_told_with_the_header():
    assert read(tiled(64, 48, 128, 128)).extra_bytes == 128 * 128 * 3 + 400 * 12 + (256 << 10)


def test_a_bomb_of_one_tile_is_refused():
    with pytest.raises(BrokenHeaderError, match="tiles of 4096x4096"):
        read(tiled(64, 64, 4096, 4096))


def test_values_that_share_bytes_are_refused():
    """Libtiff keeps a copy for each of them: gigabytes from a file of five megabytes."""
    entries = b"".join(struct.pack("<HHII", 40_000 + number, 1, 200, 8) for number in range(30))
    with pytest.raises(BrokenHeaderError, match=r"claims 60\d\d bytes of values, the file has"):
        read(with_entries(SMALL, entries))


@pytest.mark.parametrize("tag", [273, 282, 40_000])
def test_more_numbers_than_pieces_of_any_picture_are_refused(tag):
    file = tiff(64, 48, bytes(10), **{f"t{tag}": [1] * (MAX_VALUES - 7)})
    with pytest.raises(BrokenHeaderError, match=f"holds {MAX_VALUES + 1} numbers, at most {MAX_VALUES} are read"):
        read(file)


@pytest.mark.parametrize("tags", [{279: (400, 600)}, {325: (1000,)}, {259: 8, 279: (9000,)}])
def test_pieces_with_bytes_of_their_own_pass(tags):
    check_jpeg_pieces(RGB | {259: 7} | tags, 1000)


@pytest.mark.parametrize("tags", [{279: (400, 601)}, {325: (1,), 279: (1000,)}, {}])
def test_one_jpeg_for_many_pieces_is_refused(tags):
    """A hundred scans of a strip of one row, decoded for each row: ten seconds for 500 KB."""
    with pytest.raises(BrokenHeaderError, match=r"its strips or tiles have \d+ bytes, the file has 1000"):
        check_jpeg_pieces(RGB | {259: 7} | tags, 1000)


def test_jpeg_in_tiff_is_read():
    assert read(encoded(picture(40, 30), "TIFF", compression="jpeg")).stored == Size(40, 30)


def test_text_and_unknown_kinds_are_no_numbers():
    unknown = struct.pack("<HHII", 40_000, 99, 1_000_000, 8)

    assert check_directory(tiff(64, 48, bytes(10))) == 8
    assert check_directory(with_entries(SMALL, unknown + struct.pack("<HHI4s", 305, 2, 4, b"abc"))) == 11


@pytest.mark.parametrize("big", [False, True])
def test_a_directory_without_end_is_not_read(big):
    file = (
        b"II+\x00\x08\x00\x00\x00" + struct.pack("<QQ", 16, 10**6)
        if big
        else b"MM\x00*" + struct.pack(">IH", 8, 60_000)
    )

    with pytest.raises(BrokenHeaderError, match="at most 1024 are read"):
        read(file)


def test_both_kinds_of_tiff_are_read():
    assert read(encoded(picture(40, 30), "TIFF", big_tiff=True)).stored == Size(40, 30)


def test_a_kind_that_two_libraries_read_differently_is_refused():
    with pytest.raises(BrokenHeaderError, match="BigTIFF with the high byte first"):
        read(b"MM\x00+" + bytes(40))
