import io

import pytest
from PIL import Image, ImageFile, PngImagePlugin, UnidentifiedImageError

from gateway.domain.errors import Code, GatewayError
from gateway.domain.image import ImageFormat
from gateway.imaging.pillow import CLIENT_FAULTS, DECODABLE, as_parse_error, open_picture
from tests.support.pictures import encoded, picture


def test_settings_hold_for_the_process():
    assert Image.MAX_IMAGE_PIXELS is None
    assert not ImageFile.LOAD_TRUNCATED_IMAGES
    assert PngImagePlugin.MAX_TEXT_CHUNK <= 1 << 20
    assert PngImagePlugin.MAX_TEXT_MEMORY <= 8 << 20


def test_every_decodable_format_opens():
    assert ImageFormat.HEIC in DECODABLE, "the extra is among what developers have"
    for image_format in DECODABLE:
        name = "HEIF" if image_format is ImageFormat.HEIC else image_format.upper()
        opened = open_picture(encoded(picture(64, 64), name), image_format)
        assert opened.format == name


def test_only_the_named_format_is_tried():
    with pytest.raises(UnidentifiedImageError):
        open_picture(encoded(picture(8, 8), "PPM"), ImageFormat.PNG)


@pytest.mark.parametrize("fault", CLIENT_FAULTS)
def test_what_decoders_raise_is_the_clients_fault(fault):
    with (
        pytest.raises(GatewayError, match=r"^The png cannot be decoded: .+\.$") as caught,
        as_parse_error("The png cannot be decoded"),
    ):
        raise fault
    assert caught.value.code is Code.IMAGE_PARSE_ERROR


def test_long_reasons_are_cut():
    with pytest.raises(GatewayError) as caught, as_parse_error("It fails"):
        raise OSError("x" * 10_000)
    assert len(caught.value.message) < 200


def test_other_errors_are_ours():
    with pytest.raises(KeyboardInterrupt), as_parse_error("It fails"):
        raise KeyboardInterrupt


def test_a_pillow_warning_does_not_leak():
    directory = b"Exif\x00\x00II*\x00\x08\x00\x00\x00\x01\x00\x0f\x01\x02\x00\xff\x00\x00\x00\x00\x10\x00\x00"
    opened = open_picture(encoded(picture(8, 8), "JPEG", exif=directory, dpi=(0, 0)), ImageFormat.JPEG)

    assert opened.getexif().get(0x010F) is None
    assert io.BytesIO(opened.info["exif"]).read(4) == b"Exif"
