"""File to pixels, once. `verify` throws the pixels away, render.py goes on with them.

A picture is loaded exactly once: after a failed load, Pillow's second one succeeds with black pixels, which is how
damaged files reach models.
"""

from io import BytesIO

from PIL import ImageFile

from gateway.domain.geometry import Size
from gateway.domain.image import ImageFormat, ImageInfo
from gateway.imaging.header.jpeg import end_of_only_scan
from gateway.imaging.pillow import as_parse_error, open_picture

_LOOKAHEAD_BYTES = 8  # libjpeg's bit buffer
_VERIFY_SCALE = 8  # JPEG decodes an eighth at a third of the time, and entropy decoding sees every byte all the same


def verify(file: bytes, info: ImageInfo) -> None:
    """Decodes every pixel, a JPEG's at an eighth. Raises GatewayError IMAGE_PARSE_ERROR.

    Not seen: changed bytes inside a JPEG's data (it has no checksums, and the decoder goes on with any bits), and a
    progressive JPEG that was cut and closed with an end marker.
    """
    with as_parse_error(f"The {info.format} cannot be decoded"):
        load(file, info, Size(info.size.width // _VERIFY_SCALE, info.size.height // _VERIFY_SCALE))


def load(file: bytes, info: ImageInfo, wanted: Size) -> ImageFile.ImageFile:
    """The picture with its pixels, not yet turned (a TIFF is, by Pillow); a JPEG at the smallest scale above `wanted`.

    Raises any of CLIENT_FAULTS, also where the pixels are of another size than the header said.
    """
    picture = opened(file, info)
    if info.format is ImageFormat.JPEG:
        turned = wanted if info.size == info.stored else wanted.transposed
        picture.draft(None, (max(turned.width, 1), max(turned.height, 1)))
        picture.load()
    else:
        picture.load()
        _check_size(picture, info.size if is_turned_by_decoder(info) else info.stored)
    return picture


def opened(file: bytes, info: ImageInfo) -> ImageFile.ImageFile:
    """The picture with its header read, which says what the probe's said. Raises any of CLIENT_FAULTS."""
    picture = open_picture(_source(file, info.format), info.format)
    # Before memory is taken for the pixels: a second PNG header, for one, would count in Pillow and not in the probe.
    _check_size(picture, info.stored, info.size)
    return picture


class _Unended(BytesIO):
    """A JPEG's file up to its end marker, and a few bytes more, which the decoder looks at but does not need.

    At the marker the decoder would paint grey what is missing and only warn, which Pillow does not tell. Where the file
    just ends, it asks for more, and Pillow says that the file is truncated. All but the last few blocks must be there.
    """

    def __init__(self, file: bytes, end: int) -> None:
        super().__init__(file)
        self._end = end
        self._more = bytes(_LOOKAHEAD_BYTES)

    def read(self, size: int | None = -1, /) -> bytes:
        left = self._end - self.tell()
        if left > 0:
            return super().read(left if size is None else min(size, left))
        more, self._more = self._more, b""
        return more


def _source(file: bytes, image_format: ImageFormat) -> bytes | BytesIO:
    end = end_of_only_scan(file) if image_format is ImageFormat.JPEG else None
    return file if end is None else _Unended(file, end)


def is_turned_by_decoder(info: ImageInfo) -> bool:
    return info.format is ImageFormat.TIFF


def _check_size(picture: ImageFile.ImageFile, *expected: Size) -> None:
    if Size(*picture.size) not in expected:
        raise ValueError(f"the header says {expected[0]}, the pixels are {Size(*picture.size)}")
