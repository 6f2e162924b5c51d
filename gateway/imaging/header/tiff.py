"""TIFF directories, as far as they decide what opening and decoding take (TIFF 6.0; BigTIFF).

Pillow and libtiff both trust them: libtiff keeps a copy of each value, and decodes whole tiles, however small the
picture. So the directory is looked at before Pillow opens the file, and the layout of the pixels before it decodes.
"""

import struct
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from gateway.domain.geometry import Size
from gateway.imaging.header.base import BrokenHeaderError

MAX_VALUES = 1 << 17
"""Numbers in a directory: enough for the places of the 65,536 pieces of a large picture."""
VALUE_BYTES = 400
"""What Pillow makes of each of them at most: a description of the piece that begins there."""
_MAX_ENTRIES = 1024
_VALUE_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8, 17: 8, 18: 8}
_OVERHANG = 4
_SMALL_PIXELS = 4 << 20
_JPEG, _OLD_JPEG, _WEBP, _YCBCR = 7, 6, 50001, 6
_COEFFICIENT_BYTES = 8  # where a JPEG inside has several scans
_RASTER_BYTES = 4  # some are put together as RGBA first


class Tag:
    WIDTH, HEIGHT, BITS, COMPRESSION, PHOTOMETRIC = 256, 257, 258, 259, 262
    SAMPLES, ROWS, STRIP_BYTES, TILE_WIDTH, TILE_HEIGHT, TILE_BYTES = 277, 278, 279, 322, 323, 325


class _Entry(NamedTuple):
    """`values` numbers or characters of `value_bytes` each."""

    values: int
    value_bytes: int


def check_directory(file: bytes) -> int:
    """How many numbers the first directory holds. Reads no value.

    Raises BrokenHeaderError where there are more than in any true file, or where values share bytes, which would be
    copied for each of them; struct.error where the file ends early.
    """
    values = total_bytes = 0
    for entry in _entries(file):
        values += entry.values if entry.value_bytes > 1 else 0
        total_bytes += entry.values * entry.value_bytes
    if total_bytes > len(file):
        raise BrokenHeaderError(f"its directory claims {total_bytes} bytes of values, the file has {len(file)}")
    if values > MAX_VALUES:
        raise BrokenHeaderError(f"its directory holds {values} numbers, at most {MAX_VALUES} are read")
    return values


def piece_bytes(tags: Mapping[int, Any]) -> int:
    """Memory for one strip or tile while it is decoded. `tags` are those of the opened picture.

    Raises BrokenHeaderError for tiles that reach far over the picture.
    """
    piece = _piece(tags)
    if tags.get(Tag.PHOTOMETRIC) == _YCBCR or tags.get(Tag.COMPRESSION) in {_JPEG, _OLD_JPEG, _WEBP}:
        is_jpeg = tags.get(Tag.COMPRESSION) in {_JPEG, _OLD_JPEG}
        return piece.pixels * (2 * _RASTER_BYTES + _COEFFICIENT_BYTES * is_jpeg)
    bits = tags.get(Tag.BITS, (1,))
    bits_per_pixel = int(max(bits)) * max(len(bits), _whole(tags, Tag.SAMPLES, 1))
    return -(-piece.width * bits_per_pixel // 8) * piece.height


def check_jpeg_pieces(tags: Mapping[int, Any], file_bytes: int) -> None:
    """A JPEG for each strip or tile takes up to 100 visits of its blocks: they must each have bytes of their own.

    Raises BrokenHeaderError where they do not.
    """
    if tags.get(Tag.COMPRESSION) == _JPEG:
        piece_bytes = sum(tags.get(Tag.STRIP_BYTES, ())) + sum(tags.get(Tag.TILE_BYTES, ()))
        if not 0 < piece_bytes <= file_bytes:
            raise BrokenHeaderError(f"its strips or tiles have {piece_bytes} bytes, the file has {file_bytes}")


def _entries(file: bytes) -> Iterator[_Entry]:
    order = "<" if file[:2] == b"II" else ">"
    is_big = 43 in file[2:4]
    if is_big and order == ">":  # Pillow reads it as a small one, libtiff as a big one
        raise BrokenHeaderError("BigTIFF with the high byte first is not supported")
    (start,) = struct.unpack_from(order + ("Q" if is_big else "I"), file, 8 if is_big else 4)
    head, layout = ("Q", "HHQ8x") if is_big else ("H", "HHI4x")
    (count,) = struct.unpack_from(order + head, file, start)
    if count > _MAX_ENTRIES:
        raise BrokenHeaderError(f"its directory has {count} entries, at most {_MAX_ENTRIES} are read")
    position = start + struct.calcsize(order + head)
    for _ in range(count):
        _, kind, values = struct.unpack_from(order + layout, file, position)
        yield _Entry(values, _VALUE_BYTES.get(kind, 0))
        position += struct.calcsize(order + layout)


def _piece(tags: Mapping[int, Any]) -> Size:
    size = Size(_whole(tags, Tag.WIDTH), _whole(tags, Tag.HEIGHT))
    if Tag.TILE_WIDTH not in tags and Tag.TILE_HEIGHT not in tags:
        return Size(size.width, min(_whole(tags, Tag.ROWS, size.height), size.height))
    tile = Size(_whole(tags, Tag.TILE_WIDTH), _whole(tags, Tag.TILE_HEIGHT))
    columns, rows = -(-size.width // tile.width), -(-size.height // tile.height)
    decoded = columns * rows * tile.pixels
    if decoded > max(_OVERHANG * size.pixels, _SMALL_PIXELS):
        raise BrokenHeaderError(f"it is {size} and its tiles of {tile} have {decoded} pixels")
    return tile


def _whole(tags: Mapping[int, Any], tag: int, default: int = 0) -> int:
    value = tags.get(tag, default)
    if not isinstance(value, int) or value < 1:
        raise BrokenHeaderError(f"its tag {tag} is {value!r}")
    return value
