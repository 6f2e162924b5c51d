"""So many at a time of each host, and of all together: a slow host keeps its own pictures waiting and few others."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """`async with turns.of(host)`: first come, first served, of each host."""

    def __init__(self, *, per_host: int, in_all: int) -> None:
        self._per_host = per_host
        self._all = asyncio.Semaphore(in_all)
        self._hosts: dict[str, tuple[asyncio.Semaphore, int]] = {}

    def __len__(self) -> int:
        """Hosts that are asked, or waited for, now."""
        return len(self._hosts)

    @asynccontextmanager
    async def of(self, host: str) -> AsyncIterator[None]:
        own, users = self._hosts.get(host, (None, 0))
        own = own or asyncio.Semaphore(self._per_host)
        self._hosts[host] = own, users + 1
        try:
            async with own, self._all:
                yield
        finally:
            own, users = self._hosts.pop(host)
            if users > 1:
                self._hosts[host] = own, users - 1
