"""What the emulated server says of itself while it is loaded, and waiting until it is idle again."""

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Self

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

LOOK_SECONDS = 0.5
_QUIET_LOOKS = 3  # what is still being preprocessed shows in no gauge
_QUIET_SECONDS = 0.2
_LONGEST_DRAIN_SECONDS = 60.0
_WATCHED = {
    "vllm:num_requests_waiting": "waiting",
    "vllm:num_requests_running": "running",
    "vllm:generation_tokens_total": "generated_tokens",
    "vllm:num_preemptions_total": "preemptions",
}


@dataclass(frozen=True, slots=True)
class Seen:
    """One look at /metrics, or the difference of two."""

    waiting: float = 0.0
    running: float = 0.0
    generated_tokens: float = 0.0
    preemptions: float = 0.0


def seen_in(page: str) -> Seen:
    values = {
        _WATCHED[sample.name]: sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name in _WATCHED
    }
    return Seen(**values)


class Watch:
    """Looks at the server twice a second while its block runs; afterwards waits until it is idle."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self._http = http
        self._task: asyncio.Task[None] | None = None
        self._before = Seen()
        self.most_waiting = 0.0
        self.generated_tokens = 0
        self.preemptions = 0

    async def __aenter__(self) -> Self:
        await self.drain()
        self._before = await self._look()
        self._task = asyncio.create_task(self._keep_looking())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self.drain()
        after = await self._look()
        self.generated_tokens = int(after.generated_tokens - self._before.generated_tokens)
        self.preemptions = int(after.preemptions - self._before.preemptions)

    async def drain(self) -> None:
        """Until nothing runs or waits in several looks. Raises TimeoutError after a minute."""
        quiet = 0
        async with asyncio.timeout(_LONGEST_DRAIN_SECONDS):
            while quiet < _QUIET_LOOKS:
                seen = await self._look()
                quiet = 0 if seen.running or seen.waiting else quiet + 1
                await asyncio.sleep(_QUIET_SECONDS)

    async def _look(self) -> Seen:
        async with self._http.get("/metrics") as response:
            return seen_in(await response.text())

    async def _keep_looking(self) -> None:
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                self.most_waiting = max(self.most_waiting, (await self._look()).waiting)
            await asyncio.sleep(LOOK_SECONDS)
