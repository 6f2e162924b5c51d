"""One question to an image host and the head of its answer. The address guard sits where sockets are made.

On aiohttp, whose connector hands every address it is about to connect to, literal or resolved, to `socket_factory`.
No cookies, no credentials, none of the client's headers, no proxy of the environment, no decoding of content.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from gateway import __version__
from gateway.fetch.guard import AddressGuard

_HEADERS = {
    "User-Agent": f"vlm-gateway/{__version__}",
    "Accept": "image/*, */*;q=0.5",
    "Accept-Encoding": "identity",
}
_AddressInfo = tuple[int, int, int, str, tuple[Any, ...]]


class DeniedAddressError(OSError):
    """The guard does not let anybody connect there."""


class Connections:
    """Questions to image hosts. `start` belongs inside the event loop.

    `resolver_threads` look names up, so that a slow name server holds up nobody else's. With `proxy` that one is asked
    for everything, and it is the proxy that must guard the network: only literal addresses are judged here.
    """

    def __init__(self, guard: AddressGuard, resolver_threads: Executor, *, proxy: str | None = None) -> None:
        self._guard = guard
        self._resolver_threads = resolver_threads
        self._proxy = proxy
        self._session: aiohttp.ClientSession

    async def start(self) -> None:
        connector = aiohttp.TCPConnector(
            limit=0,  # those who ask take turns before (turns.py), so that waiting is not the host's time
            force_close=True,
            use_dns_cache=False,
            resolver=_ThreadedResolver(self._resolver_threads),
            socket_factory=None if self._proxy else partial(_guarded_socket, self._guard),
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            headers=_HEADERS,
            timeout=aiohttp.ClientTimeout(),  # whoever asks keeps the clock
        )

    async def close(self) -> None:
        await self._session.close()

    @asynccontextmanager
    async def get(self, url: URL, headers: dict[str, str]) -> AsyncIterator[aiohttp.ClientResponse]:
        """The head of the answer, the body still to be read; a redirect is an answer.

        Raises aiohttp.ClientError or OSError; a DeniedAddressError is in the chain of causes of what the guard denied.
        """
        async with self._session.get(url, headers=headers, allow_redirects=False, proxy=self._proxy) as response:
            yield response


def is_denied(error: BaseException) -> bool:
    """Whether the guard is why a connection failed: of several addresses, all were denied or could not be reached.

    The library refuses by itself what is an address in an odd spelling (`127.1`, `0177.0.0.1`). A name without an
    address counts too: else names of the gateway's own network could be told from those that do not exist.
    """
    seen: list[BaseException] = [error]
    for each in seen:
        if isinstance(each, DeniedAddressError | aiohttp.InvalidURL | socket.gaierror):
            return True
        causes = (each.__cause__, getattr(each, "os_error", None), *getattr(each, "exceptions", ()))
        seen += [cause for cause in causes if cause is not None and cause not in seen]
    return False


def _guarded_socket(guard: AddressGuard, info: _AddressInfo) -> socket.socket:
    family, kind, protocol, _, address = info
    if not guard.allows(str(address[0])):
        raise DeniedAddressError("not an address that images are fetched from")
    return socket.socket(family, kind, protocol)


class _ThreadedResolver(AbstractResolver):
    """The system's own resolver in threads of its own; the loop's few are shared with all that resolves names."""

    def __init__(self, threads: Executor) -> None:
        self._threads = threads

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        look_up: Callable[[], list[Any]] = partial(
            socket.getaddrinfo, host, port, family, socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
        )
        found = await asyncio.get_running_loop().run_in_executor(self._threads, look_up)
        return [
            ResolveResult(
                hostname=host,
                host=_numeric(address),
                port=address[1],
                family=each_family,
                proto=protocol,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for each_family, _, protocol, _, address in found
        ]

    async def close(self) -> None:
        """The threads are somebody else's."""


def _numeric(address: tuple[Any, ...]) -> str:
    """With its zone, which is only in the fourth place of an IPv6 address."""
    return f"{address[0]}%{address[3]}" if len(address) > 3 and address[3] and "%" not in address[0] else address[0]
