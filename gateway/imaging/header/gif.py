"""GIF headers: blocks up to the first image descriptor (GIF89a specification)."""

import re
import struct

from gateway.domain.geometry import Size
from gateway.domain.image import ImageFormat, Why
from gateway.imaging.header.base import BrokenHeaderError, Header, ShortHeaderError, Steps, need

_SCREEN_END = 13
_IMAGE, _TRAILER = 0x2C, 0x3B
_GRAPHIC_CONTROL, _APPLICATION = 0xF9, 0xFF
_BLOCK_START = re.compile(rb"[!,;]")
_LOOPS = (b"NETSCAPE2.0", b"ANIMEXTS1.0")


def read_gif(data: bytes, steps: Steps) -> Header:
    """`frames` is 2 where the file asks for a loop. Raises ShortHeaderError, BrokenHeaderError, TooManyStepsError."""
    need(data, _SCREEN_END)
    width, height, flags = struct.unpack_from("<HHB", data, 6)
    position = _SCREEN_END + _table_bytes(flags)
    why = {Why.MODE}  # a palette, always
    while True:
        steps.take()
        position = _block_start(data, position)
        if data[position] == _IMAGE:
            return _header(data, position, width, height, why)
        if data[position] == _TRAILER:
            raise BrokenHeaderError("it ends before any picture")
        end = _end_of_blocks(data, position + 2, steps)
        why |= _reasons(data[position + 1], data[position + 2 : end])
        position = end


def _header(data: bytes, position: int, width: int, height: int, why: set[Why]) -> Header:
    """A first frame that reaches over the screen enlarges it, as in Pillow."""
    need(data, position + 10)
    left, top, frame_width, frame_height = struct.unpack_from("<HHHH", data, position + 1)
    size = Size(max(width, left + frame_width), max(height, top + frame_height))
    return Header(ImageFormat.GIF, size, is_lossy=False, frames=1 + (Why.FRAMES in why), why=frozenset(why))


def _table_bytes(flags: int) -> int:
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _block_start(data: bytes, position: int) -> int:
    """Pillow passes over whatever stands between blocks."""
    match = _BLOCK_START.search(data, position)
    if match is None:
        raise ShortHeaderError(max(len(data), position) + 2)
    need(data, match.end() + 1)
    return match.start()


def _end_of_blocks(data: bytes, position: int, steps: Steps) -> int:
    while True:
        steps.take()
        need(data, position + 1)
        if not data[position]:
            return position + 1
        position += 1 + data[position]


def _reasons(label: int, body: bytes) -> set[Why]:
    if label == _GRAPHIC_CONTROL and len(body) > 1 and body[1] & 1:
        return {Why.ALPHA}
    if label == _APPLICATION and body[1:12] in _LOOPS:
        return {Why.FRAMES}
    return set()
