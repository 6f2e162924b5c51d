"""One process' side of a shared budget: what it takes and gives when the store answers, is silent, and is back."""

import asyncio

import pytest

from gateway.domain.quantities import Amounts, Capacity, Resource
from gateway.domain.shares_held import GROW_SECONDS, LEASE_SECONDS, Waiting
from gateway.ledger.shared import SharedLedger, Sharing
from tests.support.clock import FakeClock
from tests.support.sharing import NOBODY, BookStore, waiting

BLOCKS = Resource.KV_BLOCKS
TICK_SECONDS = 0.1


class Pair:
    """Two gateways before one store, and time that passes for all."""

    def __init__(self, clock: FakeClock, *, blocks: int | None = 100) -> None:
        self.clock = clock
        self.store = BookStore(clock)
        self.ledgers = [
            SharedLedger(Capacity(blocks, 50), self.store, Sharing(name, TICK_SECONDS, 2), clock) for name in "ab"
        ]
        self.lines: list[Waiting] = [NOBODY, NOBODY]

    async def passes(self, seconds: float = 0.3) -> list[bool]:
        """Of each, whether it got more in all that time."""
        more = [False, False]
        for _ in range(round(seconds / TICK_SECONDS)):
            self.clock.advance(TICK_SECONDS)
            for index, ledger in enumerate(self.ledgers):
                more[index] |= await ledger.beat(self.lines[index])
        return more

    @property
    def capacities(self) -> list[int | None]:
        return [ledger.capacity[BLOCKS] for ledger in self.ledgers]


@pytest.fixture
async def pair(clock) -> Pair:
    pair = Pair(clock)
    await pair.passes(3.0)
    return pair


async def test_two_that_want_nothing_have_half_each(pair):
    assert pair.capacities == [50, 50]


async def test_the_one_that_has_work_borrows_what_the_other_does_not_want(pair):
    a, b = pair.ledgers
    assert a.try_reserve(Amounts(40, 1)) is None
    pair.lines[0] = waiting(50, 10)
    assert await pair.passes() == [True, False]
    assert pair.capacities == [100, 0]
    assert a.try_reserve(Amounts(60, 2)) is None
    assert b.try_reserve(Amounts(1, 1)) is BLOCKS


async def test_pressure_is_that_of_all_gateways(pair):
    a, b = pair.ledgers
    a.try_reserve(Amounts(40, 1))
    pair.lines[0] = waiting(30)
    await pair.passes()
    whole = b.whole()
    assert (whole.capacity[BLOCKS], whole.held[BLOCKS]) == (100, 70)
    assert b.standing.others_hold == Amounts(40, 1)
    assert b.standing.others_depth == 1
    assert b.standing.gateways == 2


async def test_the_smallest_ceiling_wins(pair):
    pair.ledgers[0].set_capacity(BLOCKS, 60)
    await pair.passes()
    assert sum(pair.capacities) == 60
    assert pair.ledgers[1].whole().capacity[BLOCKS] == 60
    pair.ledgers[0].set_capacity(BLOCKS, 100)
    await pair.passes()
    assert sum(pair.capacities) == 100


async def test_what_is_not_known_is_not_enforced_until_one_knows(clock):
    pair = Pair(clock, blocks=None)
    await pair.passes(3.0)
    assert pair.capacities == [None, None]
    pair.ledgers[0].set_capacity(BLOCKS, 80)
    await pair.passes()
    assert sum(pair.capacities) == 80


async def test_one_larger_than_its_part_borrows_and_one_larger_than_all_is_alone(pair):
    a, b = pair.ledgers
    for size in (90, 130):
        pair.lines = [NOBODY, waiting(size)]
        await pair.passes()
        assert a.shortage(Amounts(11, 1)) is BLOCKS
        assert b.try_reserve(Amounts(size, 1)) is None
        pair.lines = [waiting(5), NOBODY]
        await pair.passes()
        assert (a.shortage(Amounts(5, 1)) is None) == (size < 100)
        b.give_back(Amounts(size, 1))
        pair.lines = [NOBODY, NOBODY]
        await pair.passes()


