"""Orientation as `ImageOps.exif_transpose` would act on it, in blocks that are plain, odd or broken."""

import struct

import pytest
from PIL import Image, ImageOps

from gateway.imaging.header.base import Steps
from gateway.imaging.header.exif import directory_value, orientation

SHORT, LONG, FLOAT, ASCII = 3, 4, 11, 2


def block(*entries: tuple[int, int, int, bytes], order: str = "<", start: int = 8) -> bytes:
    """A TIFF block whose first directory holds `entries` (tag, type, count, four bytes of value)."""
    head = (b"II*\x00" if order == "<" else b"MM\x00*") + struct.pack(order + "I", start)
    body = b"".join(struct.pack(order + "HHI", *entry[:3]) + entry[3] for entry in entries)
    return head + struct.pack(order + "H", len(entries)) + body + bytes(4)


def pillow_says(exif: bytes, xmp: bytes) -> int:
    picture = Image.new("RGB", (2, 1))
    picture.info.update(exif=exif, xmp=xmp)
    try:
        turned = ImageOps.exif_transpose(picture)
    except Exception:  # noqa: BLE001 - vLLM suppresses all of them
        return 1
    return picture.getexif().get(0x0112, 1) if turned.size != picture.size else 1


TURNED = (0x0112, SHORT, 1, b"\x06\x00\x00\x00")
MAKE = (0x010F, ASCII, 4, b"abc\x00")
XMP = b'<rdf:Description tiff:Orientation="8"/>'
CASES = {
    "plain": (block(TURNED), b"", 6),
    "marked": (b"Exif\x00\x00" + block(TURNED), b"", 6),
    "marked twice": (b"Exif\x00\x00Exif\x00\x00" + block(TURNED), b"", 6),
    "big-endian": (block((0x0112, SHORT, 1, b"\x00\x06\x00\x00"), order=">"), b"", 6),
    "behind another tag": (block(MAKE, TURNED), b"", 6),
    "first of two": (block(TURNED, (0x0112, SHORT, 1, b"\x01\x00\x00\x00")), b"", 6),
    "long": (block((0x0112, LONG, 1, b"\x06\x00\x00\x00")), b"", 6),
    "float": (block((0x0112, FLOAT, 1, struct.pack("<f", 6.0))), b"", 6),
    "two values": (block((0x0112, SHORT, 2, b"\x06\x00\x01\x00")), b"", 6),
    "text": (block((0x0112, ASCII, 2, b"6\x00\x00\x00")), b"", 1),
    "out of range": (block((0x0112, SHORT, 1, b"\x09\x00\x00\x00")), b"", 1),
    "zero keeps xmp out": (block((0x0112, SHORT, 1, b"\x00\x00\x00\x00")), XMP, 1),
    "one keeps xmp out": (block((0x0112, SHORT, 1, b"\x01\x00\x00\x00")), XMP, 1),
    "xmp attribute": (b"", XMP, 8),
    "xmp element": (b"", b"<tiff:Orientation>5</tiff:Orientation>", 5),
    "xmp where exif has none": (block(MAKE), XMP, 8),
    "xmp out of range": (b"", b'tiff:Orientation="9"', 1),
    "directory outside the block": (block(TURNED, start=9000), b"", 1),
    "directory outside the block, xmp": (block(TURNED, start=9000), XMP, 8),
    "no directory": (b"II*\x00", b"", 1),
    "no TIFF block keeps xmp out": (b"garbage, more garbage", XMP, 1),
    "nothing": (b"", b"", 1),
    "only the mark": (b"Exif\x00\x00", XMP, 8),
    "cut inside an entry": (block(MAKE, TURNED)[:-8], b"", 1),
}


@pytest.mark.parametrize("name", CASES)
def test_orientation(name):
    exif, xmp, expected = CASES[name]

    assert orientation(exif, xmp, Steps()) == expected
    assert pillow_says(exif, xmp) == expected


def test_a_directory_value_may_be_absent_or_odd():
    assert directory_value(block(MAKE), 0xB001, LONG) == 0
    assert directory_value(block((0xB001, LONG, 1, b"\x02\x00\x00\x00")), 0xB001, LONG) == 2
    assert directory_value(block((0xB001, LONG, 2, b"\x02\x00\x00\x00")), 0xB001, LONG) is None
