"""How large an image may be, and how many bytes of memory its decoding takes.

The bytes a pixel were measured with Pillow 13 on 12 MP pictures (peak resident memory of one decode, rounded up).
"""

from dataclasses import dataclass

from gateway.domain.geometry import Size
from gateway.domain.image import ImageFormat, ImageInfo, Why

# Decoding alone, for each stored pixel. JPEG counts pixels after scaled decoding. WebP holds a canvas, its predecessor
# and the picture; AVIF the planes and the picture. ICO and TIFF: what decoders keep in between is not bounded tighter.
DECODE_BYTES_PER_PIXEL = {
    ImageFormat.JPEG: 4.5,
    ImageFormat.PNG: 4.5,
    ImageFormat.WEBP: 17.5,
    ImageFormat.GIF: 4.5,
    ImageFormat.BMP: 4.5,
    ImageFormat.TIFF: 8.5,
    ImageFormat.AVIF: 10.5,
    ImageFormat.HEIC: 10.5,
    ImageFormat.ICO: 8.5,
}
# Coefficients of progressive JPEG stay for every stored pixel, at whatever scale it is decoded (4:4:4: 3 x 2 bytes).
PROGRESSIVE_BYTES_PER_PIXEL = 6.5
_CONVERSION_BYTES_PER_PIXEL = 5.0  # a second picture and a mask, while the first is still there
_JPEG_ENCODER_BYTES_PER_PIXEL = 1.0
_WEBP_ENCODER_BYTES_PER_PIXEL = 21.0
_MAX_FIXED_BYTES = 8 << 20
_FIXED_BYTES_PER_PIXEL = 16
_CONVERTING = frozenset({Why.ALPHA, Why.MODE, Why.ORIENTATION})
_MAX_DRAFT_SCALE = 8

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
    all others; both at most what `decode_bytes` (the whole decode budget) can hold. `max_aspect_ratio` is inclusive.
    """

    max_bytes: int = 20 << 20
    max_pixels: int = 50_000_000
    max_scaled_jpeg_pixels: int = 100_000_000
    decode_bytes: int = 1 << 30
    max_aspect_ratio: float = 200.0
    formats: frozenset[ImageFormat] = ACCEPTED_FORMATS

    def pixel_limit(self, image_format: ImageFormat, *, is_progressive: bool = False) -> int:
        """Most pixels that an image of this format may have."""
        is_scaled = image_format is ImageFormat.JPEG and not is_progressive
        setting = self.max_scaled_jpeg_pixels if is_scaled else self.max_pixels
        return min(setting, int(self.decode_bytes / bytes_per_pixel(image_format, is_progressive=is_progressive)))


def bytes_per_pixel(image_format: ImageFormat, *, is_progressive: bool = False) -> float:
    """Memory of decoding, for each stored pixel."""
    return DECODE_BYTES_PER_PIXEL[image_format] + PROGRESSIVE_BYTES_PER_PIXEL * is_progressive


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
    needed = info.file_bytes + decoded_pixels * DECODE_BYTES_PER_PIXEL[info.format]
    if info.is_progressive:
        needed += stored_pixels * PROGRESSIVE_BYTES_PER_PIXEL
    if target is not None:
        needed += decoded_pixels * _CONVERSION_BYTES_PER_PIXEL * bool(info.why & _CONVERTING)
        encoder = _JPEG_ENCODER_BYTES_PER_PIXEL if info.is_lossy else _WEBP_ENCODER_BYTES_PER_PIXEL
        needed += target.pixels * (DECODE_BYTES_PER_PIXEL[ImageFormat.PNG] + encoder)
    return int(needed + min(_MAX_FIXED_BYTES, _FIXED_BYTES_PER_PIXEL * stored_pixels))
