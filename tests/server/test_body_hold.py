"""What one body holds of the budget while it comes, and that all of it comes back."""

import asyncio

import pytest

from gateway.domain.errors import GatewayError
from gateway.ledger.byte_budget import ByteBudget
from gateway.server.body_hold import FIRST_BYTES, MOST_STEP_BYTES, BodyHold
from gateway.server.door import Arrival
from gateway.server.receive import BodyLimits
from tests.support.clock import StoppedTime

KIB, MIB = 2**10, 2**20
LIMIT = 32 * MIB


@pytest.fixture
async def budget() -> ByteBudget:
    return ByteBudget(256 * MIB, purpose="request bodies", call_later=asyncio.get_running_loop().call_later)


def hold_of(budget, content_length, *, coding=b"", wait_seconds=30.0):
    limits = BodyLimits(LIMIT, LIMIT, min_bytes_per_second=16 * KIB)
    return BodyHold(budget, Arrival(content_length, content_encoding=coding), limits, wait_seconds)


def held(budget):
    return budget.statistics().held


@pytest.mark.parametrize("length", [0, 100, 200 * KIB, 5 * MIB])
async def test_a_body_that_is_here_takes_its_length(budget, length):
    hold = hold_of(budget, length)
    await hold.begin(is_here=True)
    assert held(budget) == length
    hold.settle(length)
    assert held(budget) == length
    hold.release()
    hold.release()
    assert held(budget) == 0


async def test_what_is_made_of_it_is_held_too_whether_it_fits_or_not(budget):
    hold = hold_of(budget, 100)
    await hold.begin(is_here=True)
    hold.settle(100)
    hold.hold_beside(300 * MIB)
    assert held(budget) == 100 + 300 * MIB
    assert not budget.try_acquire(100)
    hold.release()
    assert held(budget) == 0


@pytest.mark.parametrize(("length", "first"), [(100, 100), (5 * MIB, FIRST_BYTES), (None, FIRST_BYTES)])
@pytest.mark.parametrize("is_here", [False, True])
async def test_whatever_is_announced_the_beginning_is_small(budget, length, first, is_here):
    hold = hold_of(budget, length)
    await hold.begin(is_here=is_here and length is None)
    assert held(budget) == first
    assert not hold.is_ahead


async def test_one_that_comes_fast_gets_all_that_is_left(budget):
    hold = hold_of(budget, 5 * MIB)
    await hold.begin(is_here=False)
    assert not hold.has_room(FIRST_BYTES)
    await hold.grow(FIRST_BYTES, is_fast=True)
    assert held(budget) == 5 * MIB
    assert hold.is_ahead
    assert hold.has_room(5 * MIB)


async def test_one_of_unknown_length_that_comes_fast_is_taken_for_small_and_then_for_as_long_as_any(budget):
    hold = hold_of(budget, None)
    await hold.begin(is_here=False)
    await hold.grow(FIRST_BYTES, is_fast=True)
    assert held(budget) == 256 * KIB
    await hold.grow(256 * KIB, is_fast=True)
    assert held(budget) == LIMIT
    await hold.cover(3 * MIB)
    hold.settle(3 * MIB)
    assert held(budget) == 3 * MIB


@pytest.mark.parametrize("length", [5 * MIB, None])
async def test_one_that_comes_slowly_holds_little_more_than_has_come(budget, length):
    hold = hold_of(budget, length)
    await hold.begin(is_here=False)
    come = 0
    while come < 5 * MIB:
        come = held(budget)
        await hold.grow(come, is_fast=False)
        assert held(budget) - come <= min(max(come, FIRST_BYTES), MOST_STEP_BYTES)
    assert held(budget) == (length or 5 * MIB + MOST_STEP_BYTES)
    assert not hold.is_ahead
    hold.settle(5 * MIB)
    assert held(budget) == 5 * MIB
    hold.release()
    assert held(budget) == 0


