"""The extra `vips`: what libvips shrinks is what Pillow would show, and what Pillow refuses stays refused."""

import importlib.metadata
import io
import random
import struct
import subprocess
import sys
import zlib

import numpy as np
import pybase64
import pytest
from PIL import Image, ImageFilter

from gateway.domain.errors import GatewayError
from gateway.domain.geometry import Size
from gateway.imaging import render as rendering
from gateway.imaging import vips
from gateway.imaging.header.png_pixels import pixel_chunks
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


PNG = SUITED["png"]


def chunk(name, content, *, is_broken=False):
    return struct.pack(">I4s", len(content), name) + content + struct.pack(">I", zlib.crc32(name + content) ^ is_broken)


def idats(file):
    """Where the contents of its pixels stand."""
    position = 8
    while position < len(file):
        length, name = struct.unpack_from(">I4s", file, position)
        if name == b"IDAT":
            yield position + 8, position + 8 + length
        position += 12 + length


def before(*chunks):
    """Between the head and the pixels."""
    return PNG[:33] + b"".join(chunks) + PNG[33:]


def behind(*chunks):
    return PNG[:-12] + b"".join(chunks) + PNG[-12:]


def inflating(byte_count):
    return chunk(b"zTXt", b"a\0\0" + zlib.compress(b"x" * byte_count))


