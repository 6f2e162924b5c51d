"""A client that does exactly what a test tells it: sends half a body, hangs up, reads nothing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.support.live_gateway import CHAT


class RawClient:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def post(self, body: bytes, *headers: str, path: str = CHAT) -> None:
        """A whole request."""
        self.send(head(len(body), *headers, path=path) + body)

    async def answer_head(self) -> tuple[int, dict[str, str]]:
        """Status and headers of the answer, names in lower case."""
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines[1:] if line)
        return int(lines[0].split()[1]), {name.lower(): value.strip() for name, _, value in pairs}

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """A whole answer of known length."""
        status, headers = await self.answer_head()
        return status, headers, await self.reader.readexactly(int(headers["content-length"]))

    def hang_up(self) -> None:
        self.writer.transport.abort()


def head(content_length: int | None, *headers: str, path: str = CHAT, method: str = "POST") -> bytes:
    """The head of a request with JSON; without a length it is chunked."""
    length = "transfer-encoding: chunked" if content_length is None else f"content-length: {content_length}"
    lines = [f"{method} {path} HTTP/1.1", "host: gateway", "content-type: application/json", length, *headers]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


@asynccontextmanager
async def raw_client(host: str, port: int) -> AsyncIterator[RawClient]:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        yield RawClient(reader, writer)
    finally:
        writer.transport.abort()
