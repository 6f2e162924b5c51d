"""Damage to files and texts: every kind that a parser of lengths, tables and compressed data may stumble over."""

import random
import struct

_TELLING = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF)
_HEADER_BYTES = 200


def damaged(file: bytes, others: list[bytes], chance: random.Random) -> bytes:
    """One to three damages of a file, which is not empty; of `others` pieces may be put in."""
    data = bytearray(file)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        chance.choice(_KINDS)(data, others, chance)
        if not data:
            return b""
    return bytes(data)


def _somewhere(data: bytearray, chance: random.Random) -> int:
    """Headers are where parsers live."""
    return chance.randrange(min(len(data), _HEADER_BYTES) if chance.random() < 0.4 else len(data))


def _cut_off(data: bytearray, _others: list[bytes], chance: random.Random) -> None:
    del data[chance.randrange(len(data)) :]


def _cut_out(data: bytearray, _others: list[bytes], chance: random.Random) -> None:
    start = _somewhere(data, chance)
    del data[start : start + chance.randrange(1, 60)]


def _put_in(data: bytearray, _others: list[bytes], chance: random.Random) -> None:
    start = _somewhere(data, chance)
    data[start:start] = chance.randbytes(chance.randrange(1, 40))


def _repeat(data: bytearray, _others: list[bytes], chance: random.Random) -> None:
    start = _somewhere(data, chance)
    piece = data[start : start + chance.randrange(1, 80)]
    data[start:start] = piece * chance.choice((1, 1, 2, 50))


def _flip(data: bytearray, _others: list[bytes], chance: random.Random) -> None:
    for _ in range(chance.randrange(1, 8)):
        data[_somewhere(data, chance)] ^= 1 << chance.randrange(8)


def _overwrite(data: bytearray, _others: list[bytes], chance: random.Random) -> None:
    for _ in range(chance.randrange(1, 20)):
        data[_somewhere(data, chance)] = chance.choice((0, 0x7F, 0x80, 0xFF, chance.randrange(256)))


def _tell_a_lie(data: bytearray, _others: list[bytes], chance: random.Random) -> None:
    """A length, an offset or a count that is not so."""
    layout = chance.choice(("B", "<H", ">H", "<I", ">I"))
    size = struct.calcsize(layout)
    number = chance.choice(_TELLING) & ((1 << 8 * size) - 1)
    start = _somewhere(data, chance)
    data[start : start + size] = struct.pack(layout, number)


def _take_over(data: bytearray, others: list[bytes], chance: random.Random) -> None:
    """The rest is another file's, or a piece of one."""
    other = chance.choice(others)
    start, its_start = _somewhere(data, chance), chance.randrange(len(other))
    its_end = len(other) if chance.random() < 0.5 else its_start + chance.randrange(1, 200)
    if chance.random() < 0.5:
        del data[start:]
    data[start:start] = other[its_start:its_end]


_KINDS = (_cut_off, _cut_out, _put_in, _repeat, _flip, _overwrite, _tell_a_lie, _tell_a_lie, _take_over)
