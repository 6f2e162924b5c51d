"""TIFF files put together by hand, for layouts that no encoder writes."""

import struct
import zlib

DEFLATE, JPEG = 8, 7
DATA_AT = 8
SHORT, LONG = "H", "I"
_KINDS = {SHORT: 3, LONG: 4}


def tiff(width: int, height: int, data: bytes, *, bits: int = 8, compression: int = DEFLATE, **tags: object) -> bytes:
    """Three colours whose pixels are `data`, at DATA_AT. Further tags as `t323=[128]`."""
    numbers = {256: [width], 257: [height], 258: [bits] * 3, 259: [compression], 262: [2], 277: [3]}
    numbers |= {int(name[1:]): values for name, values in tags.items()}
    file, entries = b"II*\x00" + bytes(4) + data, b""
    for tag in sorted(numbers):
        kind = LONG if max(numbers[tag]) > 0xFFFF else SHORT
        value = struct.pack(f"<{len(numbers[tag])}{kind}", *numbers[tag])
        if len(value) > 4:
            file, value = file + value, struct.pack("<I", len(file))
        entries += struct.pack("<HHI4s", tag, _KINDS[kind], len(numbers[tag]), value)
    file += bytes(len(file) % 2)
    return file[:4] + struct.pack("<I", len(file)) + file[8:] + struct.pack("<H", len(numbers)) + entries + bytes(4)


def tiled(width: int, height: int, tile_width: int, tile_height: int) -> bytes:
    """One black tile, which is all tiles of the picture."""
    data = zlib.compress(bytes(tile_width * tile_height * 3))
    count = -(-width // tile_width) * -(-height // tile_height)
    places = {"t324": [DATA_AT] * count, "t325": [len(data)] * count}
    return tiff(width, height, data, t322=[tile_width], t323=[tile_height], **places)


def in_one_strip(width: int, height: int, *, bits: int = 8) -> bytes:
    data = zlib.compress(bytes(width * height * 3 * bits // 8))
    return tiff(width, height, data, bits=bits, t273=[DATA_AT], t278=[height], t279=[len(data)])
