"""Image hosts on this machine, and a fetcher that may ask them."""

import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from ipaddress import ip_network
from typing import Any

import pytest

from gateway.fetch.connection import Connections
from gateway.fetch.guard import AddressGuard

OPEN = AddressGuard([ip_network("127.0.0.0/8")])


@pytest.fixture
async def connect(stack: AsyncExitStack) -> Callable[..., Any]:
    async def connect(guard: AddressGuard = OPEN, **kwargs: Any) -> Connections:
        threads = stack.enter_context(ThreadPoolExecutor(1))
        connections = Connections(guard, threads, **kwargs)
        await connections.start()
        stack.push_async_callback(connections.close)
        return connections

    return connect


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[list[str]]]:
    """Answers of the name server by name, one after the other; the last goes on."""
    answers: dict[str, list[list[str]]] = {}
    real = socket.getaddrinfo

    def look_up(host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
        if host not in answers:
            return real(host, port, *args, **kwargs)
        found = answers[host].pop(0) if len(answers[host]) > 1 else answers[host][0]
        if not found:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return [info for address in found for info in real(address, port, 0, socket.SOCK_STREAM)]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return answers
