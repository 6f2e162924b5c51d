"""Of a PNG, the chunks that its pixels are made of, for a decoder that is not to read anything else of the file."""

import struct

_SIGNATURE_BYTES = 8
_CHUNK_OVERHEAD_BYTES = 12
_MOST_CHUNKS = 20_000
_KEPT = frozenset({b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND"})
_DEPTH_AT = 24  # in IHDR, which is first
_BITS = 8


def pixel_chunks(file: bytes) -> bytes | None:
    """The file less its text, profiles and times; each chunk as it came, with its checksum.

    None where that is not all: other bits than eight a sample, chunks in an odd order or behind the pixels, cut ones.
    """
    if len(file) <= _DEPTH_AT or file[_DEPTH_AT] != _BITS:
        return None
    view, kept, position = memoryview(file), [memoryview(file)[:_SIGNATURE_BYTES]], _SIGNATURE_BYTES
    has_pixels = False
    for _ in range(_MOST_CHUNKS):
        if position + _CHUNK_OVERHEAD_BYTES > len(file):
            return None
        length, name = struct.unpack_from(">I4s", file, position)
        end = position + _CHUNK_OVERHEAD_BYTES + length
        if has_pixels and name not in {b"IDAT", b"IEND"}:
            return None
        has_pixels = has_pixels or name == b"IDAT"
        if name in _KEPT:
            kept.append(view[position:end])
        if name == b"IEND":
            return b"".join(kept) if end <= len(file) else None
        position = end
    return None
