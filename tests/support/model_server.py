"""A model server that answers what a test tells it, and remembers each request byte for byte."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tests.support.live_gateway import MODEL
from tests.support.raw_http import Script, Stub, Visit, raw_http_server

ANSWER = json.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": MODEL,
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Yes."}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 40, "completion_tokens": 2, "total_tokens": 42},
    }
).encode()
EVENTS = (
    b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n',
    b'data: {"choices":[{"index":0,"delta":{"content":"Yes."},"finish_reason":"stop"}]}\n\n',
    b"data: [DONE]\n\n",
)
IDLE = b"vllm:num_requests_running 0.0\nvllm:num_requests_waiting 0.0\n"


async def answer_chat(visit: Visit) -> None:
    """A short answer, streamed if that was asked for."""
    if json.loads(visit.body).get("stream"):
        await visit.stream_head()
        for event in EVENTS:
            await visit.chunk(event)
        await visit.write(b"0\r\n\r\n")
    else:
        await visit.answer("200 OK", ANSWER, "content-type: application/json")


async def answer_never(visit: Visit) -> None:
    """Silent until the client is gone."""
    await visit.reader.read()


def answer_together(count: int) -> Script:
    """Nobody is answered before so many are there."""
    all_there = asyncio.Event()
    come: list[Visit] = []

    async def script(visit: Visit) -> None:
        come.append(visit)
        if len(come) == count:
            all_there.set()
        await all_there.wait()
        await answer_chat(visit)

    return script


class Patient:
    """A model server that answers as `answer` does, when it is told to. With `then` that is so for the first request
    only: the others are answered like that, at once.
    """

    def __init__(self, answer: Script = answer_chat, then: Script | None = None) -> None:
        self.may_answer = asyncio.Event()
        self._answer = answer
        self._then = then
        self._is_first = True

    async def __call__(self, visit: Visit) -> None:
        is_first, self._is_first = self._is_first, False
        if self._then is not None and not is_first:
            await self._then(visit)
            return
        await self.may_answer.wait()
        await self._answer(visit)


@asynccontextmanager
async def model_server(
    script: Script = answer_chat,
    port: int = 0,
    models: Sequence[str] = (MODEL,),
    context: int = 32_768,
    roots: Mapping[str, str] | None = None,
    *,
    is_idle: bool = False,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[Stub]:
    """`script` answers the POSTs; what the gateway's poller asks is answered as vLLM does. `roots` are what some of the
    models were loaded from. Its metrics tell nothing, or that it `is_idle`.
    """
    cards = [{"id": model, "object": "model", "max_model_len": context} for model in models]
    cards = [card | {"root": root} if (root := (roots or {}).get(str(card["id"]))) else card for card in cards]
    listed = json.dumps({"object": "list", "data": cards}).encode()

    async def serve(visit: Visit) -> None:
        if visit.method == "POST":
            await script(visit)
        elif visit.path == "/v1/models":
            await visit.answer("200 OK", listed, "content-type: application/json")
        elif visit.path == "/metrics" and is_idle:
            await visit.answer("200 OK", IDLE)
        else:
            await visit.answer("200 OK")

    async with raw_http_server(serve, port, tls) as stub:
        yield stub


def posts(stub: Stub) -> list[Visit]:
    return [visit for visit in stub.visits if visit.method == "POST"]


def error_of(answer: Any) -> dict[str, Any]:
    """The error of an answer, which has OpenAI's four fields and no other."""
    assert answer.headers["content-type"] == "application/json"
    (name,) = answer.json()
    assert name == "error"
    error: dict[str, Any] = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    return error
