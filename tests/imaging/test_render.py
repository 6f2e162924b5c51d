"""Pixels in, pixels out: as vLLM would show them, turned, opaque, of the target's size, the same bytes each time."""

import io
import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pybase64
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageCms, ImageOps

from gateway.domain.errors import Code, GatewayError
from gateway.domain.geometry import Size
from gateway.domain.image import ImageInfo, Why
from gateway.imaging import render as render_module
from gateway.imaging.limits import ImageLimits, most_output_bytes
from gateway.imaging.probe import probe
from gateway.imaging.render import ENCODER_ID, Rendered, render
from gateway.wire.encoded_file import EncodedFile
from tests.support.pictures import encoded, picture


def info_of(file: bytes) -> ImageInfo:
    return probe(EncodedFile(pybase64.b64encode(file)), ImageLimits(), "image")


def rendered(file: bytes, target: Size | None = None) -> Rendered:
    info = info_of(file)
    return render(file, info, target or info.size)


def opened(out: Rendered) -> Image.Image:
    return Image.open(io.BytesIO(out.file))


def pixels(image: Image.Image) -> np.ndarray:
    return np.asarray(image.convert("RGB"), dtype=np.int16)


def as_vllm_shows(file: bytes) -> Image.Image:
    """vllm/multimodal/media/image.py and image.py of 0.32, put together."""
    image = ImageOps.exif_transpose(Image.open(io.BytesIO(file)))
    if image.mode in {"RGBA", "LA", "PA"} or "transparency" in image.info:
        image = image.convert("RGBA")
        white = Image.new("RGB", image.size, (255, 255, 255))
        white.paste(image, mask=image.split()[3])
        return white
    return image.convert("RGB")


LOSSLESS = [
    ("PNG", "RGB", {}),
    ("PNG", "L", {}),
    ("PNG", "1", {}),
    ("PNG", "P", {}),
    ("PNG", "P", {"transparency": 3}),
    ("PNG", "P", {"transparency": bytes(range(0, 250, 5))}),
    ("PNG", "RGB", {"transparency": (255, 128, 1)}),
    ("PNG", "RGBA", {}),
    ("PNG", "LA", {}),
    ("GIF", "P", {}),
    ("GIF", "P", {"transparency": 3}),
    ("GIF", "L", {}),
    ("BMP", "RGB", {}),
    ("BMP", "P", {}),
    ("TIFF", "RGBA", {}),
    ("TIFF", "CMYK", {}),
    ("TIFF", "YCbCr", {}),
    ("WEBP", "RGBA", {"lossless": True}),
]


@pytest.mark.parametrize(("file_format", "mode", "options"), LOSSLESS)
def test_lossless_sources_keep_every_pixel_that_vllm_would_show(file_format, mode, options):
    file = encoded(picture(40, 30, mode=mode), file_format, **options)
    out = rendered(file)

    assert out.media_type == "image/webp"
    assert np.array_equal(pixels(opened(out)), pixels(as_vllm_shows(file)))


SIXTEEN_BITS = Image.fromarray(np.linspace(0, 65_535, 41 * 31).astype(np.uint16).reshape(31, 41))


@pytest.mark.parametrize(("file_format", "mode", "options"), [*LOSSLESS, ("PNG", "I;16", {}), ("TIFF", "I;16", {})])
def test_flattening_in_bands_changes_no_byte(file_format, mode, options, monkeypatch):
    source = SIXTEEN_BITS if mode == "I;16" else picture(41, 31, mode=mode)
    file = encoded(source, file_format, **options)
    in_one = rendered(file)
    for band_pixels in (1, 41 * 7):
        monkeypatch.setattr(render_module, "_BAND_PIXELS", band_pixels)
        assert rendered(file) == in_one


@pytest.mark.parametrize(
    ("file_format", "mode"), [("JPEG", "RGB"), ("JPEG", "L"), ("JPEG", "CMYK"), ("WEBP", "RGBA"), ("AVIF", "RGBA")]
)
def test_lossy_sources_become_jpeg_with_the_same_picture(file_format, mode):
    file = encoded(picture(120, 90, mode=mode), file_format)
    out = rendered(file)

    assert out.media_type == "image/jpeg"
    assert opened(out).mode == ("L" if mode == "L" else "RGB")
    assert np.abs(pixels(opened(out)) - pixels(as_vllm_shows(file))).mean() < 2.5


