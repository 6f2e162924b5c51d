"""What becomes of a picture whose process was lost."""

import pybase64
import pytest

from gateway.domain.errors import Code, GatewayError
from gateway.domain.geometry import Size
from gateway.imaging.limits import ImageLimits
from gateway.imaging.processes import WorkerLostError
from gateway.wire.encoded_file import EncodedFile
from tests.imaging.test_workers import PLAIN, SMALL, prepare, running
from tests.support.isolation import InThisProcess
from tests.support.pictures import encoded, picture

AVIF = encoded(picture(64, 48), "AVIF")


class Losing(InThisProcess):
    """Loses the process at the next jobs, for one cause after the other."""

    def __init__(self, *causes):
        self.causes = [*causes]
        self.jobs = 0

    def run(self, byte_count, work, file, *args):
        self.jobs += 1
        if self.causes:
            raise WorkerLostError(is_late=self.causes.pop(0) == "late")
        return super().run(byte_count, work, file, *args)


async def refusal(images, file=PLAIN, target=None):
    with pytest.raises(GatewayError) as caught:
        await prepare(images, file, target)
    assert caught.value.code is Code.IMAGE_PARSE_ERROR
    assert caught.value.param is not None
    return caught.value.message


async def test_one_whose_process_died_is_tried_once_more():
    losing = Losing("died")
    async with running(isolation=losing) as images:
        assert await prepare(images, PLAIN) is None
        assert losing.jobs == 2


async def test_one_that_ended_two_processes_is_never_tried_again_whatever_is_asked_of_it():
    losing = Losing("died", "died")
    async with running(isolation=losing) as images:
        assert "two worker processes" in await refusal(images)
        assert losing.jobs == 2
        assert "two worker processes" in await refusal(images)
        assert "two worker processes" in await refusal(images, target=SMALL)
        assert losing.jobs == 2
        assert await prepare(images, encoded(picture(64, 48, seed=1), "JPEG")) is None


async def test_one_that_took_too_long_is_told_so_and_may_come_back_once():
    losing = Losing("late", "late")
    async with running(isolation=losing) as images:
        assert "images.decode_seconds" in await refusal(images)
        assert losing.jobs == 1
        assert "two worker processes" in await refusal(images)
        assert "two worker processes" in await refusal(images)
        assert losing.jobs == 2


async def test_one_that_was_late_once_and_then_is_not_is_served():
    losing = Losing("late")
    async with running(isolation=losing) as images:
        await refusal(images)
        assert (await prepare(images, PLAIN, Size(28, 28))).media_type == "image/jpeg"


async def look(images, file=AVIF):
    return await images.look(EncodedFile(pybase64.b64encode(file)), ImageLimits(), "here")


async def test_headers_that_libraries_read_are_looked_at_by_the_same_rule():
    losing = Losing("died")
    async with running(isolation=losing) as images:
        assert (await look(images)).size == Size(64, 48)
        assert losing.jobs == 2
    losing = Losing("died", "died")
    async with running(isolation=losing) as images:
        for _ in range(2):
            with pytest.raises(GatewayError) as caught:
                await look(images)
            assert (caught.value.code, caught.value.param) == (Code.IMAGE_PARSE_ERROR, "here")
        assert losing.jobs == 2


async def test_a_damaged_header_is_no_loss():
    losing = Losing()
    async with running(isolation=losing) as images:
        with pytest.raises(GatewayError) as caught:
            await look(images, AVIF[:200])
        assert (caught.value.code, caught.value.param) == (Code.IMAGE_PARSE_ERROR, "here")
        assert losing.jobs == 1
