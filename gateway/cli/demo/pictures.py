"""The demo's pictures, made on the spot: each seed another content, each as heavy as its kind is in real life."""

import base64
import io
import random
from dataclasses import dataclass

from PIL import Image, ImageChops, ImageDraw

from gateway.domain.geometry import Size

PHOTOGRAPH = Size(4000, 3000)
SCREENSHOT = Size(2560, 1440)
_PAPER, _INK, _FRAME, _ACCENT = (250, 250, 248), (52, 56, 64), (226, 229, 234), (36, 99, 235)


@dataclass(frozen=True, slots=True)
class Picture:
    """An encoded file. `size` in pixels; `media_type` as the data URL names it."""

    name: str
    size: Size
    media_type: str
    file: bytes

    @property
    def part(self) -> dict[str, object]:
        """The content part of a chat message."""
        url = f"data:{self.media_type};base64,{base64.b64encode(self.file).decode()}"
        return {"type": "image_url", "image_url": {"url": url}}


def photograph(size: Size = PHOTOGRAPH, seed: int = 0) -> Picture:
    """A JPEG as cameras make them: soft light, edges, grain. About a quarter of a byte a pixel."""
    chance = random.Random(seed)  # noqa: S311 - a picture, no secret
    image = _soft_light(size, chance)
    draw = ImageDraw.Draw(image)
    for _ in range(40):
        x, y = chance.randrange(size.width), chance.randrange(size.height)
        width, height = (chance.randrange(side // 40, side // 5) for side in (size.width, size.height))
        shape = chance.choice((draw.ellipse, draw.rectangle))
        shape((x, y, x + width, y + height), fill=tuple(chance.randrange(256) for _ in range(3)))
    grain = Image.effect_noise((size.width // 2, size.height // 2), 16).resize(image.size, Image.Resampling.BILINEAR)
    image = ImageChops.add(image, Image.merge("RGB", (grain, grain, grain)), offset=-128)
    return Picture(f"{size.pixels / 1e6:.0f} MP photograph", size, "image/jpeg", _encoded(image, "JPEG", quality=90))


def screenshot(size: Size = SCREENSHOT, seed: int = 0) -> Picture:
    """A PNG of a window full of text: a title bar, a side bar, lines of words."""
    chance = random.Random(seed)  # noqa: S311 - a picture, no secret
    image = Image.new("RGB", (size.width, size.height), _PAPER)
    draw = ImageDraw.Draw(image)
    margin = size.width // 6
    draw.rectangle((0, 0, size.width, 36), fill=_INK)
    draw.rectangle((0, 36, margin, size.height), fill=_FRAME)
    for line in range(60, size.height - 20, 24):
        _write_line(draw, line, margin, size.width, chance)
    return Picture("screenshot", size, "image/png", _encoded(image, "PNG"))


def _soft_light(size: Size, chance: random.Random) -> Image.Image:
    cells = (8, 6)
    patches = [Image.frombytes("L", cells, chance.randbytes(cells[0] * cells[1])) for _ in range(3)]
    return Image.merge("RGB", patches).resize((size.width, size.height), Image.Resampling.BICUBIC)


def _write_line(draw: ImageDraw.ImageDraw, y: int, margin: int, width: int, chance: random.Random) -> None:
    draw.rectangle((20, y, 20 + chance.randrange(margin // 2), y + 10), fill=_ACCENT)
    x = margin + 40
    end = width - chance.randrange(40, width // 2)
    while x < end:
        letters = chance.randrange(1, 12)
        for letter in range(letters):
            height = chance.choice((8, 8, 12))
            draw.rectangle((x + 9 * letter, y + 12 - height, x + 9 * letter + 6, y + 12), outline=_INK)
        x += 9 * letters + 8


def _encoded(image: Image.Image, file_format: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, file_format, **options)
    return file.getvalue()
