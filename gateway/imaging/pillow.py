"""Pillow as this process uses it. Nothing else in the gateway opens a picture or changes Pillow's settings.

Settings are process-wide and take effect when this module is imported. `Image.open` is always told the one format that
the file's first bytes name, so no other decoder ever sees a client's bytes.
"""

import struct
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO

from PIL import (
    AvifImagePlugin,
    BmpImagePlugin,
    GifImagePlugin,
    IcoImagePlugin,
    Image,
    ImageFile,
    JpegImagePlugin,
    PngImagePlugin,
    TiffImagePlugin,
    UnidentifiedImageError,
    WebPImagePlugin,
)

from gateway.domain.errors import Code, GatewayError
from gateway.domain.image import ImageFormat

# Imported so that they are registered now, and not by the first picture in some thread.
_PLUGINS: dict[ImageFormat, type[ImageFile.ImageFile]] = {
    ImageFormat.JPEG: JpegImagePlugin.JpegImageFile,
    ImageFormat.PNG: PngImagePlugin.PngImageFile,
    ImageFormat.WEBP: WebPImagePlugin.WebPImageFile,
    ImageFormat.GIF: GifImagePlugin.GifImageFile,
    ImageFormat.BMP: BmpImagePlugin.BmpImageFile,
    ImageFormat.TIFF: TiffImagePlugin.TiffImageFile,
    ImageFormat.AVIF: AvifImagePlugin.AvifImageFile,
    ImageFormat.ICO: IcoImagePlugin.IcoImageFile,
}

try:
    import pillow_heif
except ImportError:  # the extra `heic`: its libraries have licences of their own
    pass
else:
    pillow_heif.register_heif_opener(thumbnails=False, depth_images=False, aux_images=False, decode_threads=1)
    _PLUGINS[ImageFormat.HEIC] = pillow_heif.HeifImageFile

DECODABLE = frozenset(_PLUGINS)

Image.MAX_IMAGE_PIXELS = None  # ImageLimits decides, from the header, before a decoder runs
ImageFile.LOAD_TRUNCATED_IMAGES = False  # half a picture is the client's error, not a grey rectangle
PngImagePlugin.MAX_TEXT_CHUNK = 1 << 20  # inflated bytes of one text chunk or colour profile
PngImagePlugin.MAX_TEXT_MEMORY = 8 << 20  # inflated bytes of all text chunks
AvifImagePlugin.DEFAULT_MAX_THREADS = 1  # the workers are as many as the cores already
# What Pillow warns of (corrupt EXIF, odd palettes) it also tolerates; vLLM shows such pictures, so they pass here too.
warnings.filterwarnings("ignore", module=r"PIL\.")

# All that Pillow and its codecs were seen to raise on damaged files. Its parsers trust the file, so even an assertion
# or an overflow there says that the file is broken. MemoryError: a size field that lies, as true sizes are limited.
CLIENT_FAULTS: tuple[type[Exception], ...] = (
    OSError,
    ValueError,
    TypeError,
    SyntaxError,
    RuntimeError,
    LookupError,
    AttributeError,
    AssertionError,
    ArithmeticError,
    EOFError,
    MemoryError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
)

_MAX_REASON_CHARACTERS = 160


def open_picture(file: bytes | BytesIO, image_format: ImageFormat) -> ImageFile.ImageFile:
    """The picture with its header read and its pixels not yet. Raises any of CLIENT_FAULTS."""
    return Image.open(
        file if isinstance(file, BytesIO) else BytesIO(file), formats=[str(_PLUGINS[image_format].format)]
    )


@contextmanager
def as_parse_error(what: str) -> Iterator[None]:
    """Turns what Pillow raises on a damaged file into IMAGE_PARSE_ERROR: `what`, then the decoder's own words."""
    try:
        yield
    except UnidentifiedImageError as fault:  # its words name an object of this process
        raise GatewayError(Code.IMAGE_PARSE_ERROR, f"{what}: its header is damaged.") from fault
    except CLIENT_FAULTS as fault:
        reason = str(fault)[:_MAX_REASON_CHARACTERS] or type(fault).__name__
        raise GatewayError(Code.IMAGE_PARSE_ERROR, f"{what}: {reason}.") from fault
