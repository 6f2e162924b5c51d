"""One image in, one plain image out: turned upright, opaque, 8-bit, one frame, of the target size, nothing behind it.

vLLM's caches are keyed by the image's bytes, so the same file and target always give the same bytes: every parameter is
fixed here and named by ENCODER_ID. Colours are brought to sRGB, for the profile stays behind.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import PIL
from PIL import Image, features

from gateway.domain.errors import Code, GatewayError
from gateway.domain.geometry import Size
from gateway.domain.image import ImageFormat, ImageInfo, Why
from gateway.imaging.colour import to_srgb
from gateway.imaging.decode import is_turned_by_decoder, load
from gateway.imaging.limits import OUTPUT_BOUND, most_output_bytes
from gateway.imaging.pillow import as_parse_error
from gateway.imaging.vips import VIPS_VERSION, shrunk

_WHITE = (255, 255, 255)
_BAND_PIXELS = 1 << 20
_JPEG_QUALITY = 90
_WORSE_QUALITIES = (75, 50, 25)  # for what would grow out of all proportion: noise, or very low quality before
_WEBP_MAX_SIDE = 16_383
_JPEG_MAX_SIDE = 65_500
_WEBP = ("WEBP", {"lossless": True, "quality": 0, "method": 0})
_PNG = ("PNG", {"compress_level": 1})
_JPEGS = (
    ("JPEG", {"quality": _JPEG_QUALITY, "subsampling": "4:4:4"}),
    *(("JPEG", {"quality": quality, "subsampling": "4:2:0"}) for quality in _WORSE_QUALITIES),
)
_REDUCING_GAP = 2.0  # shrink by whole numbers first, down to twice the target
_TRANSPOSITIONS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}

ENCODER_ID = "/".join(
    (
        f"pillow-{PIL.__version__}",
        f"libjpeg_turbo-{features.version('libjpeg_turbo')}",
        f"webp-{features.version('webp')}",
        f"zlib-{features.version('zlib')}",
        f"lcms-{features.version('littlecms2')}",
        f"jpeg-q{_JPEG_QUALITY}-444",
        "webp-lossless-m0-q0",
        "png-l1",
        f"most-{OUTPUT_BOUND}",
        "bicubic-gap2",
        f"vips-{VIPS_VERSION}",
    )
)


@dataclass(frozen=True, slots=True)
class Rendered:
    """A new image file and all reasons for making it."""

    file: bytes
    media_type: str
    why: frozenset[Why]


def render(file: bytes, info: ImageInfo, target: Size) -> Rendered:
    """Normalises and resizes in one decode. `target` is the size after orientation.

    Its file is at most `most_output_bytes` long. Raises GatewayError IMAGE_PARSE_ERROR, IMAGE_TOO_LARGE.
    """
    with as_parse_error(f"The {info.format} cannot be decoded"):
        picture = shrunk(file, info, _unturned(info, target)) or load(file, info, target)
        picture = _in_srgb(picture, info, target)
    picture.info = {}  # comments and profiles would travel along into the new file
    encoded, media_type = _encoded(
        picture, is_lossy=info.is_lossy, most_bytes=most_output_bytes(info.file_bytes, target)
    )
    return Rendered(encoded, media_type, info.why | _resize_reason(info.size, target))


def _in_srgb(picture: Image.Image, info: ImageInfo, target: Size) -> Image.Image:
    """Upright and of the target size. Ink is no colour without its profile; all else has fewer pixels afterwards."""
    profile = picture.info.get("icc_profile")
    if picture.mode == "CMYK":
        picture, profile = to_srgb(picture, profile), None
    # One after the other, so that no more than two of them are there at once.
    picture = _flattened(picture)
    picture = _turned_to(picture, info, target)
    return to_srgb(picture, profile)


def _resize_reason(size: Size, target: Size) -> frozenset[Why]:
    if size == target:
        return frozenset()
    return frozenset({Why.TOO_SMALL if target.pixels > size.pixels else Why.RESIZE})


def _flattened(picture: Image.Image) -> Image.Image:
    """8-bit grey or RGB, over white where it was transparent (vLLM's `convert_image_mode`).

    Band by band, because Pillow's conversions keep all other threads waiting: a quarter of a second for a large RGBA.
    """
    if picture.mode in {"L", "RGB"} and not picture.has_transparency_data:
        return picture
    width, height = picture.size
    rows = max(1, _BAND_PIXELS // width)
    boxes = [(0, top, width, min(top + rows, height)) for top in range(0, height, rows)]
    bands = ((box, _flattened_band(picture.crop(box))) for box in boxes)
    first_box, first = next(bands)
    canvas = Image.new(first.mode, picture.size, None)  # every pixel comes from a band
    canvas.paste(first, first_box)
    for box, band in bands:
        canvas.paste(band, box)
    return canvas


def _flattened_band(picture: Image.Image) -> Image.Image:
    plain = _high_bytes(picture) if picture.mode.startswith("I;16") else picture
    if plain.has_transparency_data:
        return _over_white(plain)
    if plain.mode == "1":
        return plain.convert("L")
    return plain if plain.mode in {"L", "RGB"} else plain.convert("RGB")


def _high_bytes(picture: Image.Image) -> Image.Image:
    """Sixteen bits scaled to eight; Pillow's own conversion would clip at 255."""
    grey = picture.convert("I").point(lambda value: value * (1 / 256)).convert("L")
    transparent = picture.info.get("transparency")
    grey.info = {} if transparent is None else {"transparency": transparent >> 8}
    return grey


def _over_white(picture: Image.Image) -> Image.Image:
    rgba = picture if picture.mode == "RGBA" else picture.convert("RGBA")
    canvas = Image.new("RGB", rgba.size, _WHITE)
    canvas.paste(rgba, mask=rgba.getchannel("A"))
    return canvas


def _turned_to(picture: Image.Image, info: ImageInfo, target: Size) -> Image.Image:
    """Resized, then turned: fewer pixels to turn."""
    size = _unturned(info, target)
    if picture.size != (size.width, size.height):
        gap = None if info.format is ImageFormat.JPEG else _REDUCING_GAP
        picture = picture.resize((size.width, size.height), Image.Resampling.BICUBIC, reducing_gap=gap)
    transposition = _transposition(info)
    return picture if transposition is None else picture.transpose(transposition)


def _transposition(info: ImageInfo) -> Image.Transpose | None:
    return None if is_turned_by_decoder(info) else _TRANSPOSITIONS.get(info.orientation)


def _unturned(info: ImageInfo, target: Size) -> Size:
    """The target's size as the file lies."""
    swaps = _transposition(info) is not None and info.size != info.stored
    return target.transposed if swaps else target


def _encoded(picture: Image.Image, *, is_lossy: bool, most_bytes: int) -> tuple[bytes, str]:
    """In the first way that stays within `most_bytes`. Raises GatewayError IMAGE_TOO_LARGE where none does."""
    for kind, options in _ways(max(picture.size), is_lossy=is_lossy):
        out = BytesIO()
        picture.save(out, kind, **options)
        if out.tell() <= most_bytes:
            return out.getvalue(), f"image/{kind.lower()}"
    raise GatewayError(
        Code.IMAGE_TOO_LARGE,
        f"The image would have to be encoded anew and would then have over {most_bytes} bytes. "
        "Send it as JPEG or lossless WebP, upright, opaque and of the size that the model sees.",
    )


def _ways(longest_side: int, *, is_lossy: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """JPEG for what was lossy; lossless WebP for the rest, PNG where a side is too long for WebP. Then worse JPEG.

    The last one is below four bits a pixel whatever the picture is.
    """
    may_be_jpeg = longest_side <= _JPEG_MAX_SIDE
    if not (is_lossy and may_be_jpeg):
        yield _WEBP if longest_side <= _WEBP_MAX_SIDE else _PNG
    if may_be_jpeg:
        yield from _JPEGS
