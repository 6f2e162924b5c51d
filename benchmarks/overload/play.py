"""Loads one address with one cell's traffic and writes down what happened. One event loop, no decisions."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from benchmarks.overload.client import Client, session
from benchmarks.overload.intervals import quantile
from benchmarks.overload.sdk_client import SdkClient
from benchmarks.overload.traffic import Request
from benchmarks.overload.visit import Record, Visit
from benchmarks.overload.watch import Watch
from benchmarks.processes import cpu_ns

LEAD_SECONDS = 0.2
CLOSED_LOOP_PATIENCE_SECONDS = 600.0
ALONE_PATIENCE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where the traffic goes, and whose CPU time counts: `arm_pid` None means that there is nothing in front."""

    base_url: str
    upstream_url: str
    upstream_pid: int
    arm_pid: int | None = None


class _Cpu:
    """CPU seconds used since it was made."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._began, self._arm, self._load = time.monotonic(), *self._used()

    def _used(self) -> tuple[float, float]:
        arm = cpu_ns(self._place.arm_pid) if self._place.arm_pid else 0
        return arm / 1e9, cpu_ns(self._place.upstream_pid) / 1e9 + time.process_time()

    def cores(self) -> tuple[float, float]:
        """Of the arm; of server and generator."""
        seconds = time.monotonic() - self._began
        arm, load = self._used()
        return (arm - self._arm) / seconds, (load - self._load) / seconds


@dataclass(slots=True)
class _Clock:
    """Seconds since the cell began, and how late its requests left."""

    began: float = field(default_factory=lambda: time.monotonic() + LEAD_SECONDS)
    late: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        return time.monotonic() - self.began

    async def until(self, at_seconds: float) -> None:
        await asyncio.sleep(max(0.0, at_seconds - self()))
        self.late.append(self() - at_seconds)


async def open_loop(
    place: Place, requests: Sequence[Request], seconds: float, patience_seconds: float, salt: str
) -> Record:
    """Send every request at its instant, whatever became of those before."""
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(session(place.base_url))
        watch = Watch(await stack.enter_async_context(session(place.upstream_url)))
        await watch.drain()
        clock = _Clock()
        client = Client(http, salt, patience_seconds, clock)
        sdk = SdkClient(place.base_url, salt, patience_seconds, clock)
        stack.push_async_callback(sdk.close)
        async with watch:
            clock.began, cpu = time.monotonic() + LEAD_SECONDS, _Cpu(place)
            tasks = []
            for request in requests:
                await clock.until(request.at_seconds)
                chosen = sdk if request.is_sdk else client
                tasks.append(asyncio.create_task(chosen.visit(request, request.at_seconds)))
            arm_cpu, load_cpu = cpu.cores()
            visits = await asyncio.gather(*tasks)
    return Record(
        visits=visits,
        seconds=seconds,
        generated_tokens=watch.generated_tokens,
        preemptions=watch.preemptions,
        most_waiting=int(watch.most_waiting),
        late_p99_seconds=quantile(clock.late, 0.99) or 0.0,
        arm_cpu=arm_cpu,
        load_cpu=load_cpu,
    )


async def closed_loop(place: Place, requests: Iterator[Request], users: int, seconds: float, salt: str) -> Record:
    """`users` clients, each with its next request open as soon as the last one is answered; none is cut off."""
    visits: list[Visit] = []
    async with session(place.base_url) as http, session(place.upstream_url) as side:
        watch = Watch(side)
        await watch.drain()
        clock = _Clock()
        client = Client(http, salt, CLOSED_LOOP_PATIENCE_SECONDS, clock)

        async def user() -> None:
            while clock() < seconds:
                visits.append(await client.visit(next(requests), clock()))

        async with watch:
            clock.began, cpu = time.monotonic(), _Cpu(place)
            await asyncio.gather(*(user() for _ in range(users)))
            arm_cpu, load_cpu = cpu.cores()
    return Record(visits, seconds, watch.generated_tokens, watch.preemptions, arm_cpu=arm_cpu, load_cpu=load_cpu)


async def one_by_one(base_url: str, requests: Sequence[Request], pause_seconds: float) -> list[Visit]:
    """Each request alone at a server that has nothing else to do."""
    visits = []
    async with session(base_url) as http:
        clock = _Clock()
        client = Client(http, "one", ALONE_PATIENCE_SECONDS, clock)
        for request in requests:
            await asyncio.sleep(pause_seconds)
            visits.append(await client.visit(request, clock()))
    return visits
