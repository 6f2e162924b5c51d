"""What a user writes in an afternoon against overload: so many requests at a time, so many may wait, 429 for the rest.

LIMIT and QUEUE say how many. It knows nothing of tokens, images or tenants. A peer, not an example.
"""

import asyncio
import os
from collections.abc import AsyncIterator

import aiohttp
from aiohttp import web

UPSTREAM = os.environ["UPSTREAM"]
LIMIT, QUEUE = int(os.environ["LIMIT"]), int(os.environ["QUEUE"])
BUSY = {"error": {"message": "too many requests", "type": "rate_limit_error", "code": "queue_full"}}


class Gate:
    """Seats, and a count of those who wait for one."""

    def __init__(self) -> None:
        self._seats = asyncio.Semaphore(LIMIT)
        self._waiting = 0
        self._session: aiohttp.ClientSession

    async def live(self, _: web.Application) -> AsyncIterator[None]:
        connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(UPSTREAM, connector=connector, timeout=timeout) as self._session:
            yield

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        if self._seats.locked() and self._waiting >= QUEUE:
            return web.json_response(BUSY, status=429, headers={"retry-after": "1"})
        self._waiting += 1
        try:
            await self._seats.acquire()
        finally:
            self._waiting -= 1
        try:
            return await self._forward(request, body)
        finally:
            self._seats.release()

    async def _forward(self, request: web.Request, body: bytes) -> web.StreamResponse:
        headers = {name: request.headers[name] for name in ("content-type", "authorization") if name in request.headers}
        async with self._session.post(request.path, data=body, headers=headers) as upstream:
            answer = web.StreamResponse(status=upstream.status, headers={"content-type": upstream.content_type})
            await answer.prepare(request)
            async for piece in upstream.content.iter_any():
                await answer.write(piece)
            return answer


async def health(_: web.Request) -> web.Response:
    return web.Response()


def main() -> None:
    gate = Gate()
    app = web.Application(client_max_size=1 << 28)
    app.cleanup_ctx.append(gate.live)
    app.add_routes([web.get("/health", health), web.post("/v1/chat/completions", gate.chat)])
    port = int(os.environ["PORT"])
    web.run_app(app, host="127.0.0.1", port=port, access_log=None, print=None, handler_cancellation=True)


if __name__ == "__main__":
    main()
