"""JPEG headers: segments up to the first scan (ITU T.81 B.2; EXIF 2.32; CIPA DC-007 for multi-picture files)."""

import re
from dataclasses import dataclass, field

from gateway.domain.geometry import Size
from gateway.domain.image import ImageFormat, Why
from gateway.imaging.header.base import BrokenHeaderError, Header, ShortHeaderError, Steps, TooManyStepsError, need
from gateway.imaging.header.exif import directory_value, orientation

_SOS = 0xDA
_SCAN = b"\xff\xda"
_APP1 = 0xE1
_APP2 = 0xE2
_FRAMES = frozenset({*range(0xC0, 0xD0), 0xDE} - {0xC4, 0xC8, 0xCC})
_BASELINE = frozenset({0xC0, 0xC1})
_FIRST_MARKER = 0xC0
_WITH_BODY = frozenset({*range(_FIRST_MARKER, 0xFF)} - {0xC8, *range(0xD0, 0xDA), *range(0xF0, 0xFE)})
_TAKEN = _FRAMES | {_APP1, _APP2}
_EXIF = b"Exif\x00\x00"
_XMP = b"http://ns.adobe.com/xap/1.0/\x00"
_MPF = b"MPF\x00"
_MPF_IMAGES_TAG = 0xB001
_UNSIGNED_LONG = 4
_PADDING = re.compile(rb"\xff*")
_END_MARKER = re.compile(rb"\xff\xd9")
_MARKER_IN_SCAN = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")
_EOI = 0xD9
MAX_SCANS = 100
"""Encoders write about ten. Each costs a visit of every block, and a scan of ten bytes is a whole one."""
_MAX_EXIF_SEGMENTS = 64
_CMYK_COEFFICIENT_BYTES = 2


@dataclass(slots=True)
class _Segments:
    """The segments that matter, as they come by."""

    frame: bytes = b""
    frame_marker: int = 0
    exif: list[bytes] = field(default_factory=list)
    xmp: bytes = b""
    pictures: int = 1

    def take(self, marker: int, body: bytes) -> None:
        if marker in _FRAMES:
            if not self.frame:  # no decoder takes a second one
                self.frame, self.frame_marker = body, marker
        elif marker == _APP1 and body.startswith(_EXIF):
            self.exif.append(body[len(_EXIF) :] if self.exif else body)
        elif marker == _APP1 and body.startswith(_XMP):
            self.xmp = body[len(_XMP) :]
        elif marker == _APP2 and body.startswith(_MPF):
            self.pictures = directory_value(body[4:], _MPF_IMAGES_TAG, _UNSIGNED_LONG) or 1


def read_jpeg(data: bytes, steps: Steps) -> Header:
    """Raises ShortHeaderError, BrokenHeaderError, TooManyStepsError."""
    segments = _Segments()
    scan_start = 0
    try:
        scan_start = _read_to_scan(data, segments, steps)
    except BrokenHeaderError:
        # Behind the frame header only orientation could follow; whether the rest can be decoded shows in decoding.
        if not segments.frame:
            raise
    frame = segments.frame
    if len(frame) < 6:
        raise BrokenHeaderError("it has no frame header")
    bits, components = frame[0], frame[5]
    if bits != 8 or components not in {1, 3, 4}:
        raise BrokenHeaderError(f"{components} components of {bits} bits are not supported")
    if len(segments.exif) > _MAX_EXIF_SEGMENTS:  # Pillow copies all of it with each further one
        raise BrokenHeaderError(f"its EXIF is in {len(segments.exif)} segments, at most {_MAX_EXIF_SEGMENTS} are read")
    size = Size(int.from_bytes(frame[3:5], "big"), int.from_bytes(frame[1:3], "big"))
    is_progressive = not _is_only_scan(data, scan_start, segments)
    return Header(
        ImageFormat.JPEG,
        size,
        is_lossy=True,
        orientation=orientation(b"".join(segments.exif), segments.xmp, steps) if segments.exif or segments.xmp else 1,
        frames=segments.pictures,
        why=_reasons(components, segments.pictures),
        is_progressive=is_progressive,
        extra_bytes=_CMYK_COEFFICIENT_BYTES * size.pixels if is_progressive and components == 4 else 0,
    )


