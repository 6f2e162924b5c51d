"""Real clients before a server that refuses: how many see the 429, and how many lose it to a closed connection."""

import argparse
import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
import openai

AT_ONCE = 4


async def _with_httpx(port: int, body: bytes) -> str:
    async with httpx.AsyncClient(timeout=60) as client:
        try:
            url = f"http://127.0.0.1:{port}/v1/chat/completions"
            answer = await client.post(url, content=body, headers={"content-type": "application/json"})
        except httpx.HTTPError as error:
            return type(error).__name__
        return str(answer.status_code)


async def _with_sdk(port: int, body: bytes) -> str:
    request = json.loads(body)
    async with openai.AsyncOpenAI(
        base_url=f"http://127.0.0.1:{port}/v1", api_key="benchmark", max_retries=0, timeout=60
    ) as client:
        try:
            await client.chat.completions.create(**request)
        except openai.APIStatusError as error:
            return str(error.status_code)
        except openai.APIError as error:
            return type(error).__name__
        return "200"


async def _many(send: Callable[[int, bytes], Awaitable[str]], port: int, body: bytes, count: int) -> Counter[str]:
    places, seen = asyncio.Semaphore(AT_ONCE), Counter[str]()

    async def one() -> None:
        async with places:
            seen[await send(port, body)] += 1

    await asyncio.gather(*(one() for _ in range(count)))
    return seen


async def see(port: int, body: bytes, count: int) -> dict[str, dict[str, int]]:
    """What `count` requests of each client end in: a status, or the name of the error."""
    return {
        "httpx": dict(await _many(_with_httpx, port, body, count)),
        "openai": dict(await _many(_with_sdk, port, body, count)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--body", required=True)
    parser.add_argument("--count", type=int, default=20)
    given = parser.parse_args()
    print(json.dumps(asyncio.run(see(given.port, Path(given.body).read_bytes(), given.count))))


if __name__ == "__main__":
    main()
