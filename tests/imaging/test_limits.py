from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.geometry import Size
from gateway.domain.image import ImageFormat, ImageInfo, Why
from gateway.imaging.limits import (
    ACCEPTED_FORMATS,
    ImageLimits,
    bytes_for_pixels,
    draft_scale,
    job_bytes,
    look_bytes,
    most_output_bytes,
    webp_table_bytes,
    worst_job_bytes,
)

TWELVE = Size(4000, 3000)
SMALL = Size(1152, 868)
JPEG, AVIF = ImageFormat.JPEG, ImageFormat.AVIF


def info(image_format: ImageFormat, *why: Why, is_progressive: bool = False) -> ImageInfo:
    return ImageInfo(
        format=image_format,
        stored=TWELVE,
        size=TWELVE,
        orientation=1,
        frames=1,
        file_bytes=3_000_000,
        is_lossy=image_format is ImageFormat.JPEG,
        why=frozenset(why),
        is_progressive=is_progressive,
    )


def test_limits_of_a_large_budget_are_the_settings():
    limits = ImageLimits()

    assert limits.pixel_limit(ImageFormat.PNG) == 50_000_000
    assert limits.pixel_limit(ImageFormat.JPEG) == 100_000_000
    assert limits.pixel_limit(ImageFormat.JPEG, is_progressive=True) == 50_000_000


def test_the_defaults_hold_for_every_format_on_a_machine_of_eight_gib():
    """A quarter of it is for decoding; the largest file comes on top."""
    limits = ImageLimits(decode_bytes=(2 << 30) - (20 << 20))

    assert {limits.pixel_limit(image_format) for image_format in ACCEPTED_FORMATS} == {50_000_000, 100_000_000}
    assert limits.pixel_limit(ImageFormat.JPEG, is_progressive=True) == 50_000_000


def test_a_small_budget_bounds_each_format_by_what_it_needs_at_worst():
    limits = ImageLimits(decode_bytes=90_000_000)

    assert limits.pixel_limit(ImageFormat.PNG) == int((90_000_000 - (8 << 20)) / 30.5)
    assert limits.pixel_limit(ImageFormat.WEBP) == int((90_000_000 - (8 << 20)) / 38.5)
    assert limits.pixel_limit(ImageFormat.JPEG) == int((90_000_000 - (8 << 20)) / 10.5)
    assert limits.pixel_limit(ImageFormat.JPEG, is_progressive=True) == int((90_000_000 - (8 << 20)) / 17)
    assert ImageLimits(decode_bytes=1_000_000).pixel_limit(ImageFormat.PNG) == int(1_000_000 / 46.5)


@pytest.mark.parametrize("image_format", sorted(ACCEPTED_FORMATS))
def test_an_image_at_its_limit_fits_the_budget(image_format):
    limits = ImageLimits(decode_bytes=90_000_000)
    pixels = limits.pixel_limit(image_format)

    assert bytes_for_pixels(pixels, image_format) <= 90_000_000 < bytes_for_pixels(pixels + 2, image_format)


@given(
    image_format=st.sampled_from(sorted(ACCEPTED_FORMATS)),
    why=st.sets(st.sampled_from(Why)),
    flags=st.tuples(st.booleans(), st.booleans()),
    target=st.none() | st.builds(Size, st.integers(1, TWELVE.width), st.integers(1, TWELVE.height)),
)
def test_no_job_exceeds_the_worst_case(image_format, why, flags, target):
    is_lossy, is_progressive = flags
    known = replace(
        info(image_format, *why, is_progressive=is_progressive), is_lossy=is_lossy or image_format in {JPEG, AVIF}
    )

    assert job_bytes(known, target) <= worst_job_bytes(known) + webp_table_bytes(known)


def test_no_image_may_grow_beyond_twice_its_file_or_four_bits_a_pixel():
    assert most_output_bytes(3_000_000, SMALL) == 6_002_048
    assert most_output_bytes(100, SMALL) == SMALL.pixels // 2 + 2048


def test_looking_counts_the_copies_of_a_file_and_the_picture_in_an_icon():
    assert 3_000_000 < look_bytes(ImageFormat.AVIF, 1_000_000) < 3_100_000
    assert look_bytes(ImageFormat.ICO, 100) > 4 * 1024**2 + 4 * 1024**2


def test_looking_counts_the_numbers_that_a_tiff_may_hold():
    assert look_bytes(ImageFormat.TIFF, 1000) - look_bytes(ImageFormat.TIFF, 0) == 103_000
    assert look_bytes(ImageFormat.TIFF, 20_000_000) < 60_000_000 + 53_000_000


@pytest.mark.parametrize(
    ("wanted", "scale"), [(SMALL, 2), (Size(500, 375), 8), (Size(501, 375), 4), (TWELVE, 1), (Size(0, 0), 8)]
)
def test_draft_scale_stays_above_what_is_wanted(wanted, scale):
    assert draft_scale(TWELVE, wanted) == scale


def test_looking_at_a_photograph_costs_little_and_shrinking_it_more():
    looking = job_bytes(info(ImageFormat.JPEG), None)
    shrinking = job_bytes(info(ImageFormat.JPEG), SMALL)

    assert looking < 13e6
    assert 25e6 < shrinking < 40e6


def test_progressive_scans_are_paid_for_at_every_scale():
    plain, progressive = (job_bytes(info(ImageFormat.JPEG, is_progressive=p), SMALL) for p in (False, True))

    assert progressive - plain == 6.5 * TWELVE.pixels


def test_what_a_header_shows_beside_pixels_is_paid_for():
    plain = info(ImageFormat.TIFF)
    tiled = replace(plain, extra_bytes=1000)

    assert job_bytes(tiled, SMALL) - job_bytes(plain, SMALL) == 1000
    assert worst_job_bytes(tiled) - worst_job_bytes(plain) == 1000


@pytest.mark.parametrize(
    ("image_format", "is_lossy", "why", "stored", "file_bytes", "sets"),
    [
        (ImageFormat.WEBP, False, set(), TWELVE, 3_000_000, 65_536),
        (ImageFormat.WEBP, True, {Why.ALPHA}, TWELVE, 30_000, 10_000),
        (ImageFormat.WEBP, False, set(), Size(400, 300), 3_000_000, 7_500),
        (ImageFormat.WEBP, True, set(), TWELVE, 3_000_000, 0),
        (ImageFormat.PNG, False, {Why.ALPHA}, TWELVE, 3_000_000, 0),
    ],
)
def test_a_lossless_webp_is_charged_for_the_tables_that_it_may_have(
    image_format, is_lossy, why, stored, file_bytes, sets
):
    known = replace(info(image_format, *why), is_lossy=is_lossy, stored=stored, file_bytes=file_bytes)

    assert webp_table_bytes(known) == 5700 * sets


def test_conversions_and_lossless_output_are_paid_for():
    """Either the conversion is the peak, or the encoder, when what was converted is gone."""
    looked_at = job_bytes(info(ImageFormat.PNG), None)

    converted, shrunk = (job_bytes(info(ImageFormat.PNG, Why.ALPHA), target) for target in (TWELVE, Size(8, 8)))
    assert converted - looked_at == pytest.approx((5 + 25.5 - 4.5) * TWELVE.pixels)
    assert shrunk - looked_at == pytest.approx(5 * TWELVE.pixels)


def test_a_tiny_image_costs_tiny_bytes():
    tiny = ImageInfo(ImageFormat.PNG, Size(8, 8), Size(8, 8), 1, 1, 200, is_lossy=False)

    assert job_bytes(tiny, None) < 2000
