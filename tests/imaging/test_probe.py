"""The header tells what Pillow (so vLLM) will see, and from few bytes."""

import io
import struct
import zlib

import pybase64
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from gateway.domain.errors import Code, GatewayError
from gateway.domain.geometry import Size
from gateway.domain.image import ImageFormat, Why
from gateway.imaging.decode import verify
from gateway.imaging.limits import ACCEPTED_FORMATS, ImageLimits, worst_job_bytes
from gateway.imaging.pillow import DECODABLE
from gateway.imaging.probe import probe, recognise
from gateway.wire.encoded_file import EncodedFile
from tests.support.pictures import encoded, picture

LIMITS = ImageLimits()
PARAM = "messages[0].content[0].image_url.url"
SAVED_AS = {
    "JPEG": ("RGB", "L", "CMYK"),
    "PNG": ("RGB", "L", "1", "P", "RGBA", "LA", "I;16"),
    "WEBP": ("RGB", "RGBA"),
    "GIF": ("P", "L"),
    "BMP": ("RGB", "L", "1", "P", "RGBA"),
    "TIFF": ("RGB", "L", "1", "P", "RGBA", "CMYK", "I;16", "F"),
    "AVIF": ("RGB", "RGBA"),
}


class ReadRecorder(EncodedFile):
    """Notes how much of the file was asked for, each time."""

    def __init__(self, payload: bytes) -> None:
        super().__init__(payload)
        object.__setattr__(self, "asked", [])

    def prefix(self, byte_count: int) -> bytes:
        self.asked.append(byte_count)
        return super().prefix(byte_count)

    def decode(self) -> bytes:
        self.asked.append(self.file_bytes)
        return super().decode()


def as_file(data: bytes) -> EncodedFile:
    return EncodedFile(pybase64.b64encode(data))


def probed(data: bytes, limits: ImageLimits = LIMITS):
    return probe(as_file(data), limits, PARAM)


def refusal(data: bytes, limits: ImageLimits = LIMITS) -> GatewayError:
    with pytest.raises(GatewayError) as caught:
        probed(data, limits)
    assert caught.value.status == 400
    assert caught.value.param == PARAM
    return caught.value


def seen_by_vllm(data: bytes) -> tuple[Size, Size]:
    """Stored size (a TIFF's is turned on opening), and size after `exif_transpose`."""
    opened = Image.open(io.BytesIO(data))
    tags = getattr(opened, "tag_v2", None)
    stored = Size(tags[256], tags[257]) if tags else Size(*opened.size)
    return stored, Size(*ImageOps.exif_transpose(opened).size)


@settings(max_examples=80, suppress_health_check=[HealthCheck.too_slow])
@given(
    kind=st.sampled_from([(kind, mode) for kind, modes in SAVED_AS.items() for mode in modes]),
    width=st.integers(1, 40),
    height=st.integers(1, 40),
    orientation=st.integers(1, 8),
    frames=st.integers(1, 3),
)
def test_agrees_with_pillow(kind, width, height, orientation, frames):
    file_format, mode = kind
    options = {"orientation": 1 if file_format in {"GIF", "BMP"} else orientation}
    if file_format == "AVIF":
        options["speed"] = 10
    if frames > 1 and file_format in {"GIF", "WEBP", "PNG", "TIFF"}:
        options |= {
            "save_all": True,
            "append_images": [picture(width, height, mode=mode, seed=n) for n in range(1, frames)],
        }
    data = encoded(picture(width, height, mode=mode), file_format, **options)

    info = probed(data)

    assert (info.stored, info.size) == seen_by_vllm(data)
    assert info.orientation == options["orientation"]
    assert (Why.ORIENTATION in info.why) == (info.orientation != 1)
    opened = Image.open(io.BytesIO(data))
    assert (info.frames > 1) == (getattr(opened, "n_frames", 1) > 1) or file_format == "GIF"
    if opened.has_transparency_data:
        assert Why.ALPHA in info.why
    if opened.mode not in {"RGB", "L", "RGBA", "LA"}:
        assert info.why & {Why.MODE, Why.ALPHA}
    assert info.file_bytes == len(data)


