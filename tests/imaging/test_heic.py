"""The extra `heic`: photographs as telephones store them. Without it they are refused by name."""

import io
import subprocess
import sys

import numpy as np
import pillow_heif
import pybase64
import pytest
from PIL import Image

from gateway.domain.errors import Code, GatewayError
from gateway.domain.geometry import Size
from gateway.domain.image import ImageFormat, Why
from gateway.imaging.limits import ImageLimits
from gateway.imaging.probe import probe
from gateway.imaging.render import render
from gateway.wire.encoded_file import EncodedFile
from tests.support.pictures import picture

LIMITS = ImageLimits(formats=frozenset({ImageFormat.HEIC}))


def heic(image, *more, **options):
    heif = pillow_heif.from_pillow(image)
    for each in more:
        heif.add_from_pillow(each)
    file = io.BytesIO()
    heif.save(file, **{"quality": 90} | options)
    return file.getvalue()


def looked_at(file, limits=LIMITS):
    return probe(EncodedFile(pybase64.b64encode(file)), limits, "here")


def shown(file, target=None):
    info = looked_at(file)
    return Image.open(io.BytesIO(render(file, info, target or info.size).file))


def corner(image):
    return np.array(image.convert("RGB").getpixel((4, 4)), int)


def test_a_photograph_becomes_a_jpeg_of_the_same_colours():
    original = picture(200, 120)
    file = heic(original)
    info = looked_at(file)
    assert (info.format, info.size, info.frames) == (ImageFormat.HEIC, Size(200, 120), 1)
    assert info.is_lossy
    assert Why.FORMAT in info.why
    out = shown(file, Size(100, 60))
    assert (out.format, out.size, out.mode) == ("JPEG", (100, 60), "RGB")
    seen = np.asarray(out, float)
    assert np.abs(seen - np.asarray(original.resize((100, 60), Image.Resampling.BICUBIC), float)).mean() < 8


def test_one_that_was_held_upright_is_upright():
    exif = Image.Exif()
    exif[0x0112] = 6
    original = Image.new("RGB", (120, 80), (220, 30, 30))
    original.paste((30, 30, 220), (0, 0, 60, 80))
    file = heic(original, exif=exif.tobytes())
    assert looked_at(file).size == Size(80, 120)
    out = shown(file)
    assert out.size == (80, 120)
    assert np.abs(corner(out) - (30, 30, 220)).max() < 30


def test_transparency_is_white_and_of_several_pictures_the_first_is_taken():
    clear = Image.new("RGBA", (64, 64), (200, 30, 30, 0))
    assert Why.ALPHA in looked_at(heic(clear)).why
    assert np.abs(corner(shown(heic(clear))) - 255).max() < 12
    several = heic(Image.new("RGB", (64, 64), (220, 30, 30)), Image.new("RGB", (64, 64), (30, 30, 220)))
    assert Why.FRAMES in looked_at(several).why
    assert np.abs(corner(shown(several)) - (220, 30, 30)).max() < 30


def test_limits_hold_before_a_pixel_is_decoded():
    with pytest.raises(GatewayError) as caught:
        looked_at(heic(picture(200, 120)), ImageLimits(formats=LIMITS.formats, max_pixels=10_000))
    assert caught.value.code is Code.IMAGE_TOO_LARGE


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
def test_a_damaged_one_is_told(share):
    file = heic(picture(200, 120))
    with pytest.raises(GatewayError) as caught:
        shown(file[: int(len(file) * share)])
    assert caught.value.code is Code.IMAGE_PARSE_ERROR


WITHOUT = """
import sys
sys.modules["pillow_heif"] = None
from gateway.domain.image import ImageFormat
from gateway.imaging.pillow import DECODABLE
print(sorted(set(ImageFormat) - DECODABLE))
"""


def test_without_the_extra_it_is_the_only_format_that_is_not_read():
    told = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True)
    assert "HEIC" in told.stdout
    assert told.stdout.count("<") == 1
