"""A proxy as most people write it first: a FastAPI route, an httpx client, a StreamingResponse. A peer, not an example.

REFUSE=1 answers 429 to everything.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

UPSTREAM = os.environ["UPSTREAM"]
REFUSES = os.environ.get("REFUSE") == "1"


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=2000)
    async with httpx.AsyncClient(base_url=UPSTREAM, limits=limits, timeout=None) as client:  # the stub sets the pace
        app.state.client = client
        yield


app = FastAPI(lifespan=lifespan)


@app.get("/health")
async def health() -> dict[str, str]:
    return {"status": "ok"}


@app.post("/v1/chat/completions")
async def chat(request: Request) -> Response:
    if REFUSES:
        return JSONResponse({"error": {"message": "busy", "type": "rate_limit_error"}}, 429, {"retry-after": "1"})
    payload = await request.json()
    client: httpx.AsyncClient = request.app.state.client
    upstream = client.build_request("POST", "/v1/chat/completions", json=payload)
    answer = await client.send(upstream, stream=payload.get("stream", False))
    if not payload.get("stream"):
        return Response(answer.content, answer.status_code, media_type=answer.headers.get("content-type"))

    async def events() -> AsyncIterator[bytes]:
        try:
            async for piece in answer.aiter_raw():
                yield piece
        finally:
            await answer.aclose()

    return StreamingResponse(events(), answer.status_code, media_type="text/event-stream")
