"""What stands behind the picture, and checksums."""

import zlib

import pybase64
import pytest

from gateway.domain.errors import Code, GatewayError
from gateway.domain.image import ImageInfo, Why
from gateway.imaging.body import late_reasons
from gateway.imaging.limits import ImageLimits
from gateway.imaging.probe import probe
from gateway.wire.encoded_file import EncodedFile
from tests.support.pictures import encoded, picture


def info_of(file: bytes) -> ImageInfo:
    return probe(EncodedFile(pybase64.b64encode(file)), ImageLimits(), "image")


@pytest.mark.parametrize(
    ("file_format", "expected"),
    [
        ("JPEG", {Why.TRAILING_BYTES}),
        ("PNG", {Why.TRAILING_BYTES}),
        ("WEBP", {Why.TRAILING_BYTES}),
        ("BMP", set()),
        ("TIFF", set()),
        ("GIF", set()),
    ],
)
def test_bytes_behind_the_end_are_a_reason_where_there_is_an_end(file_format, expected):
    file = encoded(picture(40, 30), file_format)

    assert late_reasons(file, info_of(file)) == set()
    assert late_reasons(file + b"PK\x03\x04", info_of(file + b"PK\x03\x04")) == expected


def test_a_wrong_checksum_behind_the_header_is_refused():
    file = bytearray(encoded(picture(40, 30)))
    file[file.index(b"IDAT") + 20] ^= 1
    with pytest.raises(GatewayError, match="checksum of the chunk at byte 33") as caught:
        late_reasons(bytes(file), info_of(bytes(file)))
    assert caught.value.code is Code.IMAGE_PARSE_ERROR


def test_a_missing_end_chunk_is_left_to_the_decoder():
    file = encoded(picture(40, 30))

    assert late_reasons(file[:-12], info_of(file)) == set()
    assert late_reasons(file[:-20], info_of(file)) == set()


@pytest.mark.parametrize("name", [b"iCCP", b"zTXt", b"iTXt"])
@pytest.mark.parametrize("place", [33, -12], ids=["before", "behind"])
def test_a_png_of_endless_compressed_texts_is_refused(name, place):
    """Each kilobyte is inflated to a megabyte, damaged ones outside of Pillow's own count."""
    file, body = encoded(picture(40, 30)), name + b"x\x00\x00" + zlib.compress(bytes(1000))
    chunk = (len(body) - 4).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")
    few, many = (file[:place] + chunk * count + file[place:] for count in (64, 65))

    assert late_reasons(few, info_of(few)) == set()
    with pytest.raises(GatewayError, match="more than 64 compressed texts and profiles") as caught:
        late_reasons(many, info_of(many))
    assert caught.value.code is Code.IMAGE_PARSE_ERROR


def test_orientation_that_the_probe_could_not_see_is_a_reason():
    turned = encoded(picture(40, 30), orientation=6)
    start = turned.index(b"eXIf") - 4
    end = start + 12 + int.from_bytes(turned[start : start + 4], "big")
    plain = turned[:start] + turned[end:]
    padding = b"\x00\x00\x50\x00vpAg" + bytes(0x5000)
    padding += zlib.crc32(padding[4:]).to_bytes(4, "big")
    late = plain[:-12] + turned[start:end] + padding + plain[-12:]

    assert info_of(late).orientation == 1
    assert late_reasons(late, info_of(late)) == {Why.ORIENTATION}
    early = plain[:-12] + turned[start:end] + plain[-12:]
    assert info_of(early).orientation == 6
    assert late_reasons(early, info_of(early)) == set()