@pytest.mark.parametrize(
    ("file_format", "orientation"), [*itertools.product(["JPEG", "PNG", "WEBP", "TIFF", "AVIF"], range(2, 9))]
)
def test_orientation_is_applied_and_gone(file_format, orientation):
    file = encoded(picture(48, 32), file_format, orientation=orientation)
    out = rendered(file)

    assert opened(out).getexif().get(0x0112) is None
    assert np.abs(pixels(opened(out)) - pixels(as_vllm_shows(file))).mean() < 2.5
    assert Why.ORIENTATION in out.why


@pytest.mark.parametrize("file_format", ["PNG", "TIFF"])
def test_sixteen_bits_are_scaled_not_clipped(file_format):
    ramp = np.arange(0, 65536, 256, dtype=np.uint16)[None, :].repeat(4, axis=0)
    out = rendered(encoded(Image.fromarray(ramp), file_format))

    assert np.array_equal(pixels(opened(out))[0, :, 0], np.arange(256))
    assert out.why == {Why.MODE}


def test_big_endian_sixteen_bits_too():
    ramp = Image.fromarray(np.arange(0, 65536, 256, dtype=np.uint16)[None, :].repeat(4, axis=0))
    file = encoded(ramp.convert("I").convert("I;16B"), "TIFF")

    assert np.array_equal(pixels(opened(rendered(file)))[0, :, 0], np.arange(256))


def test_a_transparent_grey_of_sixteen_bits_is_white():
    grey = Image.fromarray(np.array([[300, 40_000]], dtype=np.uint16))
    file = encoded(grey, "PNG", transparency=300)

    assert pixels(opened(rendered(file)))[0, :, 0].tolist() == [255, 156]


def test_the_first_frame_is_shown():
    frames = [Image.new("RGB", (20, 20), colour) for colour in ("red", "blue", "lime")]
    for file_format in ("GIF", "PNG", "WEBP", "TIFF"):
        file = encoded(
            frames[0],
            file_format,
            save_all=True,
            append_images=frames[1:],
            **({"lossless": True} if file_format == "WEBP" else {}),
        )
        out = rendered(file)
        assert opened(out).getpixel((9, 9)) == (255, 0, 0)
        assert getattr(opened(out), "n_frames", 1) == 1


def test_profiles_comments_and_exif_stay_behind():
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB")).tobytes()
    exif = Image.Exif()
    exif[0x010F] = "maker"
    for file_format in ("JPEG", "PNG", "WEBP"):
        file = encoded(picture(40, 30), file_format, icc_profile=profile, exif=exif, comment=b"words")
        out = rendered(file)
        assert not {"icc_profile", "exif", "comment"} & set(opened(out).info)
        assert np.abs(pixels(opened(out)) - pixels(as_vllm_shows(file))).mean() < 2.5


def test_jpeg_output_keeps_full_colour_resolution():
    file = encoded(picture(64, 48), "JPEG", subsampling="4:2:0")

    assert [layer[1:3] for layer in opened(rendered(file)).layer] == [(1, 1)] * 3


