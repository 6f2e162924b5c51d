"""Large PNG and WebP at a reduced size by libvips, where the extra `vips` is installed: a third of Pillow's CPU.

It never holds the whole picture, and reads a WebP at a reduced scale. What it cannot read is left to Pillow, whose
words clients know; so what is refused is the same with it and without it.
"""

import importlib
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from PIL import Image

from gateway.domain.geometry import Size
from gateway.domain.image import ImageFormat, ImageInfo, Why

_FORMATS = frozenset({ImageFormat.PNG, ImageFormat.WEBP})
_CONVERTED_BY_PILLOW = frozenset({Why.MODE, Why.FRAMES})  # deep, indexed and moving pictures
_WHITE = (255, 255, 255)
_MODES = {1: "L", 3: "RGB"}


def _installed() -> str | None:
    try:
        return version("pyvips-binary")
    except PackageNotFoundError:
        return None


VIPS_VERSION = _installed()


@cache
def _library() -> Any:
    """Loaded by the first picture in a worker: the gateway itself has no use for it."""
    vips = importlib.import_module("pyvips")
    vips.cache_set_max(0)  # no picture comes twice
    return vips


def shrunk(file: bytes, info: ImageInfo, size: Size) -> Image.Image | None:
    """The picture, opaque, not yet turned, of `size`; its colour profile is with it.

    None: it is for Pillow to do.
    """
    if VIPS_VERSION is None or not _is_suited(info, size):
        return None
    vips = _library()
    try:
        found = vips.Image.thumbnail_buffer(
            file, size.width, height=size.height, size="force", no_rotate=True, fail_on="error", linear=False
        )
        if found.hasalpha():
            found = found.flatten(background=_WHITE)
        mode = _MODES.get(found.bands)
        if found.format != "uchar" or mode is None:
            return None
        pixels = found.write_to_memory()
        profile = found.get("icc-profile-data") if "icc-profile-data" in found.get_fields() else None
    except vips.Error:
        return None
    picture = Image.frombuffer(mode, (size.width, size.height), pixels, "raw", mode, 0, 1)
    if profile is not None:
        picture.info["icc_profile"] = profile
    return picture


def _is_suited(info: ImageInfo, size: Size) -> bool:
    """It shrinks in both directions, and nothing is to be converted that the libraries convert differently."""
    shrinks = size.width < info.stored.width and size.height < info.stored.height
    return shrinks and info.format in _FORMATS and not info.why & _CONVERTED_BY_PILLOW
