"""Hostile files are refused within bounded memory, and no decode takes more than it is charged.

Each runs in a process of its own, whose peak is then known whatever ran before.
"""

import random
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from PIL import Image

from tests.support.pictures import encoded, picture
from tests.support.tiff_files import in_one_strip, tiff, tiled
from tests.support.webp_files import webp_of_many_tables

DATA = Path(__file__).parents[1] / "data" / "hard_inputs"
NOISE = Image.frombytes("RGB", (1600, 1200), random.Random(0).randbytes(1600 * 1200 * 3))
LOSSLESS = {"lossless": True, "quality": 0, "method": 0}
MEASURE = """
import re, sys
from pathlib import Path
import pybase64
from gateway.domain.errors import GatewayError
from gateway.domain.geometry import Size
from gateway.imaging.limits import ImageLimits, job_bytes
from gateway.imaging.probe import probe
from gateway.imaging.judge import judge
from gateway.imaging.workers import examine, needs_examination
from gateway.wire.encoded_file import EncodedFile

def resident(field):
    return int(re.search(field + r":\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024

def run(file, target):
    info = probe(file, ImageLimits(), "image")
    info = examine(file, info) if needs_examination(info, target) else info
    return job_bytes(info, target or (info.size if info.why else None)), judge(file, info, target)

warm_up, path, *sides = sys.argv[1:]
run(EncodedFile(pybase64.b64encode(Path(warm_up).read_bytes())), Size(8, 8))
file = EncodedFile(pybase64.b64encode(Path(path).read_bytes()))
Path("/proc/self/clear_refs").write_text("5")
before = resident("VmRSS")
charged = 0
try:
    charged, verdict = run(file, Size(*map(int, sides)) if sides else None)
    code = verdict.damage.code if verdict.damage else "shown"
except GatewayError as error:
    code = error.code
print(code, resident("VmHWM") - before, charged)
"""


def measured(tmp_path: Path, file: bytes, *sides: int) -> tuple[str, int, int]:
    """What came of it, the peak above the idle process, and what was charged, in bytes."""
    small, path = tmp_path / "small", tmp_path / "file"
    small.write_bytes(encoded(picture(16, 16, mode="RGBA"), "PNG"))
    path.write_bytes(file)
    command = [sys.executable, "-c", MEASURE, small, path, *map(str, sides)]
    environment = {"MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_TRIM_THRESHOLD_": "131072"}
    out = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, timeout=60)
    code, peak, charged = out.stdout.split()
    return code, int(peak), int(charged)


@pytest.mark.parametrize("name", ["png_bomb_30000.png", "png_ztxt_bomb.png"])
def test_a_bomb_is_refused_in_little_memory(tmp_path, name):
    code, peak, _ = measured(tmp_path, (DATA / name).read_bytes())

    assert code in {"image_too_large", "image_parse_error"}
    assert peak < 16e6


def test_a_profile_that_inflates_is_refused_in_little_memory(tmp_path):
    png = encoded(picture(64, 48))
    body = b"iCCPname\x00\x00" + zlib.compress(bytes(64 << 20))
    chunk = (len(body) - 4).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")
    code, peak, _ = measured(tmp_path, png[:33] + chunk + png[33:])

    assert code == "image_parse_error"
    assert peak < 16e6


@pytest.mark.parametrize(
    ("file_format", "options", "sides"),
    [
        ("JPEG", {"progressive": True, "subsampling": "4:4:4"}, ()),
        ("JPEG", {"progressive": True, "subsampling": "4:4:4", "mode": "CMYK"}, ()),
        ("JPEG", {}, (504, 364)),
        ("JPEG", {"orientation": 6}, ()),
        ("JPEG", {"orientation": 6}, (1199, 1599)),
        ("PNG", {"compress_level": 1}, (504, 364)),
        ("PNG", {"mode": "RGBA"}, ()),
        ("PNG", {"mode": "RGBA", "orientation": 6}, (1199, 1599)),
        ("PNG", {"mode": "noise"}, (1599, 1199)),
        ("PNG", {"mode": "I;16"}, (1599, 1199)),
        ("GIF", {"mode": "P"}, ()),
        ("TIFF", {"mode": "RGBA", "orientation": 5}, ()),
        ("TIFF", {"compression": "jpeg"}, ()),
        ("TIFF", {"mode": "YCbCr", "compression": "tiff_lzw"}, ()),
        ("TIFF", {"mode": "I;16", "compression": "tiff_adobe_deflate"}, ()),
        ("AVIF", {"mode": "RGBA", "speed": 10}, ()),
        ("WEBP", {**LOSSLESS, "mode": "RGBA"}, ()),
        ("WEBP", {**LOSSLESS, "orientation": 6}, (1199, 1599)),
        ("WEBP", LOSSLESS, (1599, 1199)),
        ("WEBP", LOSSLESS, ()),
    ],
)
def test_a_decode_takes_no_more_than_it_is_charged(tmp_path, file_format, options, sides):
    options = {**options}
    mode = options.pop("mode", "RGB")
    drawn = NOISE if mode == "noise" else picture(1600, 1200, mode=mode)
    code, peak, charged = measured(tmp_path, encoded(drawn, file_format, **options), *sides)

    assert code == "shown"
    assert peak <= charged


def test_a_jpeg_of_a_scan_for_each_colour_is_charged_for_its_coefficients(tmp_path):
    file = encoded(Image.new("RGB", (1600, 1200)), "JPEG", subsampling="4:4:4")
    start = file.index(b"\xff\xda")
    scan = b"\xff\xda\x00\x08\x01%c\x00\x00\x3f\x00" + file[start + 14 : -2]
    code, peak, charged = measured(tmp_path, file[:start] + b"".join(scan % n for n in (1, 2, 3)) + b"\xff\xd9")

    assert code == "shown"
    assert 6 * 1600 * 1200 < peak <= charged


@pytest.mark.parametrize(
    "file",
    [
        in_one_strip(1600, 1200, bits=16),
        tiled(64, 64, 2048, 2048),
        tiled(1600, 1200, 16, 16),
        tiff(1600, 1200, bytes(4800), compression=1, t273=[8] * 1200, t278=[1], t279=[4800] * 1200),
    ],
    ids=["deep strip", "large tile", "small tiles", "strips of a row"],
)
def test_what_a_tiff_holds_of_its_layout_is_charged(tmp_path, file):
    code, peak, charged = measured(tmp_path, file)

    assert code == "shown"
    assert peak <= charged


def test_a_webp_made_of_code_tables_is_charged(tmp_path):
    code, peak, charged = measured(tmp_path, webp_of_many_tables(400))

    assert code == "shown"
    assert 5000 * 100**2 < peak <= charged


def test_a_frame_larger_than_its_avif_is_charged(tmp_path):
    file = bytearray(encoded(picture(1600, 1200), "AVIF", speed=10))
    struct.pack_into(">II", file, file.index(b"ispe") + 8, 800, 601)
    code, peak, charged = measured(tmp_path, bytes(file))

    assert code == "shown"
    assert peak <= charged


def test_a_tile_bomb_is_refused_in_little_memory(tmp_path):
    code, peak, _ = measured(tmp_path, tiled(64, 64, 8192, 8192))

    assert code == "image_parse_error"
    assert peak < 16e6
