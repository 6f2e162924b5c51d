"""Colours as sRGB has them, where a picture says by its profile (ICC) that its numbers mean others.

Only of what is encoded anew, because the profile does not travel along. vLLM applies none, so a picture that goes on
untouched is seen by its numbers, as its sender's own server would see it.
"""

from io import BytesIO

from PIL import Image, ImageCms

_FAULTS = (ImageCms.PyCMSError, OSError, ValueError, TypeError)
_CONVERTED_MODES = frozenset({"RGB", "L", "CMYK"})


def to_srgb(picture: Image.Image, profile: bytes | None) -> Image.Image:
    """The picture, 8-bit grey, RGB or CMYK, with the colours that `profile` means; grey stays grey.

    Without a profile, with one that is damaged or of another kind of picture, and with sRGB's own, it stays as it is.
    """
    if not profile or picture.mode not in _CONVERTED_MODES:
        return picture
    try:
        meant = ImageCms.ImageCmsProfile(BytesIO(profile))
        if "srgb" in ImageCms.getProfileDescription(meant).lower():
            return picture
        converted = ImageCms.profileToProfile(picture, meant, ImageCms.createProfile("sRGB"), outputMode="RGB")
    except _FAULTS:
        return picture
    assert converted is not None, "it is made anew, not in place"
    return converted.convert("L") if picture.mode == "L" else converted
