"""A small raw HTTP server for tests: it does exactly what a test tells it, wire faults included."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

Script = Callable[["Visit"], Awaitable[None]]


@dataclass
class Visit:
    """One request as the server saw it, and the wire to answer on."""

    connection: int
    method: str
    path: str
    headers: list[tuple[str, str]]
    body: bytes
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def header(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name]

    async def write(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self, status: str, body: bytes = b"", *headers: str) -> None:
        lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", *headers, "", ""]
        await self.write("\r\n".join(lines).encode() + body)

    async def stream_head(self) -> None:
        await self.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")

    async def chunk(self, data: bytes) -> None:
        await self.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def reset(self) -> None:
        self.writer.transport.abort()


@dataclass
class Stub:
    """`script` answers each request; `visits` are the requests so far; `hung_up` counts clients that went early."""

    script: Script
    base_url: str = ""
    visits: list[Visit] = field(default_factory=list)
    visited: asyncio.Event = field(default_factory=asyncio.Event)
    connections: int = 0
    hung_up: asyncio.Event = field(default_factory=asyncio.Event)
    stop: Callable[[], Awaitable[None]] = field(init=False)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        connection = self.connections
        try:
            while (visit := await _read_request(connection, reader, writer)) is not None:
                self.visits.append(visit)
                self.visited.set()
                await self.script(visit)
        except (ConnectionError, asyncio.IncompleteReadError):
            self.hung_up.set()
        finally:
            writer.close()


async def _read_request(connection: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Visit | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.split("\r\n")[:-2]
    method, path, _version = first.split(" ")
    headers = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    body_bytes = next((int(value) for name, value in headers if name == "content-length"), 0)
    body = await reader.readexactly(body_bytes)
    return Visit(connection, method, path, headers, body, reader, writer)


async def answer_ok(visit: Visit) -> None:
    await visit.answer("200 OK", b"{}", "content-type: application/json")


@asynccontextmanager
async def raw_http_server(script: Script, port: int = 0, tls: ssl.SSLContext | None = None) -> AsyncIterator[Stub]:
    stub = Stub(script)
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        await stub.serve(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", port, ssl=tls)
    host, port = server.sockets[0].getsockname()
    stub.base_url = f"{'http' if tls is None else 'https'}://{host}:{port}"

    async def stop() -> None:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    stub.stop = stop
    try:
        yield stub
    finally:
        await stop()
