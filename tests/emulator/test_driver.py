"""The engine in time: steps keep their rhythm, tokens reach who waits, a frozen or dead engine delivers nothing."""

import asyncio
from array import array
from collections.abc import AsyncIterator

import pytest

from gateway.emulator.config import EmulatorConfig, StepCost
from gateway.emulator.driver import Delivery, Driver
from gateway.emulator.engine import Engine, Sequence
from gateway.emulator.errors import ApiError
from gateway.emulator.prompt import Prompt

ONE_SECOND = StepCost(1.0, 0.0, 0.0, 0.0)


class Time:
    """A clock that only moves when the driver sleeps, and then always oversleeps."""

    def __init__(self) -> None:
        self.now = 100.0
        self.naps: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.naps.append(seconds)
        self.now += seconds + 0.25
        await asyncio.sleep(0)


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
async def driver(time: Time) -> AsyncIterator[Driver]:
    driver = Driver(Engine(EmulatorConfig()), ONE_SECOND, clock=time, sleep=time.sleep)
    yield driver
    await driver.stop()


def sequence(output_tokens: int) -> Sequence:
    return Sequence(Prompt(array("H", [7, 8, 9])), output_tokens)


async def test_tokens_arrive_in_order_until_the_last(driver: Driver) -> None:
    one = sequence(3)
    delivery = driver.submit([one])

    arrived = []
    while emissions := await delivery.next():
        arrived += emissions
    assert arrived == [(one, 0, None), (one, 1, None), (one, 2, "length")]


async def test_oversleeping_does_not_add_up(driver: Driver, time: Time) -> None:
    await driver.submit([sequence(5)]).end()

    assert time.naps == [1.0, 0.75, 0.75, 0.75, 0.75]
    assert time.now == 105.25


async def test_an_idle_time_is_not_caught_up(driver: Driver, time: Time) -> None:
    await driver.submit([sequence(1)]).end()
    time.now += 50
    await driver.submit([sequence(1)]).end()

    assert time.naps == [1.0, 1.0]


async def test_the_end_comes_when_every_sequence_has_ended(driver: Driver) -> None:
    short, long = sequence(1), sequence(4)

    await driver.submit([short, long]).end()

    assert (short.generated, long.generated) == (1, 4)


async def test_what_is_abandoned_is_aborted_and_makes_room(driver: Driver) -> None:
    one, other = sequence(1_000), sequence(2)
    delivery = driver.submit([one])
    await delivery.next()

    driver.abandon([one])
    driver.abandon([one])
    await driver.submit([other]).end()
    assert one.aborted
    assert one.generated < 10


async def test_a_frozen_engine_goes_on_where_it_stopped(driver: Driver) -> None:
    driver.set_frozen(frozen=True)
    delivery = driver.submit([sequence(2)])
    for _ in range(20):
        await asyncio.sleep(0)
    waiting = asyncio.ensure_future(delivery.end())
    await asyncio.sleep(0)

    assert not waiting.done()
    driver.set_frozen(frozen=False)
    await waiting


async def test_a_dead_engine_fails_what_is_in_flight_and_what_comes(driver: Driver) -> None:
    ending, streaming = driver.submit([sequence(1_000)]), driver.submit([sequence(1_000)])
    await streaming.next()
    driver.die()

    for broken in (ending.end(), streaming.next()):
        with pytest.raises(ApiError) as failure:
            await broken
        assert failure.value.message.startswith("EngineCore encountered an issue.")
    with pytest.raises(ApiError):
        driver.submit([sequence(1)])


async def test_an_end_that_has_already_come_is_not_waited_for() -> None:
    one = sequence(1)
    delivery = Delivery(1)
    delivery.put((one, 0, "length"))

    await delivery.end()
    assert await delivery.next() == [(one, 0, "length")]
    assert await delivery.next() == []


async def test_a_driver_that_never_ran_stops_too() -> None:
    await Driver(Engine(EmulatorConfig()), ONE_SECOND).stop()
