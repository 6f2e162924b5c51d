from gateway.domain.quantities import Amounts, Capacity, Resource
from gateway.ledger.base import Ledger
from gateway.ledger.local import LocalLedger
from tests.support.sharing import NOBODY


async def test_the_share_of_a_lone_gateway_is_all():
    ledger: Ledger = LocalLedger(Capacity(10))
    called: list[None] = []
    await ledger.start(lambda: called.append(None), lambda: NOBODY)
    assert ledger.try_reserve(Amounts(10)) is None
    assert ledger.try_reserve(Amounts(1)) is Resource.KV_BLOCKS
    ledger.grow(Amounts(2))
    assert ledger.statistics().held == (12, 0, 0, 0, 0, 0)
    ledger.give_back(Amounts(12))
    ledger.set_capacity(Resource.KV_BLOCKS, 20)
    assert ledger.statistics().capacity == (20, *[None] * 5)
    await ledger.stop()
    assert not called
