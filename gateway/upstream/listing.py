"""The upstream's `/v1/models`, for any number of clients at the price of few requests.

An answer counts for a second, and whoever asks while the same is being asked waits for that. What vLLM answers may
depend on the headers of a client, its key above all, so "the same" means: with the same headers, as far as they pass.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gateway.upstream.answer import Answer
from gateway.upstream.client import UpstreamClient
from gateway.upstream.errors import UpstreamBrokenError, UpstreamError, UpstreamTimeoutError

_FRESH_SECONDS = 1.0
# A list is small and costs nothing: a server that is silent for so long will not give it.
_LIST_SECONDS = 10.0
_MOST_BYTES = 16 << 20
_MOST_AT_ONCE = 4
_MOST_KEPT = 4

Headers = Sequence[tuple[bytes, bytes]]
_Key = frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Listing:
    """A whole answer, of whatever status; `seconds` is when it came."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes
    seconds: float


class _Flight:
    """One request under way, and how many wait for it."""

    __slots__ = ("task", "waiters")

    def __init__(self, task: "asyncio.Task[Listing | UpstreamError]") -> None:
        self.task = task
        self.waiters = 0


class Listings:
    """`clock` is monotonic, in seconds."""

    def __init__(self, upstream: UpstreamClient, clock: Callable[[], float]) -> None:
        self._upstream = upstream
        self._clock = clock
        self._turn = asyncio.Semaphore(_MOST_AT_ONCE)
        self._flights: dict[_Key, _Flight] = {}
        self._kept: OrderedDict[_Key, Listing] = OrderedDict()

    async def get(self, headers: Headers, request_id: str) -> Listing:
        """The list as a client with these headers gets it; `request_id` is for vLLM. Raises an UpstreamError.

        Where the last one who waits is cancelled, so is the request.
        """
        key = self._upstream.passed_on(headers)
        kept = self._kept.get(key)
        if kept is not None and self._clock() - kept.seconds < _FRESH_SECONDS:
            return kept
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = _Flight(asyncio.create_task(self._ask(headers, request_id)))
        outcome = await self._landed(key, flight)
        if isinstance(outcome, UpstreamError):
            raise type(outcome)(*outcome.args)  # of its own for each who waited, for it gathers their traces
        self._keep(key, outcome)
        return outcome

    async def _landed(self, key: _Key, flight: _Flight) -> Listing | UpstreamError:
        flight.waiters += 1
        try:
            return await asyncio.shield(flight.task)
        finally:
            flight.waiters -= 1
            if not flight.waiters:
                flight.task.cancel()
            if (flight.task.done() or not flight.waiters) and self._flights.get(key) is flight:
                del self._flights[key]

    def _keep(self, key: _Key, listing: Listing) -> None:
        self._kept[key] = listing
        self._kept.move_to_end(key)
        while len(self._kept) > _MOST_KEPT:
            self._kept.popitem(last=False)

    async def _ask(self, headers: Headers, request_id: str) -> Listing | UpstreamError:
        """A failure is a result, so that nobody has to be there to take it."""
        try:
            async with asyncio.timeout(_LIST_SECONDS), self._turn:
                answer = await self._upstream.send("GET", "/v1/models", headers, None, request_id=request_id)
                try:
                    return Listing(answer.status, answer.headers, await _whole_body(answer), self._clock())
                finally:
                    answer.finish()
        except TimeoutError:
            return UpstreamTimeoutError(f"no list of models within {_LIST_SECONDS:.0f} s")
        except UpstreamError as error:
            return error


async def _whole_body(answer: Answer) -> bytes:
    body = bytearray()
    while piece := await answer.read():
        body += piece
        if len(body) > _MOST_BYTES:
            raise UpstreamBrokenError(f"its list of models is longer than {_MOST_BYTES >> 20} MiB")
    return bytes(body)
