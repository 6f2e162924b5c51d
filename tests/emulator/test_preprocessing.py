"""One thread for all: requests queue for it in order, and what was processed before is free."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from gateway.emulator.content import ImageRef
from gateway.emulator.errors import ApiError
from gateway.emulator.pictures import Picture
from gateway.emulator.preprocessing import Preprocessor
from tests.support.pictures import data_url, encoded, picture

RATE = 1_000.0


class Time:
    """Sleepers wake only when the test says so."""

    def __init__(self) -> None:
        self.sleepers: list[tuple[float, asyncio.Future[None]]] = []

    async def sleep(self, seconds: float) -> None:
        wake = asyncio.get_running_loop().create_future()
        self.sleepers.append((seconds, wake))
        await wake

    async def wake_first(self) -> float:
        seconds, wake = self.sleepers.pop(0)
        wake.set_result(None)
        await settle()
        return seconds


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
async def preprocessor(time: Time) -> AsyncIterator[Preprocessor]:
    preprocessor = Preprocessor(RATE, sleep=time.sleep)
    yield preprocessor
    preprocessor.close()


def ref(width: int, height: int, seed: int = 0) -> ImageRef:
    return ImageRef(data_url(encoded(picture(width, height, seed=seed))))


async def begin(preprocessor: Preprocessor, *refs: ImageRef) -> "asyncio.Task[object]":
    task = asyncio.create_task(preprocessor.process(refs, await preprocessor.decode(refs)))
    await settle()
    return task


async def test_requests_are_processed_one_after_the_other_at_the_rate(preprocessor: Preprocessor, time: Time) -> None:
    first = await begin(preprocessor, ref(50, 40), ref(10, 10))
    second = await begin(preprocessor, ref(20, 10))

    assert [seconds for seconds, _ in time.sleepers] == [2.1]
    await time.wake_first()
    assert first.done()
    assert not second.done()
    assert await time.wake_first() == 0.2
    assert second.done()


async def test_a_picture_seen_before_costs_nothing(preprocessor: Preprocessor, time: Time) -> None:
    first = await begin(preprocessor, ref(50, 40))
    await time.wake_first()
    again = await begin(preprocessor, ref(50, 40))

    assert again.result() == first.result()
    assert (preprocessor.cache.queries, preprocessor.cache.hits) == (2, 1)


async def test_who_leaves_while_queued_takes_the_job_along(preprocessor: Preprocessor, time: Time) -> None:
    await begin(preprocessor, ref(50, 40))
    leaving = await begin(preprocessor, ref(20, 10))
    staying = await begin(preprocessor, ref(30, 10))

    leaving.cancel()
    await time.wake_first()
    assert [seconds for seconds, _ in time.sleepers] == [0.3]
    await time.wake_first()
    assert staying.done()


async def test_work_that_has_begun_runs_to_its_end_without_its_client(preprocessor: Preprocessor, time: Time) -> None:
    leaving = await begin(preprocessor, ref(50, 40))
    staying = await begin(preprocessor, ref(20, 10))

    leaving.cancel()
    await settle()
    assert leaving.cancelled()
    assert [seconds for seconds, _ in time.sleepers] == [2.0]
    await time.wake_first()
    await time.wake_first()
    assert staying.done()


async def test_a_lone_uuid_without_a_picture_is_refused(preprocessor: Preprocessor) -> None:
    with pytest.raises(ApiError) as refusal:
        await preprocessor.process([ImageRef(None, "never")], [None])

    assert refusal.value.message == "Cache miss for image at index 0 but data is not provided."


async def test_nothing_to_do_takes_no_time(preprocessor: Preprocessor, time: Time) -> None:
    assert await preprocessor.process([], await preprocessor.decode([])) == []
    assert time.sleepers == []


@pytest.mark.parametrize("url", [None, ""])
async def test_a_uuid_stands_for_the_picture_that_was_sent_under_it_until_that_is_forgotten(
    preprocessor: Preprocessor, url: str | None
) -> None:
    picture = Picture(28, 28, b"mine")
    preprocessor.cache.keep(b"mine", picture)
    alone = [ImageRef(url, "mine")]

    assert await preprocessor.decode(alone) == [None]
    assert await preprocessor.process(alone, [None]) == [picture]
    preprocessor.cache.clear()
    with pytest.raises(ApiError):
        await preprocessor.process(alone, [None])
