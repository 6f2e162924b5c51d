"""A client that acts as the OpenAI SDK does, at a fraction of its CPU, or one that just asks and does not retry."""

import asyncio
import json
import random
from collections.abc import Callable, Mapping

import aiohttp

from benchmarks.overload import messages, sdk_rules
from benchmarks.overload.traffic import Request
from benchmarks.overload.visit import Ending, StreamReader, Visit, refusal_kind

Clock = Callable[[], float]
PATH = "/v1/chat/completions"
_READ_BUFFER_BYTES = 1 << 18


def session(base_url: str) -> aiohttp.ClientSession:
    """Connections without a limit: as many clients as there are requests."""
    return aiohttp.ClientSession(
        base_url,
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=None),
        read_bufsize=_READ_BUFFER_BYTES,
    )


def headers_of(request: Request) -> dict[str, str]:
    """What both kinds of clients send: who they are, and for the emulator the length of the answer."""
    return {
        "authorization": f"Bearer sk-{request.tenant}",
        "x-emulator-output-tokens": str(request.output_tokens),
    }


class Client:
    """Sends requests over one session. `clock` tells the seconds since the cell began."""

    def __init__(self, http: aiohttp.ClientSession, salt: str, patience_seconds: float, clock: Clock) -> None:
        self._http = http
        self._salt = salt
        self._patience_seconds = patience_seconds
        self._clock = clock

    async def visit(self, request: Request, began_at: float) -> Visit:
        """One client's whole visit; it leaves for good when its patience is over."""
        visit = Visit(request, began_at)
        leaves_at = began_at + self._patience_seconds
        try:
            async with asyncio.timeout(leaves_at - self._clock()):
                await self._try_until_answered(visit, leaves_at)
        except TimeoutError:
            visit.leave()
        visit.ended_at = self._clock()
        return visit

    async def _try_until_answered(self, visit: Visit, leaves_at: float) -> None:
        body = messages.payload(visit.request, self._salt)
        encoded = json.dumps({**body, "emulator_output_tokens": visit.request.output_tokens}).encode()
        backoff = random.Random(visit.request.backoff_seed)
        while True:
            again = await self._attempt(visit, encoded)
            if again is None or visit.attempts > visit.request.retries:
                return
            delay = sdk_rules.delay_seconds(again, visit.attempts - 1, backoff)
            if self._clock() + delay >= leaves_at:
                return
            await asyncio.sleep(delay)

    async def _attempt(self, visit: Visit, body: bytes) -> Mapping[str, str] | None:
        """One HTTP request. The headers to wait by if it is worth another attempt, else None."""
        visit.begin_attempt(self._clock())
        headers = headers_of(visit.request) | {
            "content-type": "application/json",
            "x-stainless-retry-count": str(visit.attempts - 1),
        }
        has_answer = False
        try:
            async with self._http.post(PATH, data=body, headers=headers) as response:
                if response.status != 200:
                    return await self._refused(visit, response)
                has_answer = True
                await self._read(visit, response)
        except aiohttp.ClientError as error:
            if not has_answer:
                visit.ending, visit.error = Ending.NO_ANSWER, type(error).__name__
                return {}
            visit.break_off(type(error).__name__, self._clock())
        return None

    async def _refused(self, visit: Visit, response: aiohttp.ClientResponse) -> Mapping[str, str] | None:
        body = await response.read()
        headers = {name.lower(): value for name, value in response.headers.items()}
        kind = refusal_kind(response.status, headers.get("x-gateway-reason"), body)
        visit.refuse(kind, self._clock(), headers)
        return headers if sdk_rules.is_retried(response.status, headers) else None

    async def _read(self, visit: Visit, response: aiohttp.ClientResponse) -> None:
        reader = StreamReader(visit)
        async for piece in response.content.iter_any():
            reader.feed(piece, self._clock())
        if not reader.is_over:
            visit.break_off("cut", self._clock())
