"""How large an image may be, how many bytes of memory its decoding takes, and how large it may become.

The bytes a pixel were measured with Pillow 13 on 12 MP pictures (peak resident memory of one decode, rounded up).
"""

import math
from dataclasses import dataclass

from gateway.domain.geometry import Size
from gateway.domain.image import ImageFormat, ImageInfo, Why
from gateway.imaging.header.tiff import MAX_VALUES, VALUE_BYTES

# Decoding alone, for each stored pixel. JPEG counts pixels after scaled decoding. WebP holds a canvas, its predecessor
# and the picture; AVIF the planes and the picture; ICO what its decoder keeps in between is not bounded tighter. With
# TIFF a strip or tile comes on top (`ImageInfo.extra_bytes`).
DECODE_BYTES_PER_PIXEL = {
    ImageFormat.JPEG: 4.5,
    ImageFormat.PNG: 4.5,
    ImageFormat.WEBP: 17.5,
    ImageFormat.GIF: 4.5,
    ImageFormat.BMP: 4.5,
    ImageFormat.TIFF: 4.5,
    ImageFormat.AVIF: 10.5,
    ImageFormat.HEIC: 10.5,
    ImageFormat.ICO: 8.5,
}
# Coefficients of progressive JPEG stay for every stored pixel, at whatever scale it is decoded (4:4:4: 3 x 2 bytes).
PROGRESSIVE_BYTES_PER_PIXEL = 6.5
_CONVERSION_BYTES_PER_PIXEL = 5.0  # a second picture and a mask, while the first is still there
_CONVERTED_BYTES_PER_PIXEL = 5.0  # the second picture alone
_HELD_BYTES_PER_PIXEL = {ImageFormat.WEBP: 13.0}  # what stays of decoding beside the encoder, where it is less
_JPEG_ENCODER_BYTES_PER_PIXEL = 1.0
_WEBP_ENCODER_BYTES_PER_PIXEL = 21.0
_WEBP_TABLES_BYTES = 5700
_WEBP_PIXELS_PER_TABLES = 16
_WEBP_FILE_BYTES_PER_TABLES = 3
_MAX_WEBP_TABLES = 1 << 16
_MAX_FIXED_BYTES = 8 << 20
_FIXED_BYTES_PER_PIXEL = 16
_CONVERTING = frozenset({Why.ALPHA, Why.MODE, Why.ORIENTATION})
_MAX_DRAFT_SCALE = 8
_ALWAYS_LOSSY = frozenset({ImageFormat.JPEG, ImageFormat.AVIF, ImageFormat.HEIC})
# A whole file, a copy while it is read further, and the pieces of an AVIF put together.
_LOOKED_AT_COPIES = 3
_LOOKING_BYTES = 64 << 10
_ICON_BYTES = 9 << 20  # opening an icon decodes its largest picture
_TIFF_COPIES = 100  # opening a TIFF makes objects of the numbers in its directory
_MAX_TIFF_BYTES = MAX_VALUES * VALUE_BYTES
_OUTPUT_PER_FILE = 2
_OUTPUT_BITS_PER_PIXEL = 4
_OUTPUT_HEADER_BYTES = 2048
OUTPUT_BOUND = f"{_OUTPUT_PER_FILE}x-{_OUTPUT_BITS_PER_PIXEL}bpp"  # part of what names the encoder

ACCEPTED_FORMATS = frozenset(
    {
        ImageFormat.JPEG,
        ImageFormat.PNG,
        ImageFormat.WEBP,
        ImageFormat.GIF,
        ImageFormat.BMP,
        ImageFormat.TIFF,
        ImageFormat.AVIF,
    }
)


@dataclass(frozen=True, slots=True)
class ImageLimits:
    """What is let in. `max_scaled_jpeg_pixels` holds for JPEG that can be decoded at a reduced scale, `max_pixels` for
    all others; both at most what `decode_bytes` (the whole decode budget) can hold at worst. `max_aspect_ratio` is
    inclusive.
    """

    max_bytes: int = 20 << 20
    max_pixels: int = 50_000_000
    max_scaled_jpeg_pixels: int = 100_000_000
    decode_bytes: int = 2 << 30
    max_aspect_ratio: float = 200.0
    formats: frozenset[ImageFormat] = ACCEPTED_FORMATS

    def pixel_limit(self, image_format: ImageFormat, *, is_progressive: bool = False) -> int:
        """Most pixels that any image of this format may have, the bytes of its file left out of account."""
        setting = self.pixel_setting(image_format, is_progressive=is_progressive)
        per_pixel = _worst_bytes_per_pixel(image_format, is_progressive=is_progressive)
        of_small = self.decode_bytes / (per_pixel + _FIXED_BYTES_PER_PIXEL)
        of_large = (self.decode_bytes - _MAX_FIXED_BYTES) / per_pixel
        return min(setting, int(max(of_small, of_large)))

    def pixel_setting(self, image_format: ImageFormat, *, is_progressive: bool) -> int:
        is_scaled = image_format is ImageFormat.JPEG and not is_progressive
        return self.max_scaled_jpeg_pixels if is_scaled else self.max_pixels


def bytes_for_pixels(
    pixels: int, image_format: ImageFormat, *, is_progressive: bool = False, is_lossy: bool = False
) -> int:
    """Peak memory of one decode at worst, the file left out: converted, and encoded at its own size."""
    per_pixel = _worst_bytes_per_pixel(image_format, is_progressive=is_progressive, is_lossy=is_lossy)
    return math.ceil(pixels * per_pixel + min(_MAX_FIXED_BYTES, _FIXED_BYTES_PER_PIXEL * pixels))


