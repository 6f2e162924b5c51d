"""What a call comes to before a real Redis that is away, hangs, is back, or has forgotten the script."""

import pytest

from gateway.ledger.redis_store import RedisStore, connect
from gateway.ledger.shared import StoreError
from tests.support.redis_server import running_redis
from tests.support.sharing import call

pytestmark = pytest.mark.system("redis-server")


@pytest.fixture
def server(tmp_path):
    pytest.importorskip("redis")
    with running_redis(tmp_path) as server:
        yield server


@pytest.fixture
async def store(server):
    store = RedisStore(connect(server.url), "shares")
    yield store
    await store.close()


async def test_each_call_is_answered(store):
    first = await store.beat(call("one", 1, keeps=(5, 1, 0), depth=2))
    assert (first.calls, first.gateways, first.shares) == (1, 1, (5, 1, 0))
    other = await store.beat(call("other", 1))
    assert (other.calls, other.gateways, other.others_depth) == (2, 2, 2)
    assert await store.beat(call("one", 1)) is None


async def test_who_left_is_gone(store):
    await store.beat(call("one", 1))
    await store.leave("one")
    assert (await store.beat(call("other", 1))).gateways == 1


async def test_one_that_hangs_has_failed_and_is_asked_again_when_it_goes_on(store, server):
    await store.beat(call("one", 1))
    server.hang(on=True)
    with pytest.raises(StoreError):
        await store.beat(call("one", 2))
    server.hang(on=False)
    assert (await store.beat(call("one", 3))).gateways == 1


async def test_one_that_is_away_and_comes_back_empty_is_told_the_script_anew(store, server):
    await store.beat(call("one", 1))
    server.kill()
    with pytest.raises(StoreError):
        await store.beat(call("one", 2))
    server.start()
    assert (await store.beat(call("one", 3, seen=7))).calls == 8


async def test_one_that_refuses_has_failed_too(store, server):
    redis = connect(server.url)
    await redis.set("shares", "something else")
    with pytest.raises(StoreError, match="WRONGTYPE"):
        await store.beat(call("one", 1))
    await redis.aclose()
