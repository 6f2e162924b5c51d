"""Part of the composition: the ledger of each upstream, alone or shared with other gateways."""

import secrets
from collections.abc import Iterator
from contextlib import AsyncExitStack

from gateway.domain.quantities import Capacity
from gateway.domain.quota import Quota
from gateway.key_reload import KeysInUse
from gateway.ledger.base import Ledger
from gateway.ledger.local import LocalLedger
from gateway.ledger.redis_store import RedisQuotaStore, RedisStore, connect
from gateway.ledger.shared import SharedLedger, Sharing
from gateway.ledger.shared_quotas import SharedQuotas
from gateway.ledger.timing import Timing
from gateway.policies import UpstreamPolicy
from gateway.settings import Settings
from gateway.telemetry.declarations import ONLY_UPSTREAM

_NAME_BYTES = 8
_QUOTA_SECONDS = 0.25


async def share_quotas(settings: Settings, keys: KeysInUse, timing: Timing, stack: AsyncExitStack) -> None:
    """Begins, and ends with the stack; nothing where this gateway is alone."""
    shared = settings.ledger
    if shared.redis_url is None or settings.is_shadow:
        return

    def quotas() -> Iterator[tuple[str, Quota]]:
        return ((tenant.name, tenant.quota) for tenant in keys.tenancy.with_quota() if tenant.quota is not None)

    store = RedisQuotaStore(connect(shared.redis_url.get_secret_value()), f"{shared.namespace}:quotas")
    sharing = SharedQuotas(quotas, store, _QUOTA_SECONDS, timing.clock)
    await sharing.start()
    stack.push_async_callback(sharing.stop)


def ledger_of(settings: Settings, upstream: UpstreamPolicy, total: Capacity, timing: Timing) -> Ledger:
    """In shadow mode nothing is held at the engine by decision, so there is nothing to share."""
    shared = settings.ledger
    if shared.redis_url is None or settings.is_shadow:
        return LocalLedger(total)
    sharing = Sharing(
        # Each start is another owner: whatever ran before it has ended with its process.
        owner=secrets.token_hex(_NAME_BYTES),
        interval_seconds=shared.interval_seconds,
        gateways=shared.gateways,
        log_prefix="" if upstream.name == ONLY_UPSTREAM else f"{upstream.name}: ",
    )
    store = RedisStore(connect(shared.redis_url.get_secret_value()), f"{shared.namespace}:{upstream.url}")
    return SharedLedger(total, store, sharing, timing.clock)
