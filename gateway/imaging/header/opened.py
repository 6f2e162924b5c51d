"""Headers of the rarer formats, read by Pillow from the whole file: BMP, TIFF, AVIF, ICO, HEIC.

Pillow's `open` reads no pixels of them, but ICO's does, and TIFF's runs through as many directory entries as the file
claims. Both are looked at first.
"""

import struct
from dataclasses import replace

from PIL import ImageFile

from gateway.domain.geometry import Size
from gateway.domain.image import ImageFormat, Why
from gateway.imaging.header.av1 import check_frames
from gateway.imaging.header.base import BrokenHeaderError, Header
from gateway.imaging.header.exif import orientation_in_pillow
from gateway.imaging.header.png import SIGNATURE
from gateway.imaging.header.tiff import VALUE_BYTES, Tag, check_directory, check_jpeg_pieces, piece_bytes
from gateway.imaging.pillow import CLIENT_FAULTS, open_picture

_MAX_ICON_SIDE = 1024
_MAX_RUN_LENGTH_SIZE = 2 << 20  # pixels, and bytes: Pillow decodes them in Python, at a tenth of a second for a million
_OVERHANG_BYTES_PER_PIXEL = 11  # of a frame that is larger than its AVIF: planes, and planes scaled down
_LIBTIFF_BYTES = 256 << 10  # what it keeps whatever the file is
_CONTAINERS = frozenset({ImageFormat.AVIF, ImageFormat.HEIC})  # of compressed frames, told apart by their codec
_PLAIN_MODES = frozenset({"RGB", "L"})
_ALPHA_MODES = frozenset({"RGBA", "LA", "PA", "La", "RGBa"})


def read_opened(file: bytes, image_format: ImageFormat) -> Header:
    """Raises BrokenHeaderError; what Pillow says becomes its text."""
    try:
        return _READERS[image_format](file)
    except CLIENT_FAULTS as fault:
        raise BrokenHeaderError(str(fault)) from fault


def _read_ico(file: bytes) -> Header:
    _check_icons(file)
    return _header(open_picture(file, ImageFormat.ICO), ImageFormat.ICO)


def _read_bmp(file: bytes) -> Header:
    picture = open_picture(file, ImageFormat.BMP)
    _check_run_lengths(picture, len(file))
    return _header(picture, ImageFormat.BMP)


def _read_tiff(file: bytes) -> Header:
    numbers = check_directory(file)
    picture = open_picture(file, ImageFormat.TIFF)
    tags = picture.tag_v2  # type: ignore[attr-defined]  # a TiffImageFile
    check_jpeg_pieces(tags, len(file))
    return _header(picture, ImageFormat.TIFF, VALUE_BYTES * numbers + piece_bytes(tags) + _LIBTIFF_BYTES)


def _read_avif(file: bytes) -> Header:
    picture = open_picture(file, ImageFormat.AVIF)
    stored = Size(*picture.size)
    overhang = max(0, check_frames(file, stored) - stored.pixels)
    return _header(picture, ImageFormat.AVIF, _OVERHANG_BYTES_PER_PIXEL * overhang)


def _read_heic(file: bytes) -> Header:
    """Turned upright by its decoder. vLLM does not read it."""
    header = _header(open_picture(file, ImageFormat.HEIC), ImageFormat.HEIC)
    return replace(header, why=header.why | {Why.FORMAT})


_READERS = {
    ImageFormat.ICO: _read_ico,
    ImageFormat.BMP: _read_bmp,
    ImageFormat.TIFF: _read_tiff,
    ImageFormat.AVIF: _read_avif,
    ImageFormat.HEIC: _read_heic,
}


def _header(picture: ImageFile.ImageFile, image_format: ImageFormat, extra_bytes: int = 0) -> Header:
    orientation = orientation_in_pillow(picture)  # before asking for frames, which moves through the file
    why = set()
    if picture.mode in _ALPHA_MODES or "transparency" in picture.info:
        why.add(Why.ALPHA)
    elif picture.mode not in _PLAIN_MODES:
        why.add(Why.MODE)
    frames = getattr(picture, "n_frames", 1) if image_format in _CONTAINERS else _directories(picture)
    if frames > 1:
        why.add(Why.FRAMES)
    return Header(
        image_format,
        _stored_size(picture),
        is_lossy=image_format in _CONTAINERS,
        orientation=orientation,
        frames=frames,
        why=frozenset(why),
        extra_bytes=extra_bytes,
    )


def _stored_size(picture: ImageFile.ImageFile) -> Size:
    """Pillow gives a TIFF's size after its orientation tag; all others before."""
    tags = getattr(picture, "tag_v2", None)
    if tags is None:
        return Size(*picture.size)
    return Size(int(tags[Tag.WIDTH]), int(tags[Tag.HEIGHT]))


def _directories(picture: ImageFile.ImageFile) -> int:
    """2 for a TIFF with a second page: counting them all would follow a chain of any length."""
    tags = getattr(picture, "tag_v2", None)
    return 1 + bool(tags is not None and tags.next)


def _check_run_lengths(picture: ImageFile.ImageFile, file_bytes: int) -> None:
    size = Size(*picture.size)
    if picture.tile and picture.tile[0].codec_name == "bmp_rle" and max(size.pixels, file_bytes) > _MAX_RUN_LENGTH_SIZE:
        raise BrokenHeaderError(
            f"it is run-length coded and {size} in {file_bytes} bytes; of such files {_MAX_RUN_LENGTH_SIZE} pixels and "
            "bytes are read"
        )


def _check_icons(file: bytes) -> None:
    """Every picture of an icon is small: its own header is believed, not the directory, whose sides end at 256."""
    (count,) = struct.unpack_from("<H", file, 4)
    for index in range(count):
        (start,) = struct.unpack_from("<I", file, 6 + 16 * index + 12)
        layout, offset = (">II", start + 16) if file.startswith(SIGNATURE, start) else ("<II", start + 4)
        width, height = struct.unpack_from(layout, file, offset)
        if max(width, height // 2) > _MAX_ICON_SIDE:
            raise BrokenHeaderError(f"icon {index} is {width}x{height}, at most {_MAX_ICON_SIDE} a side is read")
