"""Pictures of one colour, for asking a server what an image of a size costs."""

from io import BytesIO

from PIL import Image

from gateway.domain.geometry import Size

COLOUR_BYTES = 3


def plain_picture(size: Size, colour: bytes) -> bytes:
    """A PNG file of a few kilobytes at most; `colour` is red, green and blue."""
    red, green, blue = colour
    file = BytesIO()
    Image.new("RGB", (size.width, size.height), (red, green, blue)).save(file, "PNG")
    return file.getvalue()
