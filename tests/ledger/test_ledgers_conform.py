"""What every ledger has to do, whoever else there is: the local one, the shared one before its store's specification,
and before a real Redis. The shared ones have been given all there is.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest

from gateway.domain.quantities import Amounts, Capacity, Resource
from gateway.ledger.base import Ledger
from gateway.ledger.local import LocalLedger
from gateway.ledger.shared import SharedLedger, Sharing
from tests.support.redis_server import running_redis
from tests.support.sharing import NOBODY, BookStore

TOTAL = Capacity(10, 4, 1_000, 50)
TICK_SECONDS = 0.1


async def of_the_book(clock) -> tuple[Ledger, None]:
    ledger = SharedLedger(TOTAL, BookStore(clock), Sharing("one", TICK_SECONDS), clock)
    for _ in range(30):
        clock.advance(TICK_SECONDS)
        await ledger.beat(NOBODY)
    return ledger


async def of_redis(url: str, clock) -> Ledger:
    from gateway.ledger.redis_store import RedisStore, connect  # noqa: PLC0415 - needs an extra

    ledger = SharedLedger(TOTAL, RedisStore(connect(url), "conforming"), Sharing("one", 0.02), clock)
    more = asyncio.Event()
    await ledger.start(more.set, lambda: NOBODY)
    async with asyncio.timeout(30):
        await more.wait()
    return ledger


@pytest.fixture(params=["local", "shared", pytest.param("redis", marks=pytest.mark.system("redis-server"))])
async def ledger(request, clock, tmp_path) -> AsyncIterator[Ledger]:
    if request.param == "local":
        yield LocalLedger(TOTAL)
    elif request.param == "shared":
        yield await of_the_book(clock)
    else:
        pytest.importorskip("redis")
        with running_redis(tmp_path) as server:
            ledger = await of_redis(server.url, clock)
            yield ledger
            await ledger.stop()


def test_takes_what_fits_and_says_what_is_short(ledger):
    assert ledger.capacity == (*TOTAL,)
    assert ledger.try_reserve(Amounts(6, 1, 400, 20)) is None
    assert ledger.try_reserve(Amounts(5, 1)) is Resource.KV_BLOCKS
    assert ledger.try_reserve(Amounts(4, 4)) is Resource.SEQUENCES
    assert ledger.try_reserve(Amounts(4, 1, 700)) is Resource.ENCODER_TOKENS
    assert ledger.try_reserve(Amounts(4, 1, 600, 40)) is Resource.PREPROCESS_PIXELS
    assert ledger.shortage(Amounts(4, 3, 600, 30)) is None
    assert ledger.statistics().held == (6, 1, 400, 20, 0, 0)


def test_what_was_not_reserved_took_nothing(ledger):
    ledger.try_reserve(Amounts(6, 1))
    ledger.try_reserve(Amounts(4, 5))
    assert ledger.held(Resource.KV_BLOCKS) == 6


def test_growing_always_succeeds_and_keeps_others_out(ledger):
    ledger.try_reserve(Amounts(9, 1))
    ledger.grow(Amounts(3))
    assert ledger.held(Resource.KV_BLOCKS) == 12
    assert ledger.shortage(Amounts(1)) is Resource.KV_BLOCKS
    ledger.give_back(Amounts(12, 1))
    assert ledger.shortage(Amounts(10)) is None


def test_nothing_is_given_back_twice(ledger):
    ledger.try_reserve(Amounts(5, 1))
    with pytest.raises(ValueError, match="gives back"):
        ledger.give_back(Amounts(6, 1))
    assert ledger.held(Resource.KV_BLOCKS) == 5


def test_one_that_is_larger_than_all_there_is_gets_in_alone(ledger):
    assert ledger.try_reserve(Amounts(1, 1)) is None
    assert ledger.try_reserve(Amounts(15, 1)) is Resource.KV_BLOCKS
    ledger.give_back(Amounts(1, 1))
    assert ledger.try_reserve(Amounts(15, 1)) is None


def test_less_counts_at_once(ledger):
    ledger.try_reserve(Amounts(6, 1))
    ledger.set_capacity(Resource.KV_BLOCKS, 5)
    ledger.set_capacity(Resource.PREPROCESS_PIXELS, 30)
    assert ledger.shortage(Amounts(1)) is Resource.KV_BLOCKS
    assert ledger.capacity[:4] == (5, 4, 1_000, 30)
    assert ledger.whole().capacity[Resource.KV_BLOCKS] == 5
    assert ledger.whole().held[Resource.KV_BLOCKS] == 6


def test_what_is_not_enforced_is_never_short(ledger):
    assert ledger.try_reserve(Amounts(prefill_tokens=1 << 40)) is None
    assert ledger.try_reserve(Amounts(prefill_tokens=1 << 40)) is None
