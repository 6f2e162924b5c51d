"""Two gateways to which one tenant comes: what it takes at one counts at the other."""

import asyncio

import pytest

from gateway.domain.quota import Amounts, Quota, QuotaLimits
from gateway.ledger.redis_store import RedisQuotaStore, connect
from gateway.ledger.shared import StoreError
from gateway.ledger.shared_quotas import SharedQuotas, Sums
from tests.support.redis_server import running_redis

LIMITS = QuotaLimits(requests=60, tokens=6_000)


class Adder:
    """The store as plain numbers."""

    def __init__(self):
        self.beginning = "first"
        self.totals, self.is_down, self.is_closed = {}, False, False

    async def add(self, taken):
        if self.is_down:
            raise StoreError("it is down")
        for name, amounts in taken.items():
            before = self.totals.get(name, Amounts())
            self.totals[name] = Amounts(*map(sum, zip(before, amounts, strict=True)))
        return Sums(self.beginning, dict(self.totals))

    async def close(self):
        self.is_closed = True


class Pair:
    def __init__(self, stores, clock):
        self.clock = clock
        self.quotas = [Quota(LIMITS), Quota(LIMITS)]
        self.sharing = [
            SharedQuotas(lambda quota=quota: [("team", quota)], store, 0.0, clock)
            for quota, store in zip(self.quotas, stores, strict=True)
        ]

    async def tell(self):
        for _ in range(2):
            for each in self.sharing:
                await each.tell()

    def left(self):
        return [quota.levels(self.clock.now)[0].remaining for quota in self.quotas]


@pytest.fixture
def sums():
    return Adder()


@pytest.fixture
async def pair(sums, clock):
    pair = Pair((sums, sums), clock)
    await pair.tell()
    return pair


async def test_what_is_taken_at_one_is_missing_at_both(pair):
    pair.quotas[0].charge(pair.clock.now, Amounts(40, 100))
    await pair.tell()
    assert pair.left() == [20, 20]
    assert pair.quotas[1].charge(pair.clock.now, Amounts(21)) is not None
    assert pair.quotas[1].charge(pair.clock.now, Amounts(20)) is None
    await pair.tell()
    assert pair.left() == [0, 0]


async def test_what_was_never_sent_is_given_back_at_both(pair):
    pair.quotas[0].charge(pair.clock.now, Amounts(40, 100))
    await pair.tell()
    pair.quotas[0].release(Amounts(40, 100))
    await pair.tell()
    assert pair.left() == [60, 60]


async def test_what_was_really_used_counts_and_leaks_at_both(pair):
    one, other = pair.quotas
    one.charge(pair.clock.now, Amounts(30, 1_000))
    one.spend(pair.clock.now, Amounts(30, 1_000))
    one.true_up(pair.clock.now, Amounts(30, 1_000), Amounts(30, 3_000), pair.clock.now)
    await pair.tell()
    assert [level.remaining for level in other.levels(pair.clock.now)] == [30, 3_000]
    one.true_up(pair.clock.now, Amounts(30, 3_000), Amounts(30, 2_000), pair.clock.now)
    await pair.tell()
    assert [level.remaining for level in other.levels(pair.clock.now)] == [30, 4_000]
    pair.clock.advance(30.0)
    assert pair.left() == [60, 60]


async def test_of_what_is_given_back_late_the_others_too_get_only_what_has_not_leaked(pair):
    one, other = pair.quotas
    one.charge(pair.clock.now, Amounts(0, 6_000))
    one.spend(pair.clock.now, Amounts(0, 6_000))
    await pair.tell()
    began = pair.clock.now
    pair.clock.advance(30.0)  # half of it is back by itself
    one.true_up(pair.clock.now, Amounts(0, 6_000), Amounts(0, 3_000), began)
    await pair.tell()
    assert [each.levels(pair.clock.now)[1].remaining for each in (one, other)] == [3_000, 3_000]


async def test_a_tenant_that_is_gone_and_comes_back_has_taken_nothing_new(sums, clock):
    here = {"team": Quota(LIMITS)}
    told, other = SharedQuotas(here.items, sums, 0.0, clock), Quota(LIMITS)
    beside = SharedQuotas(lambda: [("team", other)], sums, 0.0, clock)
    for each in (told, beside, told, beside):
        await each.tell()
    here["team"].charge(clock.now, Amounts(40))
    for each in (told, beside):
        await each.tell()
    gone = here.pop("team")
    await told.tell()
    here["team"] = Quota(gone.limits)
    for each in (told, beside):
        await each.tell()
    assert other.levels(clock.now)[0].remaining == 20


async def test_in_silence_each_counts_for_itself_and_tells_it_afterwards(pair, sums):
    sums.is_down = True
    pair.quotas[0].charge(pair.clock.now, Amounts(40))
    await pair.tell()
    assert pair.left() == [20, 60]
    sums.is_down = False
    await pair.tell()
    assert pair.left() == [20, 20]


async def test_a_store_that_began_anew_takes_nothing_from_anybody(pair, sums):
    pair.quotas[0].charge(pair.clock.now, Amounts(40))
    await pair.tell()
    sums.totals.clear()
    sums.beginning = "second"
    await pair.tell()
    assert pair.left() == [20, 20]
    pair.quotas[1].charge(pair.clock.now, Amounts(5))
    await pair.tell()
    assert pair.left() == [15, 15]


async def test_who_joins_does_not_count_what_was_taken_before(sums, clock):
    sums.totals["team"] = Amounts(1_000)
    pair = Pair((sums, sums), clock)
    await pair.tell()
    assert pair.left() == [60, 60]


async def test_it_tells_from_time_to_time_whatever_happens(sums, clock, caplog):
    quota, asked = Quota(LIMITS), asyncio.Event()

    def quotas():
        if not asked.is_set():
            asked.set()
            raise RuntimeError("a fault")
        return [("team", quota)]

    sharing = SharedQuotas(quotas, sums, 0.0, clock)
    await sharing.start()
    quota.charge(clock.now, Amounts(3))
    async with asyncio.timeout(30):
        while not sums.totals:  # noqa: ASYNC110 - it is the store that tells
            await asyncio.sleep(0)
    await sharing.stop()
    assert sums.totals == {"team": Amounts(3)}
    assert sums.is_closed
    assert "a fault" in caplog.text


async def test_one_that_never_began_ends_too(sums, clock):
    await SharedQuotas(list, sums, 0.0, clock).stop()
    assert sums.is_closed


@pytest.mark.system("redis-server")
async def test_through_a_real_redis(tmp_path, clock):
    pytest.importorskip("redis")
    with running_redis(tmp_path) as server:
        stores = [RedisQuotaStore(connect(server.url), "quotas") for _ in range(2)]
        pair = Pair(stores, clock)
        await pair.tell()
        pair.quotas[0].charge(clock.now, Amounts(40, 100))
        await pair.tell()
        assert pair.left() == [20, 20]
        pair.quotas[0].release(Amounts(40, 100))
        await pair.tell()
        assert pair.left() == [60, 60]
        server.kill()
        with pytest.raises(StoreError):
            await stores[0].add({})
        for store in stores:
            await store.close()
