"""The OpenAI SDK itself, for a share of the clients: what is imitated elsewhere is checked against the real thing."""

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import openai

from benchmarks.overload import messages
from benchmarks.overload.client import Clock, headers_of
from benchmarks.overload.traffic import Request
from benchmarks.overload.visit import Ending, Visit, refusal_kind

_visit: ContextVar[Visit] = ContextVar("visit")


class SdkClient:
    """As `Client`. Its jitter is the SDK's own, so it is no function of the seed."""

    def __init__(self, base_url: str, salt: str, patience_seconds: float, clock: Clock) -> None:
        self._salt = salt
        self._patience_seconds = patience_seconds
        self._clock = clock
        hooks: dict[str, list[Callable[..., Any]]] = {"request": [self._sends], "response": [self._hears]}
        self._sdk = openai.AsyncOpenAI(
            base_url=f"{base_url}/v1",
            api_key="unused",
            max_retries=2,
            http_client=openai.DefaultAsyncHttpxClient(event_hooks=hooks),
        )

    async def close(self) -> None:
        await self._sdk.close()

    async def visit(self, request: Request, began_at: float) -> Visit:
        """One client's whole visit."""
        visit = Visit(request, began_at)
        _visit.set(visit)
        try:
            async with asyncio.timeout(began_at + self._patience_seconds - self._clock()):
                await self._ask(visit)
        except TimeoutError:
            visit.leave()
        except openai.APIStatusError:
            pass  # the response hook has written it down
        except openai.APIConnectionError as error:
            visit.ending, visit.error = Ending.NO_ANSWER, type(error).__name__
        except openai.APIError as error:
            visit.break_off(f"in a 200: {error.code or error.type}", self._clock())
        visit.ended_at = self._clock()
        return visit

    async def _ask(self, visit: Visit) -> None:
        request = visit.request
        stream = await self._sdk.chat.completions.create(
            **messages.payload(request, self._salt),
            extra_headers=headers_of(request),
            extra_body={"emulator_output_tokens": request.output_tokens},
        )
        async for chunk in stream:
            if chunk.choices and chunk.choices[0].delta.content:
                visit.token(self._clock())
        if visit.first_token_at is None:
            visit.break_off("cut", self._clock())
        else:
            visit.ending = Ending.DONE

    async def _sends(self, _: Any) -> None:
        _visit.get().begin_attempt(self._clock())

    async def _hears(self, response: Any) -> None:
        if response.status_code != 200:
            body = await response.aread()
            kind = refusal_kind(response.status_code, response.headers.get("x-gateway-reason"), body)
            _visit.get().refuse(kind, self._clock(), response.headers)
