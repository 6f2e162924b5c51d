import asyncio
import random

import pytest

from gateway.domain.errors import GatewayError
from gateway.domain.outcome import Reason
from gateway.domain.ticket import SMALL_BODY_BYTES
from gateway.ledger.byte_budget import ByteBudget, ByteBudgetStatistics, Seats, Share

MIB = 2**20
SMALL = SMALL_BODY_BYTES


@pytest.fixture
def budget(clock) -> ByteBudget:
    return ByteBudget(16 * MIB, purpose="request bodies", call_later=clock.call_later)


async def waiting(budget, byte_count, timeout_seconds=30.0) -> asyncio.Task:
    before = budget.statistics().waiting
    task = asyncio.create_task(budget.acquire(byte_count, timeout_seconds))
    await asyncio.sleep(0)
    assert budget.statistics().waiting == before + 1
    return task


async def done(*tasks) -> list[bool]:
    await asyncio.sleep(0)
    return [task.done() for task in tasks]


class TestTaking:
    async def test_what_fits_is_taken_at_once(self, budget, clock):
        await budget.acquire(8 * MIB, 30.0)
        assert budget.try_acquire(4 * MIB)
        assert budget.statistics() == ByteBudgetStatistics(capacity=16 * MIB, held=12 * MIB, waiting=0)
        assert clock.pending == []

    async def test_a_quarter_is_kept_for_small_bodies(self, budget):
        assert budget.try_acquire(12 * MIB)
        assert not budget.try_acquire(SMALL + 1)
        for _ in range(16):
            assert budget.try_acquire(SMALL)
        assert not budget.try_acquire(SMALL)

    async def test_small_bodies_may_fill_it_all(self, budget):
        taken = 0
        while budget.try_acquire(SMALL):
            taken += SMALL
        assert taken == 16 * MIB

    async def test_larger_than_the_large_share_as_the_only_large_one(self, budget):
        assert budget.try_acquire(SMALL)
        assert budget.try_acquire(15 * MIB)
        assert not budget.try_acquire(MIB // 2)

    async def test_larger_than_the_capacity_alone(self, budget):
        assert budget.try_acquire(40 * MIB)
        assert not budget.try_acquire(1)
        budget.release(40 * MIB)
        assert budget.try_acquire(1)
        assert not budget.try_acquire(40 * MIB)

    async def test_giving_back_more_than_is_held_is_an_error(self, budget):
        assert budget.try_acquire(MIB)
        with pytest.raises(ValueError, match="gives back"):
            budget.release(2 * MIB)
        with pytest.raises(ValueError, match="gives back"):
            budget.release(100)
        with pytest.raises(ValueError, match="gives back"):
            budget.change(small=100, large=-99)
        assert budget.statistics().held == MIB


class TestWaiting:
    async def test_first_come_first_served(self, budget):
        assert budget.try_acquire(12 * MIB)
        first, second = await waiting(budget, 10 * MIB), await waiting(budget, MIB)
        assert not budget.try_acquire(MIB)
        budget.release(12 * MIB)
        assert await done(first, second) == [True, True]
        assert budget.statistics().held == 11 * MIB

    async def test_the_second_does_not_overtake(self, budget):
        assert budget.try_acquire(4 * MIB)
        assert budget.try_acquire(4 * MIB)
        first, second = await waiting(budget, 10 * MIB), await waiting(budget, MIB)
        budget.release(4 * MIB)
        assert await done(first, second) == [False, False]
        budget.release(4 * MIB)
        assert await done(first, second) == [True, True]

    async def test_a_small_body_passes_waiting_large_ones_within_its_quarter(self, budget):
        assert budget.try_acquire(12 * MIB)
        large = await waiting(budget, MIB)
        for _ in range(16):
            await budget.acquire(SMALL, 30.0)
        small = await waiting(budget, SMALL)
        budget.release(SMALL)
        assert await done(small, large) == [True, False]

    async def test_small_bodies_do_not_starve_a_large_one(self, budget):
        while budget.try_acquire(SMALL):
            pass
        large = await waiting(budget, 12 * MIB)
        small = [await waiting(budget, SMALL) for _ in range(4)]
        for _ in range(47):
            budget.release(SMALL)
        assert await done(large, *small) == [False] * 5
        budget.release(SMALL)
        assert await done(large) == [True]

    async def test_everybody_waits_behind_one_larger_than_the_large_share(self, budget):
        assert budget.try_acquire(MIB)
        giant, small = await waiting(budget, 20 * MIB), await waiting(budget, SMALL)
        budget.release(MIB)
        assert await done(giant, small) == [True, False]
        budget.release(20 * MIB)
        assert await done(small) == [True]

    async def test_in_vain(self, budget, clock):
        assert budget.try_acquire(12 * MIB)
        task = await waiting(budget, 2 * MIB, timeout_seconds=5.0)
        clock.advance(5.0)
        with pytest.raises(GatewayError, match="memory for request bodies is taken: 12582912 of 16777216") as caught:
            await task
        assert (caught.value.status, caught.value.reason) == (429, Reason.HOST_MEMORY)
        assert budget.statistics().waiting == 0

    async def test_a_head_that_gave_up_makes_way(self, budget, clock):
        assert budget.try_acquire(8 * MIB)
        head, second = await waiting(budget, 12 * MIB, timeout_seconds=5.0), await waiting(budget, 4 * MIB)
        clock.advance(5.0)
        await asyncio.sleep(0)
        assert await done(second) == [True]
        assert isinstance(head.exception(), GatewayError)
        assert clock.pending == []


class TestCancelling:
    async def test_in_line(self, budget, clock):
        assert budget.try_acquire(12 * MIB)
        head, second = await waiting(budget, 10 * MIB), await waiting(budget, 5 * MIB)
        head.cancel()
        budget.release(12 * MIB)
        await asyncio.wait([head, second])
        assert head.cancelled()
        assert budget.statistics() == ByteBudgetStatistics(16 * MIB, held=5 * MIB, waiting=0)
        assert clock.pending == []

    async def test_in_the_moment_of_being_granted(self, budget):
        assert budget.try_acquire(12 * MIB)
        task = await waiting(budget, 10 * MIB)
        budget.release(12 * MIB)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert budget.statistics().held == 0

    async def test_timed_out_in_the_moment_of_being_granted(self, budget, clock):
        assert budget.try_acquire(12 * MIB)
        task = await waiting(budget, 10 * MIB, timeout_seconds=5.0)
        budget.release(12 * MIB)
        clock.advance(5.0)
        await task
        assert budget.statistics().held == 10 * MIB

    async def test_granted_in_the_moment_of_timing_out(self, budget, clock):
        assert budget.try_acquire(12 * MIB)
        task = await waiting(budget, 10 * MIB, timeout_seconds=5.0)
        clock.advance(5.0)
        budget.release(12 * MIB)
        with pytest.raises(GatewayError):
            await task
        assert budget.statistics().held == 0


async def test_what_turns_out_smaller_keeps_only_that_and_lets_the_next_one_in(budget):
    assert budget.try_acquire(12 * MIB)
    next_one = await waiting(budget, 12 * MIB)
    budget.change(small=100, large=-12 * MIB)
    assert await done(next_one) == [True]
    assert budget.statistics().held == 12 * MIB + 100
    budget.release(100)
    budget.release(12 * MIB)
    assert budget.statistics().held == 0


class TestSlowUploads:
    """They hold bytes and ask for more; here a step is 1 MiB and their quarter 4 MiB."""

    async def test_all_together_have_a_quarter(self, budget):
        for held in range(4):
            await budget.acquire_step(MIB, held * MIB, 30.0)
        with pytest.raises(GatewayError, match="that come slowly is taken: 4194304 of 4194304 bytes") as caught:
            await budget.acquire_step(MIB, MIB, 30.0)
        assert (caught.value.status, caught.value.reason) == (429, Reason.HOST_MEMORY)
        assert budget.try_acquire(8 * MIB)

    async def test_one_that_is_alone_may_be_as_long_as_any(self, budget):
        for held in range(8):
            await budget.acquire_step(MIB, held * MIB, 30.0)
        with pytest.raises(GatewayError):
            await budget.acquire_step(MIB, 0, 30.0)

    async def test_what_is_waited_for_counts(self, budget):
        assert budget.try_acquire(12 * MIB)
        steps = [asyncio.create_task(budget.acquire_step(MIB, 0, 30.0)) for _ in range(5)]
        await asyncio.sleep(0)
        assert [task.done() for task in steps] == [False] * 4 + [True]
        assert isinstance(steps[4].exception(), GatewayError)
        budget.release(12 * MIB)
        await asyncio.gather(*steps[:4])

    async def test_they_go_before_large_ones_that_wait(self, budget):
        assert budget.try_acquire(8 * MIB)
        large = await waiting(budget, 5 * MIB)
        await budget.acquire_step(MIB, 0, 30.0)
        assert await done(large) == [False]
        budget.release(8 * MIB)
        assert await done(large) == [True]

    async def test_large_ones_do_not_take_what_they_wait_for(self, budget):
        assert budget.try_acquire(10 * MIB)
        assert budget.try_acquire(MIB)
        step = asyncio.create_task(budget.acquire_step(2 * MIB, 0, 30.0))
        await asyncio.sleep(0)
        assert not budget.try_acquire(MIB)
        large = await waiting(budget, MIB)
        budget.release(MIB)
        assert await done(step, large) == [True, False]

    async def test_small_bodies_do_not_starve_one(self, budget):
        while budget.try_acquire(SMALL):
            pass
        step = asyncio.create_task(budget.acquire_step(MIB, 0, 30.0))
        await asyncio.sleep(0)
        assert not budget.try_acquire(SMALL)
        for _ in range(4):
            budget.release(SMALL)
        assert await done(step) == [True]

    async def test_one_that_slows_down_keeps_what_it_has_filled(self, budget):
        assert budget.try_acquire(12 * MIB)
        next_one = await waiting(budget, 9 * MIB)
        budget.slow_down(0, small=0, large=-12 * MIB, slow=2 * MIB)
        assert await done(next_one) == [True]
        assert budget.statistics().held == 11 * MIB
        budget.change(large=-9 * MIB, slow=-2 * MIB)

    async def test_one_that_slows_down_where_the_quarter_is_full_is_refused_and_still_holds_it_all(self, budget):
        await budget.acquire_step(4 * MIB, 0, 30.0)
        assert budget.try_acquire(8 * MIB)
        with pytest.raises(GatewayError):
            budget.slow_down(0, small=0, large=-8 * MIB, slow=MIB)
        assert budget.statistics().held == 12 * MIB

    async def test_taking_it_back_while_waiting_leaves_nothing(self, budget, clock):
        assert budget.try_acquire(12 * MIB)
        step = asyncio.create_task(budget.acquire_step(MIB, 0, 30.0))
        await asyncio.sleep(0)
        step.cancel()
        budget.release(12 * MIB)
        await asyncio.wait([step])
        assert budget.statistics() == ByteBudgetStatistics(16 * MIB, held=0, waiting=0)
        assert clock.pending == []


async def test_uploads_that_hold_and_ask_never_wait_for_each_other(budget, clock):
    """Every one ends, refused or whole, though nobody's patience ends: the clock stands still."""
    dice = random.Random(5)
    ends = {"whole": 0, "refused": 0}

    async def slow() -> None:
        held = 0
        try:
            for _ in range(dice.randint(1, 30)):
                await budget.acquire_step(MIB // 4, held, 30.0)
                held += MIB // 4
                await asyncio.sleep(0)
            if dice.random() < 0.5:
                await budget.acquire(8 * MIB, 30.0, Share.LARGE)
                budget.change(large=-8 * MIB)
            ends["whole"] += 1
        except GatewayError:
            ends["refused"] += 1
        finally:
            budget.change(slow=-held)

    async def fast() -> None:
        await budget.acquire(8 * MIB, 30.0)
        for _ in range(dice.randint(0, 5)):
            await asyncio.sleep(0)
        budget.release(8 * MIB)
        ends["whole"] += 1

    async with asyncio.timeout(10):
        await asyncio.gather(*(slow() if dice.random() < 0.7 else fast() for _ in range(300)))
    assert sum(ends.values()) == 300
    assert min(ends.values()) > 0
    assert budget.statistics() == ByteBudgetStatistics(16 * MIB, held=0, waiting=0)


async def test_any_mixture_leaves_nothing_behind(budget, clock):
    dice = random.Random(3)
    peak = 0

    async def visit() -> None:
        nonlocal peak
        byte_count = dice.choice([100, SMALL, MIB, 5 * MIB, 13 * MIB, 20 * MIB])
        await budget.acquire(byte_count, dice.uniform(1, 20))
        try:
            if byte_count <= 16 * MIB:
                peak = max(peak, budget.statistics().held)
            for _ in range(dice.randint(0, 3)):
                await asyncio.sleep(0)
        finally:
            budget.release(byte_count)

    tasks: list[asyncio.Task] = []
    for _ in range(300):
        tasks.append(asyncio.create_task(visit()))
        if dice.random() < 0.3:
            dice.choice(tasks).cancel()
        if dice.random() < 0.2:
            await asyncio.sleep(0)
            clock.advance(dice.uniform(0, 2))
    clock.advance(20.0)
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(result) for result in results} == {type(None), asyncio.CancelledError, GatewayError}
    assert budget.statistics() == ByteBudgetStatistics(16 * MIB, held=0, waiting=0)
    assert 0 < peak <= 16 * MIB
    assert clock.pending == []


class TestSeats:
    def test_as_many_as_there_are(self):
        seats = Seats(2)
        seats.take()
        seats.take()
        with pytest.raises(GatewayError, match="All 2 seats") as caught:
            seats.take()
        assert (caught.value.status, caught.value.reason) == (429, Reason.QUEUE_FULL)
        seats.give_back()
        seats.take()
        assert (seats.taken, seats.capacity) == (2, 2)

    def test_giving_back_what_nobody_took_is_an_error(self):
        with pytest.raises(ValueError, match="nobody took"):
            Seats(2).give_back()
