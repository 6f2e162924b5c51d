"""Lossless WebP put together bit by bit, as no encoder writes it (WebP lossless bitstream specification)."""

import struct

_LITERAL_EIGHT = 11  # where the code length 8 stands in the order in which code lengths are told
_SMALLEST_SET = 0b0001  # a simple code, of one symbol, which is 0
_CODES_IN_SET = 5


class _Bits:
    """Lowest bit first."""

    def __init__(self) -> None:
        self._value = self._count = 0

    def put(self, value: int, bit_count: int) -> None:
        self._value |= value << self._count
        self._count += bit_count

    def file(self) -> bytes:
        return self._value.to_bytes(self._count // 8 + 1, "little")


def webp_of_many_tables(side: int) -> bytes:
    """A black square with a set of code tables for each block of 4x4 pixels; at most 1024 pixels a side."""
    bits = _Bits()
    for value, bit_count in ((0x2F, 8), (side - 1, 14), (side - 1, 14), (0, 4), (0, 2), (1, 1), (0, 3), (0, 1)):
        bits.put(value, bit_count)  # signature, size, no alpha, no transforms, no cache; sets for blocks of 4x4
    for _ in ("green", "red"):
        _put_flat_code(bits)
    for _ in ("blue", "alpha", "distance"):
        bits.put(_SMALLEST_SET, 4)
    blocks = (side // 4) ** 2
    for block in range(blocks):
        for symbol in (block & 0xFF, block >> 8):
            bits.put(int(f"{symbol:08b}"[::-1], 2), 8)  # codes stand with their highest bit first
    for _ in range(blocks):
        for _ in range(_CODES_IN_SET):
            bits.put(_SMALLEST_SET, 4)
    data = bits.file() + bytes(8)
    data += bytes(len(data) % 2)
    return b"RIFF" + struct.pack("<I", len(data) + 12) + b"WEBPVP8L" + struct.pack("<I", len(data)) + data


def _put_flat_code(bits: _Bits) -> None:
    """256 symbols of eight bits each."""
    bits.put(0, 1)
    bits.put(_LITERAL_EIGHT + 1 - 4, 4)
    for place in range(_LITERAL_EIGHT + 1):
        bits.put(place == _LITERAL_EIGHT, 3)
    bits.put(1, 1)
    bits.put(3, 3)
    bits.put(254, 8)
