"""A proxy of TCP that breaks the wire as a network does: silence in which nothing closes, and bytes that are late.

It stands between a gateway and its upstream, where a firewall, a lost route or a bad cable would be.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

_PIECE_BYTES = 65_536


@dataclass
class FaultProxy:
    """After `be_silent` it reads nothing and passes nothing on until `speak`. Each piece is `late_seconds` late; a
    `lost_share` of them comes `again_seconds` later still, as TCP sends again what was lost.
    """

    host: str
    port: int
    base_url: str = ""
    late_seconds: float = 0.0
    lost_share: float = 0.0
    again_seconds: float = 0.2
    chance: random.Random = field(default_factory=lambda: random.Random(1))
    lost: int = 0
    _may_speak: asyncio.Event = field(default_factory=asyncio.Event)
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.speak()

    def be_silent(self) -> None:
        self._may_speak.clear()

    def speak(self) -> None:
        self._may_speak.set()

    def cut(self) -> None:
        """All connections, with a reset."""
        for writer in self._writers:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._may_speak.wait()
        there, back = await asyncio.open_connection(self.host, self.port)
        self._writers |= {writer, back}
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pass_on(reader, back))
                both.create_task(self._pass_on(there, writer))
        finally:
            self._writers -= {writer, back}
            writer.transport.abort()
            back.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while piece := await reader.read(_PIECE_BYTES):
                await self._hinder()
                writer.write(piece)
                await writer.drain()
            writer.write_eof()

    async def _hinder(self) -> None:
        await self._may_speak.wait()
        late_seconds = self.late_seconds
        if self.lost_share and self.chance.random() < self.lost_share:
            self.lost += 1
            late_seconds += self.again_seconds
        if late_seconds:
            await asyncio.sleep(late_seconds)


@asynccontextmanager
async def fault_proxy(base_url: str) -> AsyncIterator[FaultProxy]:
    """Before the server at `base_url`, on a port of its own."""
    host, _, port = base_url.removeprefix("http://").partition(":")
    proxy, tasks = FaultProxy(host, int(port)), set[asyncio.Task[None]]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        with suppress(OSError):
            await proxy.serve(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    proxy.base_url = "http://{}:{}".format(*server.sockets[0].getsockname())
    try:
        yield proxy
    finally:
        server.close()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