ODD_PNGS = {
    "text with a wrong checksum": before(chunk(b"tEXt", b"a\0b", is_broken=True)),
    "resolution with a wrong checksum": before(chunk(b"pHYs", bytes(9), is_broken=True)),
    "text that inflates to 2 MB": before(inflating(2 << 20)),
    "texts that inflate to 9 MB": before(*[inflating((1 << 20) - 5)] * 9),
    "profile that inflates to 30 MB": before(chunk(b"iCCP", b"a\0\0" + zlib.compress(bytes(30 << 20)))),
    "text behind the pixels that inflates to 2 MB": behind(inflating(2 << 20)),
    "short resolution": before(chunk(b"pHYs", b"ab")),
    "short gamma": before(chunk(b"gAMA", b"ab")),
    "short primaries": before(chunk(b"cHRM", b"abc")),
    "short sRGB": before(chunk(b"sRGB", b"")),
    "short transparency": before(chunk(b"tRNS", b"a")),
    "unknown critical chunk": before(chunk(b"ABCD", b"a")),
    "unknown critical chunk behind the pixels": behind(chunk(b"ABCD", b"a", is_broken=True)),
    "second head": before(PNG[8:33]),
    "second head of another size": before(chunk(b"IHDR", struct.pack(">IIBBBBB", 640, 480, 8, 2, 0, 0, 0))),
    "no end": PNG[:-12],
    "more behind its end": PNG + bytes(50),
    "profile packed in an unknown way": before(chunk(b"iCCP", b"a\0\1" + zlib.compress(bytes(200)))),
    "text packed in an unknown way": before(chunk(b"zTXt", b"a\0\7garbage")),
    "text that is not packed as it says": before(chunk(b"iTXt", b"a\0\1\0\0\0garbage")),
    "orientation that is none": before(chunk(b"eXIf", b"garbage")),
    "pixels with a wrong checksum": PNG[:-16] + bytes(4) + PNG[-12:],
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


@pytest.mark.parametrize("name", ODD_PNGS)
def test_an_odd_one_ends_as_pillow_ends_it(name, by_pillow):
    assert how_it_ends(ODD_PNGS[name]) == by_pillow(how_it_ends, ODD_PNGS[name])


def how_it_ends(file):
    """`ok`, or in which words it is refused."""
    try:
        return str(refusal(file, info_of(file)) or "ok")
    except GatewayError as error:
        return str(error)


def test_grey_of_two_bits_with_a_clear_one_is_left_to_pillow(by_pillow):
    grey = chunk(b"IHDR", struct.pack(">IIBBBBB", *(SIZE.width, SIZE.height), 2, 0, 0, 0, 0))
    rows = (b"\0" + bytes([0b00011011] * (SIZE.width // 4))) * SIZE.height
    file = b"".join((PNG[:8], grey, chunk(b"tRNS", b"\0\1"), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b"")))
    assert shrunk(file, info_of(file), TARGET) is None
    assert rendered(file) == by_pillow(rendered, file)


def test_alpha_that_the_head_does_not_tell_of_is_left_to_pillow(by_pillow):
    inner = encoded(see_through(), "WEBP", lossless=True)[12:]
    inner = inner[inner.index(b"VP8L") :]
    head = b"VP8X" + struct.pack("<I", 10) + bytes(4)
    head += (SIZE.width - 1).to_bytes(3, "little") + (SIZE.height - 1).to_bytes(3, "little")
    file = b"RIFF" + struct.pack("<I", 4 + len(head) + len(inner)) + b"WEBP" + head + inner
    assert how_it_ends(file) == by_pillow(how_it_ends, file)
    if how_it_ends(file) == "ok":
        assert rendered(file) == by_pillow(rendered, file)


def riff(*chunks):
    body = b"".join(
        name + struct.pack("<I", len(content)) + content + bytes(len(content) % 2) for name, content in chunks
    )
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WEBP" + body


def extended(flags):
    sides = (SIZE.width - 1).to_bytes(3, "little") + (SIZE.height - 1).to_bytes(3, "little")
    return b"VP8X", bytes([flags, 0, 0, 0]) + sides


LOSSY = (b"VP8 ", encoded(soft(), "WEBP", quality=90)[20:])
ALPHA = (b"ALPH", bytes([0]) + bytes(range(256)) * (SIZE.pixels // 256))
ODD_WEBPS = {
    "alpha without the flag": riff(extended(0), ALPHA, LOSSY),
    "the flag without alpha": riff(extended(0x10), LOSSY),
    "larger canvas": riff((b"VP8X", bytes(4) + bytes([255, 1, 0, 255, 1, 0])), LOSSY),
    "moving without frames": riff(extended(2), LOSSY),
    "profile that is none": riff(extended(0x20), (b"ICCP", b"junk"), LOSSY),
    "no profile where there should be one": riff(extended(0x20), LOSSY),
    "metadata that is none": riff(extended(0x8), LOSSY, (b"EXIF", b"junk")),
    "unknown chunk": riff(extended(0), (b"ABCD", b"junk"), LOSSY),
    "two pictures": riff(extended(0), LOSSY, LOSSY),
    "no picture": riff(extended(0)),
    "longer than it is": b"RIFF" + struct.pack("<I", 1 << 20) + riff(LOSSY)[8:],
    "more behind its end": riff(LOSSY) + bytes(40),
    "cut in its head": riff(extended(0), LOSSY)[:34],
}


@pytest.mark.parametrize("name", ODD_WEBPS)
def test_an_odd_webp_ends_as_pillow_ends_it(name, by_pillow):
    file = ODD_WEBPS[name]
    ending = how_it_ends(file)
    assert ending == by_pillow(how_it_ends, file)
    if ending == "ok":
        seen, expected = (
            np.asarray(Image.open(io.BytesIO(each.file)).convert("RGB"), float)
            for each in (rendered(file), by_pillow(rendered, file))
        )
        assert np.abs(seen - expected).mean() < 2.0


def test_one_that_cannot_be_loaded_is_not_missed(monkeypatch, by_pillow):
    monkeypatch.setattr(vips, "_library", lambda: None)
    assert rendered(PNG) == by_pillow(rendered, PNG)


def test_one_that_is_broken_is_as_good_as_none(monkeypatch):
    def broken(name):
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(vips.importlib, "import_module", broken)
    assert vips._library.__wrapped__() is None
    monkeypatch.setattr(vips, "version", importlib.metadata.distribution)
    monkeypatch.setattr(vips, "_DISTRIBUTION", "no-such-thing")
    assert vips._installed() is None


def test_what_is_not_as_transparent_as_it_should_be_is_left_to_pillow():
    assert vips._shrunk(SUITED["png with alpha"], info_of(PNG), TARGET) is None
    assert vips._shrunk(PNG, info_of(PNG), TARGET) is not None


PIXELS = zlib.decompress(b"".join(PNG[start:end] for start, end in idats(PNG)))


def of_stream(stream):
    return PNG[:33] + chunk(b"IDAT", stream) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    "stream",
    [
        zlib.compress(PIXELS),
        zlib.compress(PIXELS)[:2000],
        zlib.compress(PIXELS)[:-4] + b"abcd",
        zlib.compress(PIXELS) + b"xxxx",
        zlib.compress(PIXELS + PIXELS[:500]),
        zlib.compress(b"\x09" + PIXELS[1:]),
    ],
    ids=["whole", "cut", "wrong sum", "more behind it", "too long", "unknown filter"],
)
def test_pixels_that_are_damaged_though_their_checksum_is_right_are_refused(stream, by_pillow):
    file = of_stream(stream)
    assert how_it_ends(file) == by_pillow(how_it_ends, file)


def test_a_head_that_ends_too_soon_is_left_to_pillow():
    assert vips._plain_webp(riff(extended(0), LOSSY)[:34]) is None


def test_more_chunks_than_any_true_file_has_are_left_to_pillow():
    assert pixel_chunks(before(*[chunk(b"tIME", bytes(7))] * 20_001)) is None
    assert pixel_chunks(PNG) == PNG
    assert pixel_chunks(before(chunk(b"tEXt", b"a\0b"))) == PNG


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
