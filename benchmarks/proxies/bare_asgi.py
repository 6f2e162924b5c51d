"""The gateway's own stack with nothing in it: bare ASGI, aiohttp, bytes in, bytes out. What it costs, no admission
control on uvicorn can avoid; what the gateway costs beyond it is the price of admission.

REFUSE=1 answers 429 to everything.
"""

import os
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import aiohttp

UPSTREAM = os.environ["UPSTREAM"]
REFUSES = os.environ.get("REFUSE") == "1"
BUSY = b'{"error":{"message":"busy","type":"rate_limit_error"}}'
JSON = (b"content-type", b"application/json")
FORWARDED = (b"content-type", b"content-length")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Proxy:
    """The ASGI application and the session it forwards with."""

    _session: aiohttp.ClientSession

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["path"] == "/health":
            await answer(send, 200, [], b"")
        elif REFUSES:
            await answer(send, 429, [JSON, (b"retry-after", b"1")], BUSY)
        else:
            await self._forward(scope["path"], await body_of(receive), send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(UPSTREAM, connector=connector, timeout=timeout) as self._session:
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    async def _forward(self, path: str, body: bytes, send: Send) -> None:
        async with self._session.post(path, data=body, headers={"content-type": "application/json"}) as response:
            headers = [(name.lower(), value) for name, value in response.raw_headers if name.lower() in FORWARDED]
            await send({"type": "http.response.start", "status": response.status, "headers": headers})
            async for piece in response.content.iter_any():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})


async def body_of(receive: Receive) -> bytes:
    pieces = []
    while True:
        message = await receive()
        pieces.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(pieces)


async def answer(send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})


app = Proxy()
