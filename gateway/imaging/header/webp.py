"""WebP headers: RIFF chunks (developers.google.com/speed/webp/docs/riff_container)."""

import struct
from collections.abc import Iterator

from gateway.domain.geometry import Size
from gateway.domain.image import ImageFormat, Why
from gateway.imaging.header.base import BrokenHeaderError, Header, Steps, need
from gateway.imaging.header.exif import orientation

_RIFF_HEADER = 12
_CHUNK_HEADER = 8
_ANIMATION, _XMP, _EXIF, _ALPHA = 0x02, 0x04, 0x08, 0x10
_ANMF_HEADER = 16
_VP8L_SIGNATURE = 0x2F


def read_webp(data: bytes, steps: Steps) -> Header:
    """Raises ShortHeaderError (the metadata of an extended file stands behind its pixels), BrokenHeaderError,
    TooManyStepsError.
    """
    need(data, 30)
    kind = data[12:16]
    if kind == b"VP8 ":
        return _read_lossy(data)
    if kind == b"VP8L":
        return _read_lossless(data)
    if kind == b"VP8X":
        return _read_extended(data, steps)
    raise BrokenHeaderError(f"its first chunk {kind!r} is unknown")


def end_of_picture(file: bytes) -> int:
    """Offset behind the RIFF container, which is padded to an even length."""
    riff_bytes = int.from_bytes(file[4:8], "little")
    return _CHUNK_HEADER + riff_bytes + (riff_bytes & 1)


def is_as_it_says(file: bytes, steps: Steps) -> bool:
    """Whether a still picture has transparency just where its head says so; decoders differ in which they believe.

    A lossless one in an extended container tells of it twice, so it is never sure.
    """
    if file[_RIFF_HEADER : _RIFF_HEADER + 4] != b"VP8X":
        return True
    names = [name for name, _, _ in _chunks(file, steps, wants_all=False)]
    return names[-1:] == [b"VP8 "] and bool(file[20] & _ALPHA) == (b"ALPH" in names)


def _read_lossy(data: bytes) -> Header:
    if data[23:26] != b"\x9d\x01\x2a":
        raise BrokenHeaderError("its key frame has no start code")
    width, height = struct.unpack_from("<HH", data, 26)
    return Header(ImageFormat.WEBP, Size(width & 0x3FFF, height & 0x3FFF), is_lossy=True)


def _read_lossless(data: bytes) -> Header:
    if data[20] != _VP8L_SIGNATURE:
        raise BrokenHeaderError("its lossless stream has no signature")
    bits = int.from_bytes(data[21:25], "little")
    size = Size((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
    why = frozenset({Why.ALPHA} if bits >> 28 & 1 else ())
    return Header(ImageFormat.WEBP, size, is_lossy=False, why=why)


def _read_extended(data: bytes, steps: Steps) -> Header:
    flags = data[20]
    size = Size(1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little"))
    is_lossy: bool | None = None
    frames = 0
    metadata: dict[bytes, bytes] = {}
    for name, start, end in _chunks(data, steps, wants_all=bool(flags & (_ANIMATION | _XMP | _EXIF))):
        if name == b"ANMF":
            frames += 1
        if is_lossy is None:
            is_lossy = _lossiness(data, name, start)
        if name in {b"EXIF", b"XMP "}:
            need(data, end)
            metadata.setdefault(name, data[start:end])
    if is_lossy is None:
        raise BrokenHeaderError("it holds no picture")
    why = {why for flag, why in ((_ALPHA, Why.ALPHA), (_ANIMATION, Why.FRAMES)) if flags & flag}
    return Header(
        ImageFormat.WEBP,
        size,
        is_lossy=is_lossy,
        orientation=orientation(
            metadata.get(b"EXIF", b"") if flags & _EXIF else b"",
            metadata.get(b"XMP ", b"") if flags & _XMP else b"",
            steps,
        ),
        frames=max(frames, 1),
        why=frozenset(why),
    )


def _chunks(data: bytes, steps: Steps, *, wants_all: bool) -> Iterator[tuple[bytes, int, int]]:
    """Name, start and end of each chunk's body: all of the container, or up to the first picture."""
    stop = end_of_picture(data)
    position = _RIFF_HEADER
    while position + _CHUNK_HEADER <= stop:
        steps.take()
        need(data, position + _CHUNK_HEADER)
        name, length = struct.unpack_from("<4sI", data, position)
        start = position + _CHUNK_HEADER
        yield name, start, start + length
        if name in {b"VP8 ", b"VP8L", b"ANMF"} and not wants_all:
            return
        position = start + length + (length & 1)


def _lossiness(data: bytes, name: bytes, start: int) -> bool | None:
    """True or False for the chunk that holds (the first frame's) pixels, None for others."""
    if name == b"ANMF":
        need(data, start + _ANMF_HEADER + 4)
        name = data[start + _ANMF_HEADER : start + _ANMF_HEADER + 4]
        return name != b"VP8L"
    return {b"VP8 ": True, b"VP8L": False}.get(name)
