"""What is remembered of images that a server was sent under a `uuid`."""

import pytest

from gateway.domain.geometry import Size
from gateway.domain.image import ImageFormat, ImageInfo
from gateway.domain.named_images import NamedImage, NamedImages, Naming
from gateway.domain.remembered import REMEMBERED_SECONDS

SIZE = Size(28, 28)
INFO = ImageInfo(ImageFormat.PNG, SIZE, SIZE, 1, 1, 100, is_lossy=False)


def naming(tenant="a", uuid="1", name="n"):
    return Naming(tenant, uuid, NamedImage(name, b"digest", INFO))


@pytest.fixture
def images():
    return NamedImages(most=3)


def test_each_tenant_finds_its_own(images):
    images.keep(naming(), now=0)
    images.keep(naming(tenant="b", name="m"), now=0)

    assert images.recall("a", "1", 1).name == "n"
    assert images.recall("b", "1", 1).name == "m"
    assert images.recall("c", "1", 1) is None
    assert images.recall("a", "2", 1) is None


def test_the_last_one_under_a_word_counts(images):
    images.keep(naming(), now=0)
    images.keep(naming(name="newer"), now=1)
    assert images.recall("a", "1", 2).name == "newer"
    assert len(images) == 1


def test_what_is_not_needed_for_a_day_is_gone(images):
    images.keep(naming(), now=0)
    images.keep(naming(uuid="2"), now=10)
    images.keep(naming(), now=20)

    assert images.recall("a", "1", REMEMBERED_SECONDS + 19) is not None
    assert images.recall("a", "2", REMEMBERED_SECONDS + 10) is None
    assert images.recall("a", "1", REMEMBERED_SECONDS + 20) is None

    images.keep(naming(uuid="3"), now=REMEMBERED_SECONDS + 20)
    assert len(images) == 1


def test_what_was_not_needed_for_longest_makes_place(images):
    for uuid in "1234":
        images.keep(naming(uuid=uuid), now=0)
        images.keep(naming(uuid="1"), now=0)
    assert [uuid for uuid in "1234" if images.recall("a", uuid, 0)] == ["1", "3", "4"]


def test_what_the_server_lost_is_forgotten(images):
    images.keep(naming(), now=0)
    images.lose(naming(uuid="2"))
    images.lose(naming())
    assert images.recall("a", "1", 0) is None


def test_what_was_sent_since_stays(images):
    images.keep(naming(name="newer"), now=0)
    images.lose(naming())
    assert images.recall("a", "1", 0).name == "newer"


def test_a_server_that_starts_anew_has_none(images):
    images.keep(naming(), now=0)
    images.forget()
    assert len(images) == 0
