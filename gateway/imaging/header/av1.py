"""Sizes of the AV1 frames inside an AVIF file (ISO/IEC 14496-12 boxes, AV1 specification 5.5.1).

Pillow tells the container's size, but the decoder allocates what the frame says and scales it afterwards. A frame far
larger than its container is a decompression bomb that no other check would see.
"""

import struct
from collections.abc import Iterator

from gateway.domain.geometry import Size
from gateway.imaging.header.base import BrokenHeaderError

_SEQUENCE_HEADER = 1
_MAX_UNITS = 64
_TRACK_BOXES = frozenset({b"moov", b"trak", b"mdia", b"minf", b"stbl"})
_MAX_LEB128_BYTES = 8
_HIGH_LEVEL = 7
_OVERHANG = 4
_MAX_BOXES = 2048


def check_frames(file: bytes, stored: Size) -> int:
    """Pixels of the largest frame, 0 if there is none.

    Raises BrokenHeaderError for a frame of over four times the container's pixels (tiles of a grid may overhang),
    struct.error or IndexError where boxes or units end early.
    """
    data_bytes = largest = 0
    for units in _coded_data(file, (0, len(file)), iter(range(_MAX_BOXES))):
        data_bytes += len(units)
        if data_bytes > _OVERHANG * len(file):
            raise BrokenHeaderError("its items overlap")
        for frame in _frame_sizes(units):
            if frame.pixels > _OVERHANG * stored.pixels:
                raise BrokenHeaderError(f"it says {stored} and holds a frame of {frame}")
            largest = max(largest, frame.pixels)
    return largest


def _coded_data(file: bytes, span: tuple[int, int], allowance: Iterator[int]) -> Iterator[bytes]:
    """Data of each item, and of the first chunk of each track from its start on."""
    for name, first, last in _boxes(file, span, allowance):
        if name == b"meta":
            yield from _items(file, (first + 4, last), allowance)
        elif name in _TRACK_BOXES:
            yield from _coded_data(file, (first, last), allowance)
        elif name in {b"stco", b"co64"}:
            (offset,) = struct.unpack_from(">I" if name == b"stco" else ">Q", file, first + 8)
            yield file[offset:]


def _boxes(file: bytes, span: tuple[int, int], allowance: Iterator[int]) -> Iterator[tuple[bytes, int, int]]:
    """Name, start and end of the body of each box; `allowance` is used up by one for each, over all levels."""
    start, end = span
    while start + 8 <= end:
        size, name = struct.unpack_from(">I4s", file, start)
        head = 8
        if size == 1:
            (size,) = struct.unpack_from(">Q", file, start + 8)
            head = 16
        stop = start + size if size else end
        if not start + head <= stop <= end or next(allowance, None) is None:
            raise BrokenHeaderError(f"the box at byte {start} does not fit, or is one of too many")
        yield name, start + head, stop
        start = stop


def _items(file: bytes, span: tuple[int, int], allowance: Iterator[int]) -> Iterator[bytes]:
    bodies = {name: (first, last) for name, first, last in _boxes(file, span, allowance)}
    if b"iloc" not in bodies:
        return
    inline_data = bodies.get(b"idat", (0, 0))[0]
    for is_inline, extents in _locations(_Fields(file[slice(*bodies[b"iloc"])]), allowance):
        if sum(length or len(file) for _, length in extents) > len(file):
            raise BrokenHeaderError("an item is larger than the file")
        base = inline_data if is_inline else 0
        yield b"".join(file[base + at : base + at + length if length else None] for at, length in extents)


class _Fields:
    """Big-endian numbers, one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, byte_count: int) -> int:
        start, self._position = self._position, self._position + byte_count
        if self._position > len(self._data):
            raise IndexError("a box ends early")
        return int.from_bytes(self._data[start : self._position], "big")


def _locations(fields: _Fields, allowance: Iterator[int]) -> Iterator[tuple[bool, list[tuple[int, int]]]]:
    """For each item of an `iloc` box: whether it lies in the meta box, and offset and length of its pieces.

    Items and pieces use up the allowance too: both may take no bytes, and their counts are the file's word.
    """
    version = fields.take(4) >> 24
    sizes = fields.take(2)
    offset_bytes, length_bytes, base_bytes, index_bytes = (sizes >> shift & 15 for shift in (12, 8, 4, 0))
    wide = 4 if version == 2 else 2
    for _ in range(fields.take(wide)):
        _use(allowance)
        fields.take(wide)
        method = fields.take(2) & 15 if version else 0
        fields.take(2)
        base = fields.take(base_bytes)
        extents = []
        for _ in range(fields.take(2)):
            _use(allowance)
            fields.take(index_bytes if version else 0)
            offset = fields.take(offset_bytes)
            extents.append((base + offset, fields.take(length_bytes)))
        yield method == 1, extents


def _use(allowance: Iterator[int]) -> None:
    if next(allowance, None) is None:
        raise BrokenHeaderError(f"it has more than {_MAX_BOXES} boxes, items and pieces")


def _frame_sizes(units: bytes) -> Iterator[Size]:
    """Sizes of the sequence headers in a chain of open bitstream units; what is no such chain has none."""
    position = 0
    for _ in range(_MAX_UNITS):
        if position >= len(units) or units[position] & 0x81:  # forbidden and reserved bits
            return
        head = units[position]
        position += 1 + (head >> 2 & 1)
        length = len(units) - position
        if head & 2:
            length, position = _leb128(units, position)
        if head >> 3 & 15 == _SEQUENCE_HEADER:
            yield _sequence_size(_Bits(units[position : position + length]))
        position += length


def _leb128(data: bytes, position: int) -> tuple[int, int]:
    """A number in groups of seven bits, low ones first, and the position behind it (AV1 specification 4.10.5)."""
    value = 0
    for index in range(_MAX_LEB128_BYTES):
        group = data[position + index]
        value |= (group & 0x7F) << 7 * index
        if not group & 0x80:
            return value, position + index + 1
    raise BrokenHeaderError(f"a length has more than {_MAX_LEB128_BYTES} bytes")


class _Bits:
    """Bits of a unit, highest first."""

    def __init__(self, data: bytes) -> None:
        self._value = int.from_bytes(data[:64], "big")
        self._left = 8 * min(len(data), 64)

    def take(self, bit_count: int) -> int:
        self._left -= bit_count
        if self._left < 0:
            raise IndexError("a sequence header ends early")
        return self._value >> self._left & ((1 << bit_count) - 1)


def _sequence_size(bits: _Bits) -> Size:
    bits.take(4)  # profile, still picture
    if bits.take(1):  # reduced header
        bits.take(5)
    else:
        _skip_operating_points(bits)
    width_bits, height_bits = bits.take(4) + 1, bits.take(4) + 1
    return Size(bits.take(width_bits) + 1, bits.take(height_bits) + 1)


def _skip_operating_points(bits: _Bits) -> None:
    if bits.take(1):
        raise BrokenHeaderError("its frames carry timing, which is not supported")
    has_delay = bits.take(1)
    for _ in range(bits.take(5) + 1):
        bits.take(12)
        if bits.take(5) > _HIGH_LEVEL:
            bits.take(1)
        if has_delay and bits.take(1):
            bits.take(4)