def worst_job_bytes(info: ImageInfo) -> int:
    """What no `job_bytes` of this image exceeds, whatever its whole file shows, for targets up to its own size.

    `webp_table_bytes` come on top: true files need a hundredth of them, so they refuse nobody.
    """
    for_pixels = bytes_for_pixels(
        info.stored.pixels, info.format, is_progressive=info.is_progressive, is_lossy=info.is_lossy
    )
    return info.file_bytes + info.extra_bytes + for_pixels


def look_bytes(image_format: ImageFormat | None, file_bytes: int) -> int:
    """Peak memory of looking at a whole file without decoding its pixels."""
    opening_bytes = 0
    if image_format is ImageFormat.ICO:
        opening_bytes = _ICON_BYTES
    elif image_format is ImageFormat.TIFF:
        opening_bytes = min(_TIFF_COPIES * file_bytes, _MAX_TIFF_BYTES)
    return _LOOKED_AT_COPIES * file_bytes + _LOOKING_BYTES + opening_bytes


def border_bytes(file_bytes: int) -> int:
    """What a file takes beside its job while it crosses to another process: its base64 in memory that both can read,
    and once more where it is decoded.
    """
    return 2 * ((file_bytes + 2) // 3 * 4)


def most_output_bytes(file_bytes: int, target: Size) -> int:
    """Size that no image is larger than after it was encoded anew: twice its file, or four bits a pixel.

    Photographs stay far below it. Without a bound, one that was stored at low quality would grow tenfold.
    """
    return max(_OUTPUT_PER_FILE * file_bytes, target.pixels * _OUTPUT_BITS_PER_PIXEL // 8) + _OUTPUT_HEADER_BYTES


def draft_scale(stored: Size, wanted: Size) -> int:
    """By how much a JPEG is scaled down while it is decoded: the largest of 8, 4, 2, 1 that stays above `wanted`."""
    ratio = min(stored.width // max(wanted.width, 1), stored.height // max(wanted.height, 1))
    return next((scale for scale in (_MAX_DRAFT_SCALE, 4, 2) if scale <= ratio), 1)


def job_bytes(info: ImageInfo, target: Size | None) -> int:
    """Peak memory of one decode, in bytes. `target` None: pixels are only looked at.

    A JPEG is then decoded at an eighth, and the file itself is counted in each case.
    """
    stored_pixels = info.stored.pixels
    decoded_pixels = float(stored_pixels)
    if info.format is ImageFormat.JPEG:
        scale = _MAX_DRAFT_SCALE if target is None else draft_scale(info.size, target)
        decoded_pixels /= scale**2
    needed = decoded_pixels * DECODE_BYTES_PER_PIXEL[info.format]
    if target is not None:
        is_converted = bool(info.why & _CONVERTING)
        needed = max(
            needed + decoded_pixels * _CONVERSION_BYTES_PER_PIXEL * is_converted,
            decoded_pixels * _held_bytes_per_pixel(info.format, is_converted=is_converted)
            + target.pixels * _encoder_bytes_per_pixel(is_lossy=info.is_lossy),
        )
    needed += info.extra_bytes + webp_table_bytes(info)
    if info.is_progressive:
        needed += stored_pixels * PROGRESSIVE_BYTES_PER_PIXEL
    return int(info.file_bytes + needed + min(_MAX_FIXED_BYTES, _FIXED_BYTES_PER_PIXEL * stored_pixels))


def webp_table_bytes(info: ImageInfo) -> int:
    """Code tables of a lossless WebP, or of lossless alpha: a set for each block of 4x4 pixels at worst.

    How many there are stands behind compressed data, so only the decoder knows. The smallest set takes three bytes of
    the file; sets that are made as large as can be would take three times as much.
    """
    if info.format is not ImageFormat.WEBP or (info.is_lossy and Why.ALPHA not in info.why):
        return 0
    by_size = info.stored.pixels // _WEBP_PIXELS_PER_TABLES, info.file_bytes // _WEBP_FILE_BYTES_PER_TABLES
    return min(_MAX_WEBP_TABLES, *by_size) * _WEBP_TABLES_BYTES


def _held_bytes_per_pixel(image_format: ImageFormat, *, is_converted: bool) -> float:
    if is_converted:
        return _CONVERTED_BYTES_PER_PIXEL
    return _HELD_BYTES_PER_PIXEL.get(image_format, DECODE_BYTES_PER_PIXEL[image_format])


def _encoder_bytes_per_pixel(*, is_lossy: bool) -> float:
    """With the picture that is encoded, for each of its pixels."""
    encoder = _JPEG_ENCODER_BYTES_PER_PIXEL if is_lossy else _WEBP_ENCODER_BYTES_PER_PIXEL
    return DECODE_BYTES_PER_PIXEL[ImageFormat.PNG] + encoder


def _worst_bytes_per_pixel(image_format: ImageFormat, *, is_progressive: bool, is_lossy: bool = False) -> float:
    """Decoded at its own scale, perhaps converted, and encoded at its own size."""
    held = max(_held_bytes_per_pixel(image_format, is_converted=flag) for flag in (False, True))
    at_most = max(
        DECODE_BYTES_PER_PIXEL[image_format] + _CONVERSION_BYTES_PER_PIXEL,
        held + _encoder_bytes_per_pixel(is_lossy=is_lossy or image_format in _ALWAYS_LOSSY),
    )
    return at_most + PROGRESSIVE_BYTES_PER_PIXEL * is_progressive