def _reasons(components: int, pictures: int) -> frozenset[Why]:
    if components == 4:
        return frozenset({Why.MODE, Why.FRAMES} if pictures > 1 else {Why.MODE})
    return frozenset({Why.FRAMES}) if pictures > 1 else frozenset()


def end_of_picture(file: bytes) -> int:
    """Offset behind the first end marker after the first scan; the file's length if there is none, or no scan.

    Tables between scans could hold the marker's two bytes by chance. Then the picture is encoded anew without need,
    and the same way every time.
    """
    try:
        scan_start = _read_to_scan(file, _Segments(), Steps())
    except (BrokenHeaderError, ShortHeaderError, TooManyStepsError):
        return len(file)
    match = _END_MARKER.search(file, scan_start)
    return match.end() if match else len(file)


def end_of_only_scan(file: bytes) -> int | None:
    """Offset of the end marker behind a scan that holds the whole picture; None where there is no such scan or marker.

    Progressive files have several scans, and so may others. Raises BrokenHeaderError for more than MAX_SCANS of them,
    or if there is more between them than in any true file.
    """
    segments = _Segments()
    steps = Steps()
    try:
        scan_start = _read_to_scan(file, segments, steps)
        if not _is_only_scan(file, scan_start, segments):
            _check_scans(file, scan_start, steps)
            return None
    except ShortHeaderError:
        return None
    except TooManyStepsError as error:
        raise BrokenHeaderError(f"it is made of more than {Steps.ALL} parts") from error
    match = _END_MARKER.search(file, scan_start)
    return match.start() if match else None


def _is_only_scan(data: bytes, scan_start: int, segments: _Segments) -> bool:
    """Whether a decoder needs no memory for the coefficients of the whole picture: its first scan has them all."""
    # A scan header: marker, length, number of components, two bytes for each of them, three more.
    components = segments.frame[5:6]
    count_at = scan_start - 4 - 2 * int.from_bytes(components, "big")
    is_whole = (data[count_at - 4 : count_at - 2], data[count_at : count_at + 1]) == (_SCAN, components)
    return segments.frame_marker in _BASELINE and is_whole


def _check_scans(file: bytes, position: int, steps: Steps) -> None:
    """Counts scans as the decoder meets them; an end marker's bytes inside a segment end nothing."""
    scans = 1
    while match := _MARKER_IN_SCAN.search(file, position):
        steps.take()
        marker, position = file[match.end() - 1], match.end()
        if marker == _EOI:
            return
        if marker in _WITH_BODY:
            position += max(2, int.from_bytes(file[position : position + 2], "big"))
        scans += marker == _SOS
        if scans > MAX_SCANS:
            raise BrokenHeaderError(f"it has more than {MAX_SCANS} scans, encoders write about ten; encode it anew")


def _read_to_scan(data: bytes, segments: _Segments, steps: Steps) -> int:
    """Fills `segments`; returns where the data of the first scan begin."""
    position = 2
    while True:
        steps.take()
        need(data, position + 4)
        marker = data[position + 1]
        if data[position] != 0xFF or marker not in _WITH_BODY:
            position = _skip(data, position)
            continue
        end = position + 2 + (data[position + 2] << 8 | data[position + 3])
        if end < position + 4:
            raise BrokenHeaderError(f"the segment at byte {position} has a length below 2")
        need(data, end)
        if marker == _SOS:
            return end
        if marker in _TAKEN:
            segments.take(marker, data[position + 4 : end])
        position = end


def _skip(data: bytes, position: int) -> int:
    """Behind what is no segment with a body, as Pillow goes: junk, padding, markers that stand alone."""
    marker = data[position + 1]
    if data[position] != 0xFF or marker == 0:
        found = data.find(b"\xff", position + 1)
        if found < 0:
            raise ShortHeaderError(len(data) + 4)
        return found
    if marker == 0xFF:
        return _PADDING.match(data, position).end() - 1  # type: ignore[union-attr]  # an empty run matches too
    if marker < _FIRST_MARKER:
        raise BrokenHeaderError(f"marker 0x{marker:02x} at byte {position} is unknown")
    return position + 2