class TestSilence:
    async def test_the_share_stays_for_the_lease_and_is_static_then(self, pair, caplog):
        a, _ = pair.ledgers
        pair.lines[0] = waiting(40, 60)
        await pair.passes()
        a.try_reserve(Amounts(90, 2))
        pair.store.is_down = True
        await pair.passes(LEASE_SECONDS - 0.2)
        assert pair.capacities == [100, 0]
        assert not a.standing.is_cut_off
        await pair.passes(0.4)
        assert pair.capacities == [50, 0]
        assert a.standing.is_cut_off
        assert "cannot be reached" in caplog.text
        assert (await pair.passes(GROW_SECONDS))[1]
        assert pair.capacities == [50, 50]
        assert a.standing.failures > 10

    async def test_a_request_larger_than_the_static_share_is_alone_at_its_gateway(self, pair):
        pair.store.is_down = True
        await pair.passes(GROW_SECONDS + 0.2)
        a, _ = pair.ledgers
        assert a.try_reserve(Amounts(70, 1)) is None
        assert a.try_reserve(Amounts(1, 1)) is BLOCKS

    async def test_the_others_count_with_their_static_shares(self, pair):
        pair.store.is_down = True
        await pair.passes(GROW_SECONDS + 0.2)
        a, _ = pair.ledgers
        assert a.standing.others_hold == Amounts(50, 25)
        assert a.standing.others_depth == 0
        assert a.whole().held[BLOCKS] == 50

    async def test_a_store_that_is_back_and_empty_takes_what_each_has(self, pair, caplog):
        a, _ = pair.ledgers
        a.try_reserve(Amounts(30, 1))
        pair.store.is_down = True
        await pair.passes(10.0)
        pair.store.book = type(pair.store.book)(2_000)
        pair.store.is_down = False
        await pair.passes(0.1)
        assert "shared again" in caplog.text
        assert sum(pair.capacities) <= 100
        pair.lines[1] = waiting(70)
        await pair.passes(3.0)
        assert pair.capacities == [30, 70]

    async def test_a_store_that_forgot_the_others_does_not_make_a_lone_gateway(self, pair):
        a, _ = pair.ledgers
        pair.store.book = type(pair.store.book)(2_000)
        await a.beat(NOBODY)
        assert a.standing.gateways == 2
        for _ in range(110):
            pair.clock.advance(TICK_SECONDS)
            await a.beat(NOBODY)
        assert a.standing.gateways == 1

    async def test_without_a_first_answer_its_part_of_what_was_foreseen(self, clock):
        pair = Pair(clock)
        pair.store.is_down = True
        await pair.passes(LEASE_SECONDS)
        assert pair.capacities == [0, 0]
        await pair.passes(GROW_SECONDS)
        assert pair.capacities == [50, 50]


async def test_an_answer_to_a_call_that_was_overtaken_changes_nothing(pair):
    before = pair.capacities
    a, _ = pair.ledgers
    pair.store.book.owners["a"] = pair.store.book.owners["a"]._replace(serial=10_000)
    assert not await a.beat(NOBODY)
    assert pair.capacities == before


class TestRunning:
    async def test_waiters_are_woken_when_there_is_more(self, clock):
        store = BookStore(clock)
        ledger = SharedLedger(Capacity(100), store, Sharing("a", 0.0), clock)
        woken = asyncio.Event()
        await ledger.start(woken.set, lambda: waiting(10))
        async with asyncio.timeout(30):
            while not woken.is_set():
                clock.advance(TICK_SECONDS)
                await asyncio.sleep(0)
        assert ledger.try_reserve(Amounts(10, 1)) is None
        await ledger.stop()
        assert store.left == ["a"]

    async def test_a_fault_of_its_own_does_not_leave_the_share_unwatched(self, clock, caplog):
        ledger = SharedLedger(Capacity(100), BookStore(clock), Sharing("a", 0.0, 4), clock)

        def broken() -> Waiting:
            raise RuntimeError("a fault")

        await ledger.start(lambda: None, broken)
        async with asyncio.timeout(30):
            while ledger.capacity[BLOCKS] != 25:
                clock.advance(TICK_SECONDS)
                await asyncio.sleep(0)
        assert "a fault" in caplog.text
        assert ledger.standing.is_cut_off
        await ledger.stop()

    async def test_it_ends_without_a_store_too(self, clock, caplog):
        store = BookStore(clock, is_down=True)
        ledger = SharedLedger(Capacity(100), store, Sharing("a", 0.0), clock)
        await ledger.stop()
        assert "not given back: it is down" in caplog.text
