"""Clients of the suite, with connections of their own: none of them is open when it is looked at what came back."""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import httpx

from tests.support.live_gateway import CHAT


class Somewhere(Protocol):
    """A gateway, wherever it runs."""

    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...


def clients(gateway: Somewhere, *, seconds: float = 60.0) -> AbstractAsyncContextManager[httpx.AsyncClient]:
    """As many connections as are needed at once; none outlives the block."""
    limits = httpx.Limits(max_connections=None)
    return httpx.AsyncClient(
        base_url=f"http://{gateway.host}:{gateway.port}", timeout=seconds, limits=limits, trust_env=False
    )


async def ask_many(gateway: Somewhere, bodies: Iterable[dict[str, Any]], path: str = CHAT) -> Sequence[httpx.Response]:
    """All at once; the answers in the order of the requests."""
    async with clients(gateway) as client:
        return await asyncio.gather(*(client.post(path, json=body) for body in bodies))