@pytest.mark.parametrize("file_format", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize(("orientation", "target"), [(1, Size(56, 28)), (6, Size(28, 56)), (3, Size(84, 84))])
def test_resizing_reaches_the_target_and_keeps_the_picture(file_format, orientation, target):
    file = encoded(picture(224, 112), file_format, orientation=orientation)
    out = rendered(file, target)

    assert opened(out).size == (target.width, target.height)
    reference = as_vllm_shows(file).resize((target.width, target.height), Image.Resampling.BICUBIC)
    assert np.abs(pixels(opened(out)) - pixels(reference)).mean() < 6
    assert Why.RESIZE in out.why


def test_bringing_a_sliver_up_to_the_models_unit_has_its_own_name():
    assert rendered(encoded(picture(199, 1)), Size(784, 28)).why == {Why.TOO_SMALL}


def test_hidden_colours_do_not_bleed_through_resizing():
    image = Image.new("RGBA", (64, 64), (255, 0, 0, 0))
    image.paste((0, 0, 255, 255), (32, 0, 64, 64))
    out = pixels(opened(rendered(encoded(image), Size(28, 28))))

    assert out[:, :, 0].max() == 255
    assert (out[:, :, 0] <= out[:, :, 2]).all()


def test_a_strip_too_long_for_webp_becomes_png():
    out = rendered(encoded(picture(16_400, 84, mode="L")))

    assert out.media_type == "image/png"
    assert opened(out).size == (16_400, 84)


def test_the_same_file_gives_the_same_bytes_in_every_thread():
    files = [encoded(picture(300, 200), name, orientation=6) for name in ("JPEG", "PNG", "WEBP", "AVIF")]
    with ThreadPoolExecutor(4) as pool:
        outs = list(pool.map(lambda file: rendered(file, Size(112, 168)).file, files * 6))

    assert len(set(outs)) == len(files)


@settings(max_examples=40)
@given(
    mode=st.sampled_from(["RGB", "L", "RGBA", "P", "1", "I;16"]),
    file_format=st.sampled_from(["JPEG", "PNG", "TIFF"]),
    target=st.tuples(st.integers(1, 4), st.integers(1, 4)).map(lambda units: Size(28 * units[0], 28 * units[1])),
)
def test_what_was_rendered_needs_nothing_more(mode, file_format, target):
    image = picture(90, 70, mode=mode)
    once = rendered(encoded(image.convert("RGB") if file_format == "JPEG" else image, file_format), target)
    info = info_of(once.file)

    assert info.size == info.stored == target
    assert info.why == set()
    twice = render(once.file, info, target)
    assert (opened(twice).size, opened(twice).mode) == (opened(once).size, opened(once).mode)


def test_a_damaged_picture_is_refused():
    file = encoded(picture(90, 70))
    with pytest.raises(GatewayError, match=r"^The png cannot be decoded"):
        render(file[:-400], info_of(file), Size(28, 28))


def noise(width: int, height: int, *, levels: int = 256, seed: int = 0) -> Image.Image:
    values = np.random.default_rng(seed).integers(0, levels, (height, width, 3))
    return Image.fromarray((values * (255 // (levels - 1))).astype(np.uint8), "RGB")


@settings(max_examples=40)
@given(
    width=st.integers(1, 200),
    height=st.integers(1, 200),
    levels=st.sampled_from([2, 3, 256]),
    file_format=st.sampled_from(["JPEG", "PNG", "AVIF"]),
    claimed_bytes=st.integers(1, 2000),
)
def test_nothing_grows_beyond_its_bound(width, height, levels, file_format, claimed_bytes):
    """The hardest pictures there are, as if their files were tiny."""
    file = encoded(noise(width, height, levels=levels), file_format, **({"speed": 10} if file_format == "AVIF" else {}))
    info = replace(info_of(file), file_bytes=claimed_bytes)

    assert len(render(file, info, info.size).file) <= most_output_bytes(claimed_bytes, info.size)


def test_a_picture_of_very_low_quality_does_not_grow_tenfold():
    file = encoded(noise(600, 400), "JPEG", quality=1, orientation=6)
    out = rendered(file)

    assert len(out.file) <= most_output_bytes(len(file), Size(400, 600))
    assert opened(out).format == "JPEG"


def test_a_photograph_keeps_full_quality():
    file = encoded(picture(600, 400), "JPEG", quality=85, orientation=6)
    expected = io.BytesIO()
    ImageOps.exif_transpose(Image.open(io.BytesIO(file))).save(expected, "JPEG", quality=90, subsampling="4:4:4")

    assert opened(rendered(file)).quantization == Image.open(expected).quantization


def test_a_lossless_picture_that_would_outgrow_its_bound_becomes_a_photograph():
    file = encoded(noise(300, 200))
    out = render(file, replace(info_of(file), file_bytes=1000), Size(300, 200))

    assert (out.media_type, opened(out).format) == ("image/jpeg", "JPEG")


def test_what_no_encoder_makes_small_enough_is_refused():
    """A strip too long for WebP and for JPEG."""
    file = encoded(noise(66_000, 8))
    info = replace(info_of(encoded(noise(200, 1))), stored=Size(66_000, 8), size=Size(66_000, 8))

    assert render(file, replace(info, file_bytes=len(file)), info.size).media_type == "image/png"
    with pytest.raises(GatewayError, match="would then have over") as caught:
        render(file, info, info.size)
    assert caught.value.code is Code.IMAGE_TOO_LARGE


def test_the_encoder_names_all_that_decides_the_bytes():
    assert ENCODER_ID.startswith("pillow-")
    assert all(
        part in ENCODER_ID
        for part in ("libjpeg_turbo-", "webp-", "jpeg-q90-444", "webp-lossless-m0-q0", "bicubic", "2x-4bpp")
    )
