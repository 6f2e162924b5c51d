import io

import numpy as np
import pybase64
import pytest
from PIL import Image, ImageCms

from gateway.domain.geometry import Size
from gateway.domain.image import ImageFormat
from gateway.imaging.colour import to_srgb
from gateway.imaging.limits import ImageLimits
from gateway.imaging.probe import probe
from gateway.imaging.render import render
from gateway.wire.encoded_file import EncodedFile
from tests.support import icc

COLOURS = [(200, 60, 40), (40, 180, 90), (120, 120, 120), (255, 255, 255), (30, 60, 200)]


@pytest.mark.parametrize("colour", COLOURS)
def test_wide_colours_become_the_srgb_that_they_mean(colour):
    converted = to_srgb(Image.new("RGB", (8, 8), colour), icc.display_p3())
    assert converted.mode == "RGB"
    assert np.abs(np.array(converted.getpixel((3, 3))) - icc.p3_as_srgb(colour)).max() <= 2


def test_the_conversion_is_one_that_can_be_seen():
    assert np.abs(icc.p3_as_srgb((200, 60, 40)) - (200, 60, 40)).max() > 10


@pytest.mark.parametrize("value", [20, 120, 250])
def test_grey_stays_grey(value):
    converted = to_srgb(Image.new("L", (8, 8), value), icc.linear_grey())
    assert converted.mode == "L"
    assert abs(converted.getpixel((3, 3)) - icc.light_as_srgb(value)) <= 2


@pytest.mark.parametrize(
    ("mode", "profile"),
    [
        ("RGB", None),
        ("RGB", b""),
        ("RGB", b"no profile at all"),
        ("RGB", icc.display_p3()[:200]),
        ("RGB", icc.linear_grey()),
        ("L", icc.display_p3()),
        ("CMYK", icc.display_p3()),
        ("RGB", ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()),
        ("RGB", ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB")).tobytes()),
        ("I", icc.linear_grey()),
    ],
)
def test_without_a_profile_of_its_own_it_stays_as_it_is(mode, profile):
    picture = Image.new(mode, (8, 8), 7 if mode in {"L", "I"} else (200, 60, 40, 0)[: 4 if mode == "CMYK" else 3])
    assert to_srgb(picture, profile) is picture


def rendered(picture, file_format, target, **options):
    file = io.BytesIO()
    picture.save(file, file_format, **options)
    payload = EncodedFile(pybase64.b64encode(file.getvalue()))
    info = probe(payload, ImageLimits(formats=frozenset(ImageFormat)), "here")
    return Image.open(io.BytesIO(render(file.getvalue(), info, target).file))


@pytest.mark.parametrize("file_format", ["PNG", "JPEG", "WEBP", "TIFF"])
def test_what_is_encoded_anew_has_the_colours_that_were_meant(file_format):
    options = {"quality": 95} if file_format in {"JPEG", "WEBP"} else {}
    out = rendered(
        Image.new("RGB", (64, 48), (200, 60, 40)), file_format, Size(32, 24), icc_profile=icc.display_p3(), **options
    )
    assert "icc_profile" not in out.info
    seen = np.array(out.convert("RGB").getpixel((16, 12)))
    assert np.abs(seen - icc.p3_as_srgb((200, 60, 40))).max() <= 6


def test_a_transparent_picture_has_its_colours_and_lies_on_white():
    picture = Image.new("RGBA", (64, 48), (200, 60, 40, 255))
    picture.paste((0, 0, 0, 0), (0, 0, 32, 48))
    out = rendered(picture, "PNG", Size(64, 48), icc_profile=icc.display_p3()).convert("RGB")
    assert out.getpixel((5, 5)) == (255, 255, 255)
    assert np.abs(np.array(out.getpixel((50, 20))) - icc.p3_as_srgb((200, 60, 40))).max() <= 2
