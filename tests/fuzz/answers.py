"""Answers of image hosts, damaged: heads, framings, redirects and validators that a fetcher must survive.

An input is what a host says to the first question, to the second, and so on; then it hangs up.
"""

import asyncio
import random
from functools import cache
from ipaddress import ip_network

from gateway.domain.errors import GatewayError
from gateway.fetch.address import AddressRules
from gateway.fetch.cache import FetchCache
from gateway.fetch.connection import Connections
from gateway.fetch.fetcher import Fetcher, FetchLimits
from gateway.fetch.guard import AddressGuard
from gateway.fetch.turns import Turns
from gateway.imaging.threads import DaemonThreads
from tests.fetch.test_fetcher import Budget
from tests.fuzz.damage import damaged
from tests.fuzz.ends import known
from tests.imaging.test_damaged_files import SOURCES

_NEXT = b"\n=== next ===\n"
_HERE = "127.0.0.1"
_FILE = SOURCES["png"]
_MAX_BYTES = len(_FILE) + 40
_CHUNKED = (
    b"".join(b"%x;a=b\r\n%s\r\n" % (len(piece), piece) for piece in (_FILE[:50], _FILE[50:])) + b"0\r\nT: 1\r\n\r\n"
)
_LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n" % len(_FILE)
_ANSWERS = [
    _LENGTH + b'Content-Type: image/png\r\nCache-Control: max-age=0\r\nETag: "1"\r\n\r\n' + _FILE,
    _LENGTH + b"Cache-Control: max-age=60, private\r\nAge: 3\r\nVary: Accept\r\n\r\n" + _FILE,
    _LENGTH
    + b"Last-Modified: Tue, 01 Dec 2026 10:00:00 GMT\r\nCache-Control: no-cache\r\nConnection: close\r\n\r\n"
    + _FILE,
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nExpires: Tue, 01 Dec 2026 10:00:00 GMT\r\n\r\n" + _CHUNKED,
    b"HTTP/1.0 200 OK\r\nServer: old\r\nSet-Cookie: a=b; Path=/\r\n\r\n" + _FILE,
    b"HTTP/1.1 100 Continue\r\n\r\n" + _LENGTH + b"\r\n" + _FILE,
    b"HTTP/1.1 302 Found\r\nLocation: /b.png?c=%20d#e\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 308 Permanent Redirect\r\nLocation: http://[::ffff:7f00:1]:80/\r\nLocation: //a/b\r\n\r\n",
    b'HTTP/1.1 304 Not Modified\r\nETag: "1"\r\nCache-Control: max-age=1e9, max-age=5\r\n\r\n',
    b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x08\x00",
    b"HTTP/1.1 503 Busy\r\nRetry-After: 1\r\nContent-Length: 4\r\n\r\nbusy",
]
_PIECES = [
    *_ANSWERS,
    *(b"Content-Length: -1\r\n", b"Content-Length: 99999999999999999999\r\n", b"Content-Length: 5, 5\r\n", b"\r\n\r\n"),
    *(b"Transfer-Encoding: gzip, chunked\r\n", b"ffffffffffffffff\r\n", b"Location: file:///etc/passwd\r\n", b" :\r\n"),
    *(
        b"X: " + b"y" * 9000 + b"\r\n",
        b"HTTP/9.9 999 ",
        b"\xff\xfe: \xe4\r\n",
        b'ETag: W/"\\"\r\n',
        b"Location: http://[\r\n",
    ),
]


def some_answers(chance: random.Random) -> bytes:
    """One damaged, one that is not, in either order; half the first ones keep the second question possible."""
    first, second = chance.choice(_ANSWERS), damaged(chance.choice(_ANSWERS), _PIECES, chance)
    if chance.random() < 0.5:
        first, second = second, first
    return _NEXT.join((first, second))


class _Bench:
    """A host and a fetcher in an event loop that stops between two inputs."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._answers: list[bytes] = []
        self._budget = Budget()
        self._count = 0
        self._runner.run(self._start())

    async def _start(self) -> None:
        server = await asyncio.start_server(self._serve, _HERE, 0)
        self._port = server.sockets[0].getsockname()[1]
        guard = AddressGuard([ip_network("127.0.0.0/8")])
        self._fetcher = Fetcher(
            Connections(guard, DaemonThreads(1, "resolve")),
            AddressRules(guard, (self._port,), (_HERE,)),  # no damage leads off this machine
            FetchLimits(_MAX_BYTES, timeout_seconds=5.0, max_redirects=3),
            budget=self._budget,
            cache=FetchCache(100_000),
            turns=Turns(per_host=8, in_all=8),
            clock=asyncio.get_running_loop().time,
        )
        await self._fetcher.start()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            if self._answers:
                writer.write(self._answers.pop(0))
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def fetch(self, answers: list[bytes]) -> int:
        """The same address twice, so that what was kept is asked about. Bytes of both as base64."""
        self._answers, self._count = answers, self._count + 1
        return self._runner.run(self._twice(f"http://{_HERE}:{self._port}/{self._count}.png"))

    async def _twice(self, address: str) -> int:
        counted: list[int] = []
        try:
            for _ in range(2):
                file = await self._fetcher.fetch(address, "p", counted.append)
                assert len(file.payload) == counted[-1] <= 2 * _MAX_BYTES
        finally:
            await asyncio.sleep(0)
            assert self._budget.held == 0, "bytes of a fetch come back"
        return sum(counted)


_bench = cache(_Bench)


def label_answers(data: bytes) -> str:
    """Twice whole, or how it ended."""
    try:
        _bench().fetch(data.split(_NEXT))
    except GatewayError as error:
        return known(error)
    return "ok"