async def test_a_step_beyond_the_limit_is_not_asked_for(budget):
    hold = hold_of(budget, None)
    await hold.begin(is_here=False)
    await hold.grow(LIMIT - 1, is_fast=False)
    await hold.grow(LIMIT, is_fast=False)
    assert held(budget) == LIMIT


@pytest.mark.parametrize("length", [5 * MIB, 200 * KIB, None])
async def test_one_that_falls_behind_gives_back_what_it_has_not_filled(budget, length):
    hold = hold_of(budget, length)
    await hold.begin(is_here=False)
    await hold.grow(20 * KIB, is_fast=True)
    hold.fall_back(30 * KIB)
    assert held(budget) == 60 * KIB
    assert not hold.is_ahead
    await hold.grow(60 * KIB, is_fast=True)
    hold.fall_back(180 * KIB)
    assert held(budget) == min(length or LIMIT, 256 * KIB if length is None else 360 * KIB)
    hold.release()
    assert held(budget) == 0


async def test_a_coded_one_holds_what_it_becomes_only_once_it_has_come(budget):
    hold = hold_of(budget, 100, coding=b"gzip")
    await hold.begin(is_here=True)
    assert held(budget) == 100
    await hold.make_room_to_decode(100)
    assert held(budget) == 100 + LIMIT
    hold.settle(5 * KIB)
    assert held(budget) == 5 * KIB


async def test_a_coded_one_that_comes_fast_asks_for_both_at_once(budget):
    """So nobody who holds much ever waits for more."""
    hold = hold_of(budget, MIB, coding=b"gzip")
    await hold.begin(is_here=False)
    await hold.grow(20 * KIB, is_fast=True)
    assert held(budget) == MIB + LIMIT
    await hold.make_room_to_decode(MIB)
    assert held(budget) == MIB + LIMIT


async def test_a_hundred_slow_ones_leave_room_for_fast_ones(budget):
    slow = [hold_of(budget, None if number % 2 else LIMIT) for number in range(100)]
    for hold in slow:
        await hold.begin(is_here=False)
        await hold.grow(FIRST_BYTES, is_fast=False)
    assert held(budget) == 100 * 2 * FIRST_BYTES
    refused = 0
    for come in range(2 * FIRST_BYTES, 4 * MIB, MOST_STEP_BYTES):
        for hold in list(slow):
            try:
                await hold.grow(come, is_fast=False)
            except GatewayError:
                refused += 1
                hold.release()
                slow.remove(hold)
    assert refused
    assert held(budget) <= 64 * MIB + 100 * FIRST_BYTES
    fast = [hold_of(budget, LIMIT) for _ in range(4)]
    for hold in fast:
        await hold.begin(is_here=False)
        await hold.grow(FIRST_BYTES, is_fast=True)
    for hold in slow + fast:
        hold.release()
    assert held(budget) == 0


async def test_all_its_waiting_together_is_bounded(monkeypatch):
    loop = asyncio.get_running_loop()
    time, patience = StoppedTime(monkeypatch), []

    def call_later(seconds, callback):
        patience.append(seconds)
        return loop.call_later(0 if len(patience) > 1 else seconds, callback)

    budget = ByteBudget(256 * MIB, purpose="request bodies", call_later=call_later)
    assert budget.try_acquire(256 * MIB)
    hold = hold_of(budget, 5 * MIB, wait_seconds=30.0)
    waiting = asyncio.create_task(hold.begin(is_here=False))
    await asyncio.sleep(0)
    time.advance(10.0)
    budget.release(256 * MIB)
    await waiting
    assert budget.try_acquire(192 * MIB)
    with pytest.raises(GatewayError, match="memory for request bodies is taken"):
        await hold.grow(FIRST_BYTES, is_fast=True)
    assert patience == pytest.approx([30.0, 20.0])
    hold.release()
    assert held(budget) == 192 * MIB
