"""Part of the composition: what fetches images by address, as the settings want it."""

from collections.abc import Callable
from contextlib import AsyncExitStack

from gateway.fetch.address import AddressRules
from gateway.fetch.cache import FetchCache
from gateway.fetch.connection import Connections
from gateway.fetch.fetcher import Fetcher, FetchLimits, FetchStatistics
from gateway.fetch.guard import AddressGuard
from gateway.fetch.turns import Turns
from gateway.imaging.threads import DaemonThreads
from gateway.ledger.byte_budget import ByteBudget, Share
from gateway.ledger.timing import Timing
from gateway.pipeline.exchange import RemoteImages
from gateway.pipeline.remote import LEFT_TO_THE_SERVER, FetchingRefused
from gateway.settings import Settings

_MOST_FETCHES = 64
_REFUSED = FetchingRefused("`images.remote.policy` is `refuse`")


class FetchBudget:
    """The budget of request bodies as the fetcher asks for it: begun as a small body, grown as a large one."""

    def __init__(self, budget: ByteBudget, wait_seconds: float) -> None:
        self._budget = budget
        self._wait_seconds = wait_seconds

    async def begin(self, byte_count: int) -> None:
        """Raises GatewayError 429 host_memory."""
        await self._budget.acquire(byte_count, self._wait_seconds, Share.SMALL)

    def grow(self, byte_count: int) -> None:
        """Raises GatewayError 429 host_memory."""
        if not self._budget.try_acquire(byte_count, Share.LARGE):
            raise self._budget.refusal(byte_count)

    def release(self, *, begun: int, grown: int) -> None:
        self._budget.change(small=-begun, large=-grown)


async def start_fetching(
    settings: Settings, bodies: ByteBudget, cache_bytes: int, timing: Timing, stack: AsyncExitStack
) -> tuple[RemoteImages, Callable[[], FetchStatistics]]:
    """What fetches, or says why nothing is fetched, and its counts; `stack` stops it."""
    remote = settings.images.remote
    if remote.policy == "refuse":
        return _REFUSED, FetchStatistics
    if settings.is_shadow:
        return LEFT_TO_THE_SERVER, FetchStatistics
    guard = AddressGuard(remote.allow_networks)
    threads = DaemonThreads(_MOST_FETCHES, "resolve")  # a slow name server holds up its own fetches alone
    stack.callback(threads.close)
    fetcher = Fetcher(
        Connections(guard, threads, proxy=remote.proxy),
        AddressRules(guard, remote.allow_ports, remote.allow_hosts or None),
        FetchLimits(settings.images.max_bytes, remote.timeout_seconds, remote.max_redirects),
        budget=FetchBudget(bodies, remote.timeout_seconds),
        cache=FetchCache(cache_bytes),
        turns=Turns(per_host=remote.per_host, in_all=_MOST_FETCHES),
        clock=timing.clock,
    )
    await fetcher.start()
    stack.push_async_callback(fetcher.close)
    return fetcher, fetcher.statistics
