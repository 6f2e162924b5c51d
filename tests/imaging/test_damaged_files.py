"""Random damage: whatever the bytes, a picture comes out or a 400. Seeded, so a failure repeats."""

import random

import pybase64
import pytest

from gateway.domain.errors import GatewayError
from gateway.domain.geometry import Size
from gateway.domain.image import ImageFormat
from gateway.imaging.body import late_reasons
from gateway.imaging.decode import verify
from gateway.imaging.limits import ACCEPTED_FORMATS, ImageLimits
from gateway.imaging.probe import probe
from gateway.imaging.render import render
from gateway.wire.encoded_file import EncodedFile
from tests.support.pictures import encoded, picture

LIMITS = ImageLimits(
    max_pixels=1_000_000, max_scaled_jpeg_pixels=1_000_000, formats=ACCEPTED_FORMATS | {ImageFormat.ICO}
)
XMP = b'<x tiff:Orientation="6"/>'
SOURCES = {
    "jpeg": encoded(picture(60, 40), "JPEG", orientation=6),
    "progressive": encoded(picture(60, 40), "JPEG", progressive=True, icc_profile=b"p" * 3000),
    "cmyk": encoded(picture(40, 30).convert("CMYK"), "JPEG"),
    "png": encoded(picture(60, 40), orientation=3),
    "palette": encoded(picture(60, 40).quantize(16), transparency=3),
    "deep": encoded(picture(60, 40, mode="I;16")),
    "apng": encoded(picture(40, 30), save_all=True, append_images=[picture(40, 30, seed=1)]),
    "webp": encoded(picture(60, 40), "WEBP", orientation=6, xmp=XMP),
    "lossless": encoded(picture(60, 40, mode="RGBA"), "WEBP", lossless=True),
    "animation": encoded(picture(40, 30), "WEBP", save_all=True, append_images=[picture(40, 30, seed=1)]),
    "gif": encoded(picture(60, 40), "GIF", save_all=True, append_images=[picture(60, 40, seed=1)], loop=0),
    "bmp": encoded(picture(40, 30), "BMP"),
    "tiff": encoded(picture(40, 30), "TIFF", compression="tiff_lzw", orientation=8),
    "avif": encoded(picture(60, 40), "AVIF", orientation=6),
    "ico": encoded(picture(48, 48), "ICO", sizes=[(16, 16), (48, 48)]),
}
ROUNDS = 26


def damaged(file: bytes, chance: random.Random) -> bytes:
    data = bytearray(file)
    match chance.randrange(5):
        case 0:
            del data[chance.randrange(len(data)) :]
        case 1:
            start = chance.randrange(len(data))
            del data[start : start + chance.randrange(1, 40)]
        case 2:
            start = chance.randrange(len(data))
            data[start:start] = chance.randbytes(chance.randrange(1, 40))
        case 3:  # headers are where parsers live
            for _ in range(3):
                data[chance.randrange(min(len(data), 200))] = chance.randrange(256)
        case _:
            for _ in range(chance.randrange(1, 20)):
                data[chance.randrange(len(data))] = chance.choice([0, 0x7F, 0x80, 0xFF, chance.randrange(256)])
    return bytes(data)


def shown(file: bytes) -> bytes:
    """The file that the model would get."""
    info = probe(EncodedFile(pybase64.b64encode(file)), LIMITS, "image")
    late_reasons(file, info)
    verify(file, info)
    return render(file, info, Size(28, 28)).file


def status_of(file: bytes) -> int:
    try:
        out = shown(file)
    except GatewayError as error:
        return error.status
    assert probe(EncodedFile(pybase64.b64encode(out)), LIMITS, "image").size == Size(28, 28)
    return 200


@pytest.mark.parametrize("name", SOURCES)
def test_damage_is_refused_or_survived(name):
    chance = random.Random(name)
    statuses = {status_of(damaged(SOURCES[name], chance)) for _ in range(ROUNDS)}

    assert status_of(SOURCES[name]) == 200
    assert 400 in statuses <= {200, 400}