def test_a_photograph_is_known_from_its_first_kilobyte():
    file = ReadRecorder(pybase64.b64encode(encoded(picture(1200, 900), "JPEG")))

    assert probe(file, LIMITS, PARAM).size == Size(1200, 900)
    assert file.asked == [1024]


def test_large_metadata_is_skipped_by_its_lengths():
    profile = bytes(range(256)) * 700
    file = ReadRecorder(pybase64.b64encode(encoded(picture(2000, 1500), "JPEG", quality=100, icc_profile=profile)))

    assert probe(file, LIMITS, PARAM).size == Size(2000, 1500)
    assert file.asked[0] == 1024
    assert 179_200 < file.asked[-1] < file.file_bytes / 2


def test_an_image_in_exif_is_not_taken_for_the_picture():
    exif = Image.Exif()
    exif[0x0112] = 6
    thumbnail = encoded(picture(16, 12), "JPEG")
    data = encoded(picture(64, 48), "JPEG", exif=exif.tobytes() + thumbnail)

    assert probed(data).stored == Size(64, 48)
    assert probed(data).size == Size(48, 64)


def test_padding_may_be_missing():
    data = encoded(picture(61, 47))
    assert len(data) % 3

    assert probe(EncodedFile(pybase64.b64encode(data).rstrip(b"=")), LIMITS, PARAM).size == Size(61, 47)


@pytest.mark.parametrize(
    ("data", "hint"),
    [
        (b"%PDF-1.7 \x00\xff", "PDF"),
        (b'<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg"/>', "SVG"),
        (b"<!DOCTYPE html><title>404</title>", "HTML"),
        (b"not a picture\n", "text"),
        (b"\x00\x01\x02\x03", "unknown"),
        (encoded(picture(8, 8), "PPM"), "unknown"),
    ],
)
def test_what_is_no_image_is_named(data, hint):
    error = refusal(data)

    assert error.code is Code.UNSUPPORTED_IMAGE_MEDIA_TYPE
    assert hint in error.message
    assert "jpeg, png" in error.message


def test_a_known_format_that_is_not_accepted_is_named():
    assert "format ico" in refusal(encoded(picture(16, 16), "ICO")).message
    assert (
        "format gif"
        in refusal(encoded(picture(8, 8), "GIF"), ImageLimits(formats=frozenset({ImageFormat.PNG}))).message
    )


def test_heic_is_recognised_and_refused_even_where_accepted_unless_it_can_be_decoded(monkeypatch):
    monkeypatch.setattr("gateway.imaging.probe.DECODABLE", DECODABLE - {ImageFormat.HEIC})
    heic = b"\x00\x00\x00\x18ftypheic\x00\x00\x00\x00mif1heic"
    limits = ImageLimits(formats=ACCEPTED_FORMATS | {ImageFormat.HEIC})

    error = refusal(heic, limits)

    assert error.code is Code.UNSUPPORTED_IMAGE_MEDIA_TYPE
    assert "heic" in error.message


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b"\x00\x00\x00\x18ftypmif1\x00\x00\x00\x00mif1avif", ImageFormat.AVIF),
        (b"\x00\x00\x00\x18ftypmif1\x00\x00\x00\x00mif1heic", ImageFormat.HEIC),
        (b"\x00\x00\x00\x14ftypisom\x00\x00\x00\x00mp42", None),
        (b"MM\x00+\x00\x08", ImageFormat.TIFF),
        (b"RIFF\x00\x00\x00\x00AVI ", None),
    ],
)
def test_formats_are_told_by_their_first_bytes(head, expected):
    assert recognise(head) is expected


def test_an_empty_file():
    assert refusal(b"").code is Code.EMPTY_IMAGE_FILE


def test_too_many_bytes_are_refused_with_both_numbers():
    error = refusal(encoded(picture(64, 64)), ImageLimits(max_bytes=100))

    assert error.code is Code.IMAGE_TOO_LARGE
    assert "at most 100 are allowed" in error.message


