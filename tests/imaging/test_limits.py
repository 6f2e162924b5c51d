import pytest

from gateway.domain.geometry import Size
from gateway.domain.image import ImageFormat, ImageInfo, Why
from gateway.imaging.limits import ImageLimits, draft_scale, job_bytes

TWELVE = Size(4000, 3000)
SMALL = Size(1152, 868)


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


def test_a_small_budget_bounds_each_format_by_its_bytes_a_pixel():
    limits = ImageLimits(decode_bytes=90_000_000)

    assert limits.pixel_limit(ImageFormat.PNG) == 20_000_000
    assert limits.pixel_limit(ImageFormat.WEBP) == 5_142_857
    assert limits.pixel_limit(ImageFormat.JPEG, is_progressive=True) == 8_181_818


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


def test_conversions_and_lossless_output_are_paid_for():
    plain = job_bytes(info(ImageFormat.PNG), None)

    assert job_bytes(info(ImageFormat.PNG, Why.ALPHA), TWELVE) - plain == pytest.approx((5 + 25.5) * TWELVE.pixels)


def test_a_tiny_image_costs_tiny_bytes():
    tiny = ImageInfo(ImageFormat.PNG, Size(8, 8), Size(8, 8), 1, 1, 200, is_lossy=False)

    assert job_bytes(tiny, None) < 2000
