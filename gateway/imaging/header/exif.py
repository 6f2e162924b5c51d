"""EXIF and XMP orientation, as Pillow's `ImageOps.exif_transpose` reads it: EXIF first, XMP where EXIF has none."""

import re
import struct

from PIL import Image

from gateway.imaging.header.base import BrokenHeaderError, Steps
from gateway.imaging.pillow import CLIENT_FAULTS

ORIENTATION_TAG = 0x0112
_UNSIGNED_SHORT = 3
_EXIF_MARK = re.compile(rb"^(?:Exif\x00\x00){1,2}")
_XMP_ORIENTATION = re.compile(rb'tiff:Orientation(?:="|>)([0-9])')
_SHORT_BYTES = 4 << 10  # Pillow takes at most 2 ms for as many entries as fit in
_MAX_BYTES = 1 << 20
_BYTE_ORDER = {b"II*\x00": "<", b"MM\x00*": ">"}


def orientation(exif: bytes, xmp: bytes, steps: Steps) -> int:
    """1..8, and 1 for anything that Pillow would not act on. `exif` is a TIFF block, marked as EXIF or not.

    Raises BrokenHeaderError or TooManyStepsError for a block that would take too long to read.
    """
    found = _plain_orientation(_EXIF_MARK.sub(b"", exif)) if exif else 0
    if found is None:
        _check_effort(len(exif), steps)
        return orientation_in_pillow(_with_metadata(exif, xmp))
    if not found and (match := _XMP_ORIENTATION.search(xmp)):
        found = int(match[1])
    return found if found in range(1, 9) else 1


def orientation_in_pillow(picture: Image.Image) -> int:
    """What `exif_transpose` would act on, without loading pixels (as the PNG plugin's own method would)."""
    try:
        value = Image.Image.getexif(picture).get(ORIENTATION_TAG, 1)
    except CLIENT_FAULTS:
        return 1  # vLLM suppresses the same exceptions and leaves the picture as it is
    return int(value) if value in tuple(range(1, 9)) else 1


def directory_value(block: bytes, wanted_tag: int, wanted_type: int) -> int | None:
    """Value of a tag in the first directory of a TIFF block; 0 if absent, None where only Pillow can tell."""
    order = _BYTE_ORDER.get(block[:4])
    if order is None or len(block) < 8:
        return None
    (start,) = struct.unpack_from(order + "I", block, 4)
    if start + 2 > len(block):
        return 0
    (count,) = struct.unpack_from(order + "H", block, start)
    whole_entries = min(count, (len(block) - start - 2) // 12)
    entries = block[start + 2 : start + 2 + 12 * whole_entries]
    layout = order + ("HHIHxx" if wanted_type == _UNSIGNED_SHORT else "HHII")
    for tag, kind, values, value in struct.iter_unpack(layout, entries):
        if tag == wanted_tag:
            return value if (kind, values) == (wanted_type, 1) else None
    return 0


def _plain_orientation(block: bytes) -> int | None:
    value = directory_value(block, ORIENTATION_TAG, _UNSIGNED_SHORT)
    # A stored 0 is an orientation too (none), and keeps Pillow from looking into XMP; so is 9.
    return value if value != 0 or not _holds_tag(block) else 9


def _holds_tag(block: bytes) -> bool:
    return directory_value(block, ORIENTATION_TAG, -1) is None and block[:4] in _BYTE_ORDER


def _check_effort(block_bytes: int, steps: Steps) -> None:
    """Pillow reads all entries, at some microseconds each; the block could be nothing but entries."""
    if block_bytes > _MAX_BYTES:
        raise BrokenHeaderError(f"its EXIF has {block_bytes} bytes; at most {_MAX_BYTES} are read")
    if block_bytes > _SHORT_BYTES:
        steps.take(Steps.PILLOW)


def _with_metadata(exif: bytes, xmp: bytes) -> Image.Image:
    picture = Image.new("1", (1, 1))
    picture.info.update(exif=exif, xmp=xmp)
    return picture