def test_too_many_pixels_are_refused_with_both_numbers():
    error = refusal(encoded(picture(64, 64)), ImageLimits(max_pixels=4000))

    assert error.code is Code.IMAGE_TOO_LARGE
    assert "64x64 = 4096 pixels; at most 4000" in error.message


def test_only_jpeg_that_decodes_at_a_reduced_scale_may_be_larger():
    limits = ImageLimits(max_pixels=4000, max_scaled_jpeg_pixels=8000)

    assert probed(encoded(picture(64, 64), "JPEG"), limits).size == Size(64, 64)
    progressive = refusal(encoded(picture(64, 64), "JPEG", progressive=True), limits)
    assert progressive.code is Code.IMAGE_TOO_LARGE
    assert "progressive jpeg" in progressive.message


def test_what_could_exceed_the_whole_decode_budget_is_refused_with_the_numbers():
    """A picture with alpha is encoded anew: the lossless encoder takes several times the bytes of decoding it."""
    file = encoded(picture(400, 300, mode="RGBA"))
    needed = worst_job_bytes(probed(file))

    assert probed(file, ImageLimits(decode_bytes=needed)).size == Size(400, 300)
    error = refusal(file, ImageLimits(decode_bytes=needed - 1))
    assert error.code is Code.IMAGE_TOO_LARGE
    assert f"may take {needed} bytes, and this gateway has {needed - 1} for that" in error.message
    assert "400x300 = 120000 pixels of png" in error.message


def test_a_lossy_picture_may_be_larger_than_a_lossless_one_of_its_format():
    lossy, lossless = (encoded(picture(400, 300), "WEBP", lossless=flag) for flag in (False, True))
    limits = ImageLimits(decode_bytes=6_000_000)

    assert probed(lossy, limits).size == Size(400, 300)
    assert refusal(lossless, limits).code is Code.IMAGE_TOO_LARGE


def test_a_long_strip_is_refused_and_the_limit_itself_passes():
    assert probed(encoded(picture(200, 1))).size == Size(200, 1)
    error = refusal(encoded(picture(1, 201)))
    assert error.code is Code.INVALID_IMAGE_DIMENSIONS
    assert "201 times" in error.message


def test_a_zero_side_is_refused():
    ihdr = b"IHDR" + struct.pack(">IIBBBBB", 0, 5, 8, 2, 0, 0, 0)
    png = b"\x89PNG\r\n\x1a\n\x00\x00\x00\x0d" + ihdr + struct.pack(">I", zlib.crc32(ihdr)) + b"\x00\x00\x00\x00IDAT"

    assert refusal(png + b"\x00" * 8).code is Code.INVALID_IMAGE_DIMENSIONS


def test_a_header_that_is_cut_off_is_refused():
    error = refusal(encoded(picture(64, 64), "JPEG")[:60])

    assert error.code is Code.IMAGE_PARSE_ERROR
    assert "ends at byte 60, inside the header" in error.message


def test_damaged_base64_names_the_part():
    with pytest.raises(GatewayError) as caught:
        probe(EncodedFile(b"iVBO!!!!" * 40), LIMITS, PARAM)
    assert caught.value.code is Code.INVALID_BASE64_IMAGE
    assert caught.value.param == PARAM


def test_an_error_that_names_its_part_keeps_it():
    with pytest.raises(GatewayError) as caught:
        probe(EncodedFile(b"!!!!" * 40, param="elsewhere"), LIMITS, PARAM)
    assert caught.value.param == "elsewhere"


def test_what_follows_a_jpegs_frame_header_is_left_to_the_decoder():
    """`images.verify: header` trusts the header; otherwise the decode that follows refuses the file."""
    head = bytes.fromhex("ffd8 ffe000104a46494600010100000100010000 ffc0001108 01e0 0280 03 012200 021101 031101")
    file = head + b"\x00\xff\x01" + bytes(5000)
    info = probe(EncodedFile(pybase64.b64encode(file)), ImageLimits(), "p")
    assert info.size == Size(640, 480)
    with pytest.raises(GatewayError, match=r"cannot be decoded|damaged|truncated"):
        verify(file, info)
