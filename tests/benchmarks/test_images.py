"""The benchmark of pictures, on small ones: its sums and its judgement of quality."""

import numpy as np
import pytest
from PIL import Image, ImageFilter

from benchmarks import images
from gateway.domain.geometry import Size
from tests.support.pictures import picture


def test_the_same_picture_has_an_ssim_of_one_and_worse_ones_have_less():
    original = images.photograph(160, 120)
    blurred = original.filter(ImageFilter.GaussianBlur(1))
    worse = original.filter(ImageFilter.GaussianBlur(3))
    noise = Image.fromarray(np.random.default_rng(2).integers(0, 256, (120, 160, 3), dtype=np.uint8))
    seen = [images.ssim(original, other) for other in (original, blurred, worse, noise)]
    assert seen[0] == pytest.approx(1.0)
    assert seen == sorted(seen, reverse=True)
    assert seen[-1] < 0.3


def test_a_negative_is_no_likeness():
    grey = picture(80, 80).convert("L")
    assert images.ssim(grey, Image.eval(grey, lambda value: 255 - value)) < 0.2


@pytest.mark.parametrize(
    ("size", "target"),
    [(Size(4000, 3000), Size(1148, 840)), (Size(400, 300), Size(392, 280)), (Size(20, 20), Size(28, 28))],
)
def test_targets_lie_on_the_grid_below_a_million_pixels(size, target):
    assert images.target_of(size) == target


def test_a_quick_run_prints_every_row(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setattr("sys.argv", ["images", "--quick"])
    images.main()
    printed = capsys.readouterr().out
    for name in ("0 MP JPEG", "0 MP PNG", "0 MP WEBP", "SSIM"):
        assert name in printed
