"""Every pixel is decoded once; a picture that is damaged anywhere is refused."""

import io

import pybase64
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from PIL import Image

from gateway.domain.errors import Code, GatewayError
from gateway.domain.geometry import Size
from gateway.domain.image import ImageInfo
from gateway.imaging.decode import load, verify
from gateway.imaging.limits import ImageLimits
from gateway.imaging.probe import probe
from gateway.wire.encoded_file import EncodedFile
from tests.support.pictures import encoded, picture

LAST_BLOCKS_BYTES = 400  # as many blocks as the decoder can make of the bytes that it looks ahead
OPTIONS = {"TIFF": {"compression": "tiff_lzw"}}
FORMATS = ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF"]


def info_of(file: bytes) -> ImageInfo:
    return probe(EncodedFile(pybase64.b64encode(file)), ImageLimits(), "image")


@pytest.mark.parametrize("file_format", FORMATS)
def test_a_sound_picture_passes(file_format):
    file = encoded(picture(120, 90), file_format, **OPTIONS.get(file_format, {}))

    verify(file, info_of(file))


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize("kept", [0.5, 0.9])
def test_a_picture_cut_off_is_refused(file_format, kept):
    file = encoded(picture(120, 90), file_format, **OPTIONS.get(file_format, {}))
    with pytest.raises(GatewayError, match=f"^The {file_format.lower()} cannot be decoded: ") as caught:
        verify(file[: int(len(file) * kept)], info_of(file))
    assert caught.value.code is Code.IMAGE_PARSE_ERROR


def a_jpeg(width: int, height: int, mode: str, options: dict[str, int], seed: int) -> bytes:
    return encoded(picture(width, height, mode=mode, seed=seed), "JPEG", **options)


JPEGS = st.builds(
    a_jpeg,
    st.integers(1, 200),
    st.integers(1, 200),
    st.sampled_from(["RGB", "L", "CMYK"]),
    st.fixed_dictionaries(
        {"quality": st.sampled_from([1, 30, 75, 100])},
        optional={
            "subsampling": st.integers(0, 2),
            "restart_marker_blocks": st.integers(1, 20),
            "optimize": st.booleans(),
        },
    ),
    st.integers(0, 20),
)
SCALES = st.sampled_from([1, 2, 8])


@settings(max_examples=100)
@given(file=JPEGS, scale=SCALES)
def test_the_missing_end_marker_changes_no_sound_picture(file, scale):
    info = info_of(file)
    wanted = Size(info.size.width // scale, info.size.height // scale)
    plain = Image.open(io.BytesIO(file))
    plain.draft(None, (max(wanted.width, 1), max(wanted.height, 1)))

    assert load(file, info, wanted).tobytes() == plain.tobytes()


@settings(max_examples=100, suppress_health_check=[HealthCheck.filter_too_much])
@given(file=JPEGS, cut=st.floats(0, 1))
def test_a_jpeg_that_only_claims_to_be_whole_is_refused(file, cut):
    """Libjpeg paints grey what is missing before an end marker, and Pillow says nothing."""
    scan_start = file.index(b"\xff\xda") + 14
    most = len(file) - LAST_BLOCKS_BYTES
    assume(scan_start < most)
    kept = scan_start + int(cut * (most - scan_start))
    with pytest.raises(GatewayError, match="truncated"):
        verify(file[:kept] + b"\xff\xd9", info_of(file))


def test_a_progressive_picture_cut_between_scans_is_refused():
    file = encoded(picture(120, 90), "JPEG", progressive=True)
    last_scan = file.rindex(b"\xff\xda")
    with pytest.raises(GatewayError):
        verify(file[:last_scan], info_of(file))


def test_a_jpeg_of_endless_scans_is_not_decoded(monkeypatch):
    """Ten bytes each, and each makes the decoder visit all blocks: a minute for 200 KB."""
    file = encoded(picture(400, 300), "JPEG", progressive=True)
    bomb = file[:-2] + bytes.fromhex("ffda 0008 01 0100 013f10") * 12_000 + file[-2:]
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", lambda _: pytest.fail("pixels were asked for"))
    with pytest.raises(GatewayError, match=r"it has more than 100 scans, .*; encode it anew") as caught:
        verify(bomb, info_of(bomb))
    assert caught.value.code is Code.IMAGE_PARSE_ERROR


def test_a_jpeg_is_looked_at_in_an_eighth():
    file = encoded(picture(800, 600), "JPEG")

    assert load(file, info_of(file), Size(100, 75)).size == (100, 75)
    assert load(file, info_of(file), Size(0, 0)).size == (100, 75)
    assert load(file, info_of(file), Size(101, 75)).size == (200, 150)


def test_a_jpeg_on_its_side_is_scaled_along_its_own_axes():
    file = encoded(picture(800, 200), "JPEG", orientation=6)

    assert load(file, info_of(file), Size(50, 200)).size == (200, 50)


def test_pixels_of_another_size_than_the_header_are_refused():
    file = encoded(picture(40, 30))
    with pytest.raises(GatewayError, match="the header says 30x40, the pixels are 40x30"):
        verify(file, info_of(encoded(picture(30, 40))))


def test_a_second_header_takes_no_memory(monkeypatch):
    small, large = encoded(picture(40, 30)), encoded(picture(400, 300))
    two_headers = small[:33] + large[8:]
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", lambda _: pytest.fail("pixels were asked for"))
    with pytest.raises(GatewayError, match="the header says 40x30, the pixels are 400x300"):
        verify(two_headers, info_of(two_headers))
