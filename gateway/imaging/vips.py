"""PNG and WebP at a reduced size by libvips, where the extra `vips` is installed: a third of Pillow's CPU.

It never holds the whole picture, and reads a WebP at a reduced scale. Pillow opens the file first, so that it is
refused for what Pillow refuses in a header; of a PNG libvips gets the pixels alone, for it would inflate texts and
profiles of any size. What it does not read as Pillow does is left to Pillow, whose words clients know.
"""

import importlib
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from PIL import Image

from gateway.domain.geometry import Size
from gateway.domain.image import ImageFormat, ImageInfo, Why
from gateway.imaging.decode import opened
from gateway.imaging.header.base import ShortHeaderError, Steps, TooManyStepsError
from gateway.imaging.header.png_pixels import pixel_chunks
from gateway.imaging.header.webp import is_as_it_says

_DISTRIBUTION = "pyvips-binary"
_CONVERTED_BY_PILLOW = frozenset({Why.MODE, Why.FRAMES})  # deep, indexed and moving pictures
_WHITE = (255, 255, 255)
_MODES = {1: "L", 3: "RGB"}
_FINER = 2.0  # than it is to be: what libwebp leaves out while it decodes is not seen then


def _installed() -> str | None:
    try:
        return version(_DISTRIBUTION)
    except PackageNotFoundError:
        return None


VIPS_VERSION = _installed()


@cache
def _library() -> Any:
    """Loaded by the first picture in a worker, for the gateway itself has no use for it; None where it cannot be."""
    try:
        vips = importlib.import_module("pyvips")
    except (ImportError, OSError):
        return None
    vips.cache_set_max(0)  # no picture comes twice
    return vips


def shrunk(file: bytes, info: ImageInfo, size: Size) -> Image.Image | None:
    """The picture, opaque, not yet turned, of `size`; its colour profile is with it. None: it is for Pillow to do.

    Raises any of CLIENT_FAULTS for what Pillow refuses before it comes to the pixels.
    """
    if VIPS_VERSION is None or not _is_suited(info, size):
        return None
    profile = opened(file, info).info.get("icc_profile")
    plain = pixel_chunks(file) if info.format is ImageFormat.PNG else _plain_webp(file)
    picture = None if plain is None else _shrunk(plain, info, size)
    if picture is not None and profile is not None:
        picture.info["icc_profile"] = profile
    return picture


def _plain_webp(file: bytes) -> bytes | None:
    try:
        return file if is_as_it_says(file, Steps()) else None
    except (ShortHeaderError, TooManyStepsError):
        return None


def _shrunk(file: bytes, info: ImageInfo, size: Size) -> Image.Image | None:
    vips = _library()
    if vips is None:
        return None
    has_alpha = Why.ALPHA in info.why
    try:
        found = _loaded(vips, file, info, size).thumbnail_image(
            size.width, height=size.height, size="force", no_rotate=True, linear=False
        )
        if bool(found.hasalpha()) != has_alpha:
            return None
        if has_alpha:
            found = found.flatten(background=_WHITE)
        pixels = found.write_to_memory()
    except vips.Error:
        return None
    mode = _MODES[found.bands]
    return Image.frombuffer(mode, (size.width, size.height), pixels, "raw", mode, 0, 1)


def _loaded(vips: Any, file: bytes, info: ImageInfo, size: Size) -> Any:
    """By the loader of the format: what finds it out by itself also shows half of a PNG that was cut."""
    if info.format is ImageFormat.PNG:
        return vips.Image.pngload_buffer(file, fail_on="error", access="sequential")
    share = max(size.width / info.stored.width, size.height / info.stored.height)
    return vips.Image.webpload_buffer(file, fail_on="error", access="sequential", scale=min(1.0, _FINER * share))


def _is_suited(info: ImageInfo, size: Size) -> bool:
    """It shrinks in both directions, and nothing is to be converted that the libraries convert differently."""
    shrinks = size.width < info.stored.width and size.height < info.stored.height
    is_known = info.format in {ImageFormat.PNG, ImageFormat.WEBP}
    return shrinks and is_known and not info.why & _CONVERTED_BY_PILLOW
