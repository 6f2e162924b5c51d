"""What only the whole file shows: bytes behind the picture, metadata behind the pixels, checksums.

Looked at before decoding, so that a file with a late reason is still decoded only once.
"""

import struct
import zlib

from gateway.domain.errors import Code, GatewayError
from gateway.domain.image import ImageFormat, ImageInfo, Why
from gateway.imaging.header import jpeg, webp
from gateway.imaging.header.png import SIGNATURE, metadata_chunks

_NOTHING: frozenset[Why] = frozenset()
_TRAILING: frozenset[Why] = frozenset({Why.TRAILING_BYTES})


def late_reasons(file: bytes, info: ImageInfo) -> frozenset[Why]:
    """Reasons for encoding the image anew that its header did not show.

    Formats without an end marker have none; GIF is encoded anew whatever follows it. Raises GatewayError
    IMAGE_PARSE_ERROR for a PNG with a wrong checksum: its pixels would be decoded to something else than was meant.
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
    end, behind_pixels = _walk_png(file)
    is_turned_late = info.orientation == 1 and bool(metadata_chunks(file[behind_pixels:end]))
    return _trailing(file, end) | (frozenset({Why.ORIENTATION}) if is_turned_late else _NOTHING)


def _walk_png(file: bytes) -> tuple[int, int]:
    """End of the IEND chunk (of the file, if that is cut off before it), and of the last IDAT chunk.

    Raises GatewayError on a wrong checksum.
    """
    view = memoryview(file)
    position, behind_pixels = len(SIGNATURE), 0
    while position + 12 <= len(file):
        length, name = struct.unpack_from(">I4s", file, position)
        end = position + 12 + length
        if end > len(file):
            break
        if zlib.crc32(view[position + 4 : end - 4]) != int.from_bytes(view[end - 4 : end], "big"):
            raise GatewayError(
                Code.IMAGE_PARSE_ERROR, f"The png is damaged: the checksum of the chunk at byte {position} is wrong."
            )
        if name == b"IEND":
            return end, behind_pixels
        if name == b"IDAT":
            behind_pixels = end
        position = end
    return len(file), behind_pixels
