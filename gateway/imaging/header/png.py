"""PNG headers: chunks up to the first pixel data, and metadata that stands behind it (W3C PNG, third edition)."""

import re
import struct
import zlib
from dataclasses import dataclass, field

from gateway.domain.geometry import Size
from gateway.domain.image import ImageFormat, Why
from gateway.imaging.header.base import BrokenHeaderError, Header, Steps, need
from gateway.imaging.header.exif import orientation, orientation_in_pillow
from gateway.imaging.pillow import CLIENT_FAULTS, open_picture

SIGNATURE = b"\x89PNG\r\n\x1a\n"
_IHDR_END = 33
_CHUNK_NAME = re.compile(rb"\w{4}")
_GREY, _RGB, _PALETTE, _GREY_ALPHA, _RGBA = 0, 2, 3, 4, 6
_DEPTHS = {
    _GREY: (1, 2, 4, 8, 16),
    _RGB: (8, 16),
    _PALETTE: (1, 2, 4, 8),
    _GREY_ALPHA: (8, 16),
    _RGBA: (8, 16),
}
# Text keys under which Pillow finds an orientation.
_ORIENTED_TEXT = (b"Raw profile type exif\x00", b"XML:com.adobe.xmp\x00", b"exif\x00")
_TEXT_CHUNKS = frozenset({b"tEXt", b"zTXt", b"iTXt"})
INFLATED_CHUNKS = frozenset({b"iCCP", b"iTXt", b"zTXt"})
MAX_INFLATED_CHUNKS = 64
"""True files have a handful. Pillow inflates each, a kilobyte to a megabyte, which takes two milliseconds."""
_METADATA_NAME = tuple(_TEXT_CHUNKS | {b"eXIf"})
_EMPTY_IDAT = b"\x00\x00\x00\x00IDAT" + struct.pack(">I", zlib.crc32(b"IDAT"))


@dataclass(slots=True)
class _Chunks:
    """What the chunks before the pixels say."""

    frames: int = 1
    has_transparency: bool = False
    metadata: list[bytes] = field(default_factory=list)

    def take(self, name: bytes, chunk: bytes) -> None:
        if name == b"tRNS":
            self.has_transparency = True
        elif name == b"acTL" and len(chunk) >= 20:
            self.frames = max(1, int.from_bytes(chunk[8:12], "big"))
        elif may_orient(name, chunk):
            self.metadata.append(chunk)


def read_png(data: bytes, steps: Steps, tail: bytes = b"") -> Header:
    """`tail` is the end of the file, where some tools put EXIF.

    Raises ShortHeaderError, BrokenHeaderError, TooManyStepsError.
    """
    need(data, _IHDR_END)
    head = data[:_IHDR_END]
    width, height, depth, colour = _read_ihdr(head)
    chunks = _read_to_pixels(data, steps)
    metadata = chunks.metadata + [chunk for chunk in metadata_chunks(tail) if chunk not in chunks.metadata]
    why = set()
    if colour in {_GREY_ALPHA, _RGBA} or chunks.has_transparency:
        why.add(Why.ALPHA)
    if colour == _PALETTE or depth in {1, 16}:
        why.add(Why.MODE)
    if chunks.frames > 1:
        why.add(Why.FRAMES)
    return Header(
        ImageFormat.PNG,
        Size(width, height),
        is_lossy=False,
        orientation=_orientation(head, metadata, steps),
        frames=chunks.frames,
        why=frozenset(why),
    )


def metadata_chunks(tail: bytes) -> list[bytes]:
    """Whole chunks in `tail` that may carry an orientation; `tail` may start anywhere, so each must have a true CRC."""
    found: list[tuple[int, bytes]] = []
    for name in _METADATA_NAME:
        position = tail.find(name, 4)
        while position >= 0:
            end = position + 8 + int.from_bytes(tail[position - 4 : position], "big")
            # A slice for each find in a row of names would cost the square of its length.
            if end <= len(tail):
                chunk = tail[position - 4 : end]
                if may_orient(name, chunk) and _has_true_crc(chunk):
                    found.append((position, chunk))
            position = tail.find(name, position + 1)
    return [chunk for _, chunk in sorted(found)]


def may_orient(name: bytes, chunk: memoryview | bytes) -> bool:
    """Whether Pillow would look for an orientation in this chunk."""
    return name == b"eXIf" or (name in _TEXT_CHUNKS and bytes(chunk[8:40]).startswith(_ORIENTED_TEXT))


def _read_ihdr(head: bytes) -> tuple[int, int, int, int]:
    length, name = struct.unpack_from(">I4s", head, 8)
    if (length, name) != (13, b"IHDR"):
        raise BrokenHeaderError("its first chunk is not IHDR")
    if not _has_true_crc(head[8:]):
        raise BrokenHeaderError("the checksum of its IHDR chunk is wrong")
    width, height, depth, colour, _, filtering, _ = struct.unpack_from(">IIBBBBB", head, 16)
    if depth not in _DEPTHS.get(colour, ()) or filtering:
        raise BrokenHeaderError(f"colour type {colour} with {depth} bits, filter {filtering} does not exist")
    return width, height, depth, colour


def _read_to_pixels(data: bytes, steps: Steps) -> _Chunks:
    chunks = _Chunks()
    position = _IHDR_END
    while True:
        steps.take()
        need(data, position + 8)
        length, name = struct.unpack_from(">I4s", data, position)
        if not _CHUNK_NAME.fullmatch(name):
            raise BrokenHeaderError(f"chunk name {name!r} at byte {position} is not allowed")
        if name in {b"IDAT", b"fdAT"}:
            return chunks
        if name == b"IEND":
            raise BrokenHeaderError("it ends before any pixel data")
        end = position + 12 + length
        need(data, end)
        chunks.take(name, data[position:end])
        position = end


def _has_true_crc(chunk: bytes) -> bool:
    return zlib.crc32(chunk[4:-4]) == int.from_bytes(chunk[-4:], "big")


def _orientation(head: bytes, metadata: list[bytes], steps: Steps) -> int:
    if not metadata:
        return 1
    if len(metadata) == 1 and metadata[0][4:8] == b"eXIf":
        return orientation(metadata[0][8:-4], b"", steps)
    # Text may be compressed or hexadecimal: a picture made of these chunks alone lets Pillow read them its own way.
    steps.take(Steps.PILLOW)
    if len(metadata) > MAX_INFLATED_CHUNKS:
        raise BrokenHeaderError(f"{len(metadata)} of its chunks may turn it, at most {MAX_INFLATED_CHUNKS} are read")
    try:
        picture = open_picture(head + b"".join(metadata) + _EMPTY_IDAT, ImageFormat.PNG)
    except CLIENT_FAULTS as fault:
        raise BrokenHeaderError(f"its text chunks cannot be read ({fault})") from fault
    return orientation_in_pillow(picture)
