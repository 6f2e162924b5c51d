"""The extra `vips`: what libvips shrinks is what Pillow would show, and what Pillow refuses stays refused."""

import io
import random
import subprocess
import sys

import numpy as np
import pybase64
import pytest
from PIL import Image, ImageFilter

from gateway.domain.errors import GatewayError
from gateway.domain.geometry import Size
from gateway.imaging import render as rendering
from gateway.imaging import vips
from gateway.imaging.limits import ImageLimits
from gateway.imaging.probe import probe
from gateway.imaging.render import render
from gateway.imaging.vips import shrunk
from gateway.wire.encoded_file import EncodedFile
from tests.fuzz.damage import damaged
from tests.support import icc
from tests.support.pictures import encoded, picture

SIZE = Size(320, 240)
TARGET = Size(112, 84)


def soft(mode="RGB"):
    """Without the finest detail, over which filters differ."""
    return picture(SIZE.width, SIZE.height).filter(ImageFilter.GaussianBlur(3)).convert(mode)


def see_through(colour=(250, 40, 30)):
    image = soft("RGBA")
    image.putalpha(Image.linear_gradient("L").resize(image.size))
    image.paste((*colour, 0), (0, 0, 80, 80))
    return image


SUITED = {
    "png": encoded(soft(), "PNG"),
    "png grey": encoded(soft("L"), "PNG"),
    "png with alpha": encoded(see_through(), "PNG"),
    "png grey with alpha": encoded(see_through().convert("LA"), "PNG"),
    "png of one colour that is clear": encoded(see_through().convert("RGB"), "PNG", transparency=(250, 40, 30)),
    "png in Display P3": encoded(soft(), "PNG", icc_profile=icc.display_p3()),
    "png turned": encoded(soft(), "PNG", orientation=6),
    "webp": encoded(soft(), "WEBP", quality=90),
    "webp lossless": encoded(soft(), "WEBP", lossless=True),
    "webp with alpha": encoded(see_through(), "WEBP", quality=90),
    "webp turned": encoded(soft(), "WEBP", orientation=6, quality=90),
}
FOR_PILLOW = {
    "jpeg": encoded(soft(), "JPEG"),
    "png of 16 bits": encoded(picture(SIZE.width, SIZE.height, mode="I;16"), "PNG"),
    "png with a palette": encoded(soft().quantize(64), "PNG"),
    "png of one bit": encoded(soft("1"), "PNG"),
    "png that moves": encoded(soft(), "PNG", save_all=True, append_images=[soft().rotate(90)]),
    "webp that moves": encoded(soft(), "WEBP", save_all=True, append_images=[soft().rotate(90)]),
    "bmp": encoded(soft(), "BMP"),
}


def info_of(file):
    return probe(EncodedFile(pybase64.b64encode(file)), ImageLimits(), "here")


def rendered(file, target=None):
    info = info_of(file)
    upright = TARGET if info.size == SIZE else TARGET.transposed
    return render(file, info, target or upright)


@pytest.fixture
def by_pillow(monkeypatch):
    """The same as if the extra were not installed."""

    def by_pillow(work, *args):
        with monkeypatch.context() as patch:
            patch.setattr(vips, "VIPS_VERSION", None)
            return work(*args)

    return by_pillow


@pytest.mark.parametrize("name", SUITED)
def test_it_is_the_picture_that_pillow_makes(name, by_pillow):
    file = SUITED[name]
    assert shrunk(file, info_of(file), TARGET) is not None
    ours, pillows = rendered(file), by_pillow(rendered, file)
    assert (ours.media_type, ours.why) == (pillows.media_type, pillows.why)
    seen, expected = (Image.open(io.BytesIO(each.file)) for each in (ours, pillows))
    assert (seen.size, seen.mode, seen.info) == (expected.size, expected.mode, expected.info)
    difference = np.abs(np.asarray(seen, float) - np.asarray(expected, float))
    assert difference.mean() < 2.0
    assert np.percentile(difference, 99) < 16


@pytest.mark.parametrize("name", FOR_PILLOW)
def test_what_is_converted_is_left_to_pillow(name, by_pillow):
    file = FOR_PILLOW[name]
    assert shrunk(file, info_of(file), TARGET) is None
    assert rendered(file) == by_pillow(rendered, file)


@pytest.mark.parametrize("target", [SIZE, Size(640, 480), Size(320, 84), Size(112, 240)])
def test_what_does_not_shrink_both_ways_is_left_to_pillow(target, by_pillow):
    assert rendered(SUITED["png"], target) == by_pillow(rendered, SUITED["png"], target)


@pytest.mark.parametrize("name", ["png with alpha", "webp", "png in Display P3"])
def test_the_same_picture_is_the_same_file_each_time(name):
    assert rendered(SUITED[name]) == rendered(SUITED[name])


def test_the_encoder_says_which_library_it_was():
    assert vips.VIPS_VERSION is not None
    assert f"vips-{vips.VIPS_VERSION}" in rendering.ENCODER_ID


@pytest.mark.parametrize("name", SUITED)
@pytest.mark.parametrize("share", [0.3, 0.7, 0.95])
def test_one_that_was_cut_is_told_in_pillows_words(name, share, by_pillow):
    file = SUITED[name]
    cut = file[: int(len(file) * share)]
    info = info_of(file)
    told = refusal(cut, info)
    assert told is not None
    assert str(told) == str(by_pillow(refusal, cut, info))


def refusal(file, info):
    try:
        render(file, info, TARGET if info.size == SIZE else TARGET.transposed)
    except GatewayError as error:
        return error
    return None


@pytest.mark.parametrize("name", ["png", "png with alpha", "webp", "webp lossless"])
def test_what_pillow_refuses_is_refused(name, by_pillow):
    chance = random.Random(name)
    refused = 0
    for _ in range(400):
        file = damaged(SUITED[name], list(SUITED.values()), chance)
        try:
            info = info_of(file)
        except GatewayError:
            continue
        expected = by_pillow(refusal, file, info)
        refused += expected is not None
        if expected is not None:
            assert str(refusal(file, info)) == str(expected)
    assert refused > 50


WITHOUT = """
import importlib.metadata
real = importlib.metadata.version
def version(name):
    if name == "pyvips-binary":
        raise importlib.metadata.PackageNotFoundError(name)
    return real(name)
importlib.metadata.version = version
import sys
sys.modules["pyvips"] = None
from gateway.imaging.render import ENCODER_ID
print(ENCODER_ID)
"""


def test_without_the_extra_nothing_asks_for_it():
    told = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True)
    assert "vips-None" in told.stdout
