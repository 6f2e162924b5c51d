"""Fetches pictures: each address once at a time, within its time, its bytes and its redirects.

Ownership: a fetch belongs to no request. It runs as a task of its own that the requests which want the same address
wait for; when all have left, it is cancelled. A few bytes of the budget are taken before the host is asked, and waited
for; those that the picture then turns out to need are taken or it is given up at once, for who waited for them would
wait for requests that may wait as well. All are given back when the last request that waits for the picture has counted
it as its own.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

import aiohttp
from yarl import URL

from gateway.domain.errors import Code, GatewayError
from gateway.fetch.address import AddressRules
from gateway.fetch.cache import FetchCache, Kept, renewed, worth_keeping
from gateway.fetch.connection import is_denied
from gateway.fetch.encode import Base64Writer, encoded_bytes
from gateway.fetch.errors import FetchError, address_denied, download_failed, too_large
from gateway.fetch.turns import Turns
from gateway.wire.encoded_file import EncodedFile

_OK, _NOT_MODIFIED = 200, 304
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
FIRST_BYTES = 128 << 10  # the head, and what a socket brings before anybody asks how much it will be
_STEP_BYTES = 1 << 20  # by which one grows that does not say how long it is


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """`timeout_seconds` is for all of one fetch, redirects and name look-ups included."""

    max_bytes: int
    timeout_seconds: float
    max_redirects: int


class Budget(Protocol):
    """Bytes of memory for what is fetched: those to begin with, and those that are taken as it comes."""

    async def begin(self, byte_count: int) -> None:
        """Raises GatewayError 429 where there are none in time."""
        ...

    def grow(self, byte_count: int) -> None:
        """Raises GatewayError 429 where there are none now."""
        ...

    def release(self, *, begun: int, grown: int) -> None: ...


class Opener(Protocol):
    """Asks one question after the other; see connection.py."""

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    def get(self, url: URL, headers: dict[str, str]) -> AbstractAsyncContextManager[aiohttp.ClientResponse]: ...


@dataclass(slots=True)
class FetchStatistics:
    """Pictures since the start: `fetched` whole, `not_modified` by the host's word, `cached` without asking, `shared`
    with another request that fetched it already, `refused` for their address, `failed` at the host or for want of
    memory or of room in their request.
    """

    fetched: int = 0
    not_modified: int = 0
    cached: int = 0
    shared: int = 0
    refused: int = 0
    failed: int = 0


@dataclass(eq=False, slots=True)
class _Flight:
    """One fetch on its way, how many requests wait for it, and the bytes it holds of the budget: those that it began
    with, and more.
    """

    task: asyncio.Task[memoryview] = field(init=False)
    waiters: int = 0
    begun_bytes: int = 0
    grown_bytes: int = 0


class Fetcher:
    """One for each process; used from one event loop. `clock` is monotonic, in seconds."""

    def __init__(
        self,
        opener: Opener,
        rules: AddressRules,
        limits: FetchLimits,
        *,
        budget: Budget,
        cache: FetchCache,
        turns: Turns,
        clock: Callable[[], float],
    ) -> None:
        self._opener = opener
        self._rules = rules
        self._limits = limits
        self._budget = budget
        self._cache = cache
        self._turns = turns
        self._clock = clock
        self._flights: dict[str, _Flight] = {}
        self._statistics = FetchStatistics()

    def statistics(self) -> FetchStatistics:
        return self._statistics

    async def start(self) -> None:
        await self._opener.start()

    async def close(self) -> None:
        """Ends what is under way."""
        tasks = [flight.task for flight in self._flights.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._opener.close()

    async def fetch(self, address: str, param: str, hold: Callable[[int], None]) -> EncodedFile:
        """The picture at an http(s) address; its bytes are counted with `hold` before the fetch lets go of them.

        Raises GatewayError with `param`: invalid_image_url for an address that is not asked, failed_to_download_image,
        image_too_large; 429 host_memory where there is no memory for it.
        """
        try:
            url = self._rules.read(address)
            fresh = self._cache.get(str(url))
            if fresh is not None and self._clock() < fresh.fresh_until:
                self._statistics.cached += 1
                hold(len(fresh.base64))
                return EncodedFile(fresh.base64, param)
            base64 = await self._wait_for(url, fresh, hold)
        except FetchError as error:
            self._count(error)
            raise error.about(param) from error
        except GatewayError:
            self._statistics.failed += 1
            raise
        return EncodedFile(base64, param)

    def _count(self, error: FetchError) -> None:
        if error.code is Code.INVALID_IMAGE_URL:
            self._statistics.refused += 1
        else:
            self._statistics.failed += 1

    async def _wait_for(self, url: URL, kept: Kept | None, hold: Callable[[int], None]) -> memoryview:
        key = str(url)
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = self._start(key, url, kept)
        else:
            self._statistics.shared += 1
        flight.waiters += 1
        try:
            base64 = await asyncio.shield(flight.task)
            hold(len(base64))
            return base64
        finally:
            flight.waiters -= 1
            if not flight.waiters:
                flight.task.cancel()
                self._land(key, flight)

    def _start(self, key: str, url: URL, kept: Kept | None) -> _Flight:
        flight = _Flight()
        flight.task = asyncio.create_task(self._fly(flight, url, kept))
        flight.task.add_done_callback(lambda _: self._land(key, flight))
        return flight

    def _land(self, key: str, flight: _Flight) -> None:
        if self._flights.get(key) is flight:  # after a cancellation the key may already be another's
            del self._flights[key]
        if flight.task.done() and not flight.waiters:
            if not flight.task.cancelled():
                flight.task.exception()  # looked at, or it would go to the log
            self._budget.release(begun=flight.begun_bytes, grown=flight.grown_bytes)
            flight.begun_bytes = flight.grown_bytes = 0

    def _hold(self, flight: _Flight, byte_count: int) -> None:
        """It needs so much in all. Raises GatewayError 429."""
        more = byte_count - flight.begun_bytes - flight.grown_bytes
        if more > 0:
            self._budget.grow(more)
            flight.grown_bytes += more

    async def _fly(self, flight: _Flight, url: URL, kept: Kept | None) -> memoryview:
        await self._budget.begin(FIRST_BYTES)
        flight.begun_bytes = FIRST_BYTES
        try:
            return await self._follow(flight, url, kept)
        except TimeoutError as error:
            seconds = self._limits.timeout_seconds
            raise download_failed(f"it did not come whole within {seconds:g} seconds") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            if is_denied(error):
                raise address_denied() from error
            raise download_failed("its host cannot be reached, or broke the connection off") from error

    async def _follow(self, flight: _Flight, url: URL, kept: Kept | None) -> memoryview:
        """Raises TimeoutError when all hops together took too long; waiting for a turn of a host is not its time."""
        asked, loop, left = str(url), asyncio.get_running_loop(), self._limits.timeout_seconds
        for _ in range(self._limits.max_redirects + 1):
            async with self._turns.of(str(url.host)):
                begun = loop.time()
                async with asyncio.timeout(left):
                    found = await self._hop(flight, asked, url, kept)
                left -= loop.time() - begun
            if isinstance(found, memoryview):
                return found
            url = found
        raise download_failed(f"it redirects more than {self._limits.max_redirects} times")

    async def _hop(self, flight: _Flight, asked: str, url: URL, kept: Kept | None) -> memoryview | URL:
        """The picture, or where the answer sends to."""
        question = {} if kept is None else kept.question(str(url))
        async with self._opener.get(url, question) as answer:
            location = answer.headers.get("Location")
            if answer.status in _REDIRECTS and location is not None:
                return self._rules.redirected(url, location)
            if answer.status == _NOT_MODIFIED and kept is not None and question:
                return self._still(asked, kept, answer)
            base64 = await self._read(flight, answer)
            self._statistics.fetched += 1
            self._cache.put(asked, worth_keeping(base64, str(url), answer.headers, self._clock()))
            return base64

    def _still(self, asked: str, kept: Kept, answer: aiohttp.ClientResponse) -> memoryview:
        self._statistics.not_modified += 1
        self._cache.put(asked, renewed(kept, answer.headers, self._clock()))
        return kept.base64

    async def _read(self, flight: _Flight, answer: aiohttp.ClientResponse) -> memoryview:
        """The body as base64. Raises FetchError, aiohttp.ClientError."""
        most = self._limits.max_bytes
        if answer.status != _OK:
            raise download_failed(f"its host answered with status {answer.status}")
        if answer.headers.get("Content-Encoding", "identity").strip().lower() not in {"", "identity"}:
            raise download_failed("its host compressed it, which nobody asked for")
        if answer.content_length is not None:
            if answer.content_length > most:
                raise too_large(str(answer.content_length), most)
            self._hold(flight, encoded_bytes(answer.content_length))
        writer = Base64Writer()
        async for piece in answer.content.iter_any():
            writer.write(piece)
            if writer.file_bytes > most:
                raise too_large(f"more than {most}", most)
            if answer.content_length is None:
                self._hold(flight, encoded_bytes(writer.file_bytes + _STEP_BYTES) // _STEP_BYTES * _STEP_BYTES)
        if not writer.file_bytes:
            raise download_failed("its host sent an empty file")
        return writer.close()
