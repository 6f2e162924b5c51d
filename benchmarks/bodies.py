"""The requests that are sent, made on the spot from a fixed seed: nothing here changes from run to run.

Pictures are real JPEGs of the stated size, in the share of noise of a detailed photograph, because a proxy that checks
pixels must find pixels. Each carries a comment that lands in the base64 as sixteen zeros; the load generator numbers
the copies there, so that no cache keyed by content answers for the work.
"""

import base64
import io
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

from PIL import Image

from benchmarks.loader import UNIQUE_MARK

TEXT = "Explain in a few sentences why a proxy in front of an inference server should bound its queue. " * 6
MIB = 1 << 20
# The largest picture that the default limits of the gateway let in is 20 MB; its base64 makes a body of 26.7 MB.
LARGEST_PICTURE_BYTES = 20_000_000
TILE_SIDE = 512
SMALL_PICTURE_BYTES = 250_000
# Above this a picture gets more bytes, not more pixels: beyond some 12 megapixels the gateway would make it smaller,
# which no other peer does.
MOST_BYTES_AT_85 = 4_000_000
_MARK_BYTES = base64.b64decode(UNIQUE_MARK)


@cache
def _tile() -> Image.Image:
    """Colour gradients under grain, to be laid side by side: JPEG does not gain from the repetition."""
    side = (TILE_SIDE, TILE_SIDE)
    ramp, disc = Image.linear_gradient("L").resize(side), Image.radial_gradient("L").resize(side)
    bands = (ramp, disc, ramp.transpose(Image.Transpose.FLIP_TOP_BOTTOM))
    return Image.merge("RGB", [Image.blend(band, Image.effect_noise(side, 60), 0.5) for band in bands])


def _picture(width: int, comment: bytes, quality: int) -> bytes:
    """A JPEG of 4:3 with `comment` before its pixels."""
    canvas = Image.new("RGB", (width, width * 3 // 4))
    for left in range(0, canvas.width, TILE_SIDE):
        for top in range(0, canvas.height, TILE_SIDE):
            canvas.paste(_tile(), (left, top))
    file = io.BytesIO()
    canvas.save(file, "JPEG", quality=quality, subsampling=0 if quality == 100 else 2, comment=comment)
    return file.getvalue()


def jpeg(about_bytes: int) -> bytes:
    """A JPEG of a little less than `about_bytes`, with the mark where base64 shows it."""
    quality = 85 if about_bytes <= MOST_BYTES_AT_85 else 100
    bytes_per_pixel = len(_picture(2 * TILE_SIDE, b"", quality)) / (2 * TILE_SIDE) ** 2 / 0.75
    width = int((0.98 * about_bytes / bytes_per_pixel / 0.75) ** 0.5)
    for shift in range(3):  # base64 shows the mark only where it starts at a multiple of three
        picture = _picture(width, b"n" * shift + _MARK_BYTES + b"n", quality)
        if UNIQUE_MARK in base64.b64encode(picture[:1024]):
            return picture
    raise AssertionError("one of three neighbouring places is a multiple of three")


def padded_jpeg(about_bytes: int) -> bytes:
    """Few pixels and many bytes: comments fill the file up before the scan. Any decoder reads it."""
    picture = jpeg(SMALL_PICTURE_BYTES)
    scan = picture.index(b"\xff\xda")
    segment = b"\xff\xfe\xff\xff" + b"n" * (0xFFFF - 2)
    return picture[:scan] + segment * ((about_bytes - len(picture)) // len(segment)) + picture[scan:]


def text_request(**fields: object) -> bytes:
    """0.8 KB of chat; `fields` steer the stub."""
    messages = [{"role": "system", "content": "You are a careful assistant."}, {"role": "user", "content": TEXT}]
    return _json({"model": "m", "messages": messages, "temperature": 0.7, "max_tokens": 64, **fields})


def image_request(picture: bytes, **fields: object) -> bytes:
    """One JPEG as a data URL."""
    url = "data:image/jpeg;base64," + base64.b64encode(picture).decode()
    content = [
        {"type": "text", "text": "What is in the picture?"},
        {"type": "image_url", "image_url": {"url": url}},
    ]
    return _json({"model": "m", "messages": [{"role": "user", "content": content}], "max_tokens": 8, **fields})


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


# By name: how it is made. Pauses are `seed` in microseconds (see stub.py).
BODIES: dict[str, Callable[[], bytes]] = {
    "text": text_request,
    "stream_20ms": lambda: text_request(stream=True, max_tokens=100, seed=20_000),
    "stream_10ms": lambda: text_request(stream=True, max_tokens=200, seed=10_000),
    "image_1mb": lambda: image_request(jpeg(MIB * 3 // 4)),
    "image_5mb": lambda: image_request(jpeg(5 * MIB * 3 // 4)),
    "image_20mb": lambda: image_request(jpeg(20 * MIB * 3 // 4)),
    # Memory for bodies is measured here; what pixels take is another budget of the gateway, and nothing to its peers.
    "image_27mb_slow": lambda: image_request(padded_jpeg(LARGEST_PICTURE_BYTES), seed=1_000_000),
}


class BodyFiles:
    """Bodies as files of a folder, each made when first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, name: str) -> Path:
        path = self._folder / f"{name}.json"
        if not path.exists():
            path.write_bytes(BODIES[name]())
        return path
