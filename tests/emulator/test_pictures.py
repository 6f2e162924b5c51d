"""What the loader finds in files, and the sentence for each that it cannot load."""

import pytest

from gateway.emulator.errors import ApiError
from gateway.emulator.pictures import Picture, PictureCache, load, load_video
from tests.support.pictures import data_url, encoded, frames_url, picture


def test_the_size_is_the_one_after_orientation() -> None:
    upright = load(data_url(encoded(picture(80, 20), "JPEG")))
    turned = load(data_url(encoded(picture(80, 20), "JPEG", orientation=6)))

    assert (upright.width, upright.height, upright.pixels) == (80, 20, 1_600)
    assert (turned.width, turned.height) == (20, 80)


def test_the_identity_is_that_of_the_bytes_not_of_the_picture() -> None:
    png, jpeg = (data_url(encoded(picture(8, 8), file_format)) for file_format in ("PNG", "JPEG"))

    assert load(png) == load(png)
    assert load(png).identity != load(jpeg).identity


@pytest.mark.parametrize(
    ("url", "status", "beginning"),
    [
        ("https://example.invalid/a.jpg", 500, "Cannot connect to host example.invalid:443 ssl:default [Name or"),
        ("http://127.0.0.1:9/x.jpg", 500, "Cannot connect to host 127.0.0.1:9 ssl:default [Connect call failed"),
        ("http://[broken", 400, "The URL must be either a HTTP, data or file URL."),
        ("file:///etc/hostname", 500, "Cannot load local files"),
        (data_url(b"%!PS-Adobe-3.0 EPSF-3.0\n"), 400, "Failed to load image: cannot identify image file <_io.BytesIO"),
    ],
)
def test_what_cannot_be_loaded(url: str, status: int, beginning: str) -> None:
    with pytest.raises(ApiError) as refusal:
        load(url)

    assert refusal.value.status == status
    assert refusal.value.message.startswith(beginning)
    assert " at 0x" not in refusal.value.message


@pytest.mark.parametrize(
    ("raised", "status"), [(ValueError("odd"), 400), (OverflowError("odd"), 400), (RuntimeError("odd"), 500)]
)
def test_what_the_image_library_raises_decides_the_status(
    monkeypatch: pytest.MonkeyPatch, raised: Exception, status: int
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise raised

    monkeypatch.setattr("gateway.emulator.pictures.Image.open", broken)
    with pytest.raises(ApiError) as refusal:
        load(data_url(b"any"))

    assert (refusal.value.status, refusal.value.message) == (status, "odd")


def test_a_list_of_pictures_is_a_video_of_up_to_32_frames() -> None:
    video = load_video(frames_url(3, 80, 20))
    assert (video.frames, video.width, video.height, video.pixels) == (3, 80, 20, 4_800)
    assert load_video(frames_url(40, 8, 8)).frames == 32
    assert video.identity != load_video(frames_url(4, 80, 20)).identity


@pytest.mark.parametrize(
    ("url", "status", "beginning"),
    [
        ("data:video/mp4;base64,AAAA", 400, "Could not open video stream"),
        ("http://127.0.0.1:9/x.mp4", 500, "Cannot connect to host"),
        (frames_url(1, 8, 8) + "," + frames_url(1, 9, 8).partition(",")[2], 400, "all input arrays must have"),
        ("data:video/jpeg;base64,AAAA", 400, "Failed to load image"),
    ],
)
def test_videos_that_cannot_be_loaded(url: str, status: int, beginning: str) -> None:
    with pytest.raises(ApiError) as refusal:
        load_video(url)

    assert refusal.value.status == status
    assert refusal.value.message.startswith(beginning)


def test_the_cache_keeps_the_latest_used() -> None:
    cache = PictureCache(capacity_pictures=2)
    pictures = {key: Picture(1, 1, key) for key in (b"a", b"b", b"c")}
    cache.keep(b"a", pictures[b"a"])
    cache.keep(b"b", pictures[b"b"])
    cache.look_up(b"a")
    cache.keep(b"c", pictures[b"c"])

    assert [cache.look_up(key) for key in pictures] == [pictures[b"a"], None, pictures[b"c"]]
    assert (cache.queries, cache.hits) == (4, 3)
