"""Files that broke vision-language serving somewhere in public: refused as the client's fault, or shown as they are.

The table in tests/data/hard_inputs/images.json names for each file what may happen to it. `probes` are relative
positions, colours and tolerances in the picture that the model would see.
"""

import io
import json
from pathlib import Path

import pybase64
import pytest
from PIL import Image

from gateway.domain.errors import GatewayError
from gateway.domain.geometry import Size
from gateway.imaging.limits import ImageLimits
from gateway.imaging.probe import probe
from gateway.imaging.verdicts import Prepared, Verdict
from gateway.imaging.workers import examine, judge
from gateway.wire.encoded_file import EncodedFile

DATA = Path(__file__).parents[1] / "data" / "hard_inputs"
CASES = json.loads((DATA / "images.json").read_text())
PARAM = "messages[0].content[1].image_url.url"


def prepared(file: EncodedFile) -> Prepared | None:
    looked_at = examine(file, probe(file, ImageLimits(), PARAM))
    verdict = looked_at if isinstance(looked_at, Verdict) else judge(file, looked_at, None)
    return verdict.answer(PARAM)


def shown(file: EncodedFile) -> Image.Image:
    """The picture that the model gets to see."""
    changed = prepared(file)
    picture = Image.open(io.BytesIO(pybase64.b64decode(changed.base64) if changed else file.decode()))
    assert picture.getexif().get(0x0112, 1) == 1
    assert getattr(picture, "n_frames", 1) == 1
    assert picture.mode in {"RGB", "L"}
    return picture.convert("RGB")


def outcome(file: EncodedFile) -> Image.Image | GatewayError:
    try:
        return shown(file)
    except GatewayError as error:
        return error


def as_file(name: str) -> EncodedFile:
    return EncodedFile(pybase64.b64encode((DATA / name).read_bytes()))


@pytest.mark.parametrize("case", CASES, ids=[case["file"] for case in CASES])
def test_file_is_refused_or_shown_as_it_is(case):
    result = outcome(as_file(case["file"]))

    if isinstance(result, GatewayError):
        assert "reject" in case["decisions"]
        assert (result.status, result.param) == (400, PARAM)
        assert result.code in [*case["codes"], "empty_image_file"]
    else:
        assert "accept" in case["decisions"]
        assert result.size == tuple(case["size"])
        assert probe(as_file(case["file"]), ImageLimits(), PARAM).stored == Size(*case["stored"])
        for x, y, colour, tolerance in case["probes"]:
            seen = result.getpixel((int(x * result.width), int(y * result.height)))
            assert max(abs(a - b) for a, b in zip(seen, colour, strict=True)) <= tolerance, (x, y, seen)


@pytest.mark.parametrize("name", ["jpeg_ok.jpg", "jpeg_gray.jpg", "png_ok.png", "webp_lossy.webp", "avif_small.avif"])
def test_a_plain_file_goes_on_byte_for_byte(name):
    assert prepared(as_file(name)) is None


def test_what_stands_behind_a_jpeg_is_not_sent_on():
    changed = prepared(as_file("jpeg_trailing_garbage.jpg"))

    assert changed.why == {"trailing_bytes"}
    assert pybase64.b64decode(changed.base64).endswith(b"\xff\xd9")
    assert pybase64.b64decode(changed.base64).count(b"\xff\xd9") == 1
