"""What only the whole file shows: bytes behind the picture, metadata behind the pixels, checksums.

Looked at before decoding, so that a file with a late reason is still decoded only once.
"""

import struct
import zlib

from gateway.domain.errors import Code, GatewayError
from gateway.domain.image import ImageFormat, ImageInfo, Why
from gateway.imaging.header import jpeg, webp
from gateway.imaging.header.png import INFLATED_CHUNKS, MAX_INFLATED_CHUNKS, SIGNATURE, may_orient

_MAX_CHUNKS = 65_536  # encoders write at least some kilobytes of pixels in each
_NOTHING: frozenset[Why] = frozenset()
_TRAILING: frozenset[Why] = frozenset({Why.TRAILING_BYTES})


def late_reasons(file: bytes, info: ImageInfo) -> frozenset[Why]:
    """Reasons for encoding the image anew that its header did not show.

    Formats without an end marker have none; GIF is encoded anew whatever follows it. Raises GatewayError
    IMAGE_PARSE_ERROR for a PNG with a wrong checksum (its pixels would be decoded to something else than was meant) or
    with more chunks than any encoder writes (a decoder is kept busy by them).
    """
    match info.format:
        case ImageFormat.JPEG:
            return _trailing(file, jpeg.end_of_picture(file))
        case ImageFormat.WEBP:
            return _trailing(file, webp.end_of_picture(file))
        case ImageFormat.PNG:
            return _late_in_png(file, info)
        case _:
            return _NOTHING


def _trailing(file: bytes, end: int) -> frozenset[Why]:
    return _TRAILING if end < len(file) else _NOTHING


def _late_in_png(file: bytes, info: ImageInfo) -> frozenset[Why]:
    """An orientation behind the pixels was not counted with, so it is left out of what is sent on."""
    end, may_be_turned = _walk_png(file)
    return _trailing(file, end) | (
        frozenset({Why.ORIENTATION}) if may_be_turned and info.orientation == 1 else _NOTHING
    )


def _walk_png(file: bytes) -> tuple[int, bool]:
    """End of the IEND chunk (of the file, if that is cut off before it), and whether a chunk behind the last IDAT may
    carry an orientation.

    Raises GatewayError on a wrong checksum, and for a file of more chunks than any encoder writes.
    """
    view = memoryview(file)
    position, may_be_turned, inflated = len(SIGNATURE), False, 0
    for _ in range(_MAX_CHUNKS):
        if position + 12 > len(file):
            return len(file), may_be_turned
        length, name = struct.unpack_from(">I4s", file, position)
        end = position + 12 + length
        if end > len(file):
            return len(file), may_be_turned
        if zlib.crc32(view[position + 4 : end - 4]) != int.from_bytes(view[end - 4 : end], "big"):
            raise _damaged(f"the checksum of the chunk at byte {position} is wrong")
        if name == b"IEND":
            return end, may_be_turned
        inflated += name in INFLATED_CHUNKS
        if inflated > MAX_INFLATED_CHUNKS:
            raise _damaged(f"it has more than {MAX_INFLATED_CHUNKS} compressed texts and profiles")
        may_be_turned = name != b"IDAT" and (may_be_turned or may_orient(name, view[position:end]))
        position = end
    raise _damaged(f"it has more than {_MAX_CHUNKS} chunks")


def _damaged(how: str) -> GatewayError:
    return GatewayError(Code.IMAGE_PARSE_ERROR, f"The png is damaged: {how}.")
