"""Three gateways as users start them, a real redis-server and one emulated engine under load: what the engine itself
counts, while one gateway is killed and Redis goes away and comes back empty.
"""

import asyncio
import contextlib
import pathlib
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field

import httpx
import psutil
import pytest

from gateway.emulator.config import EmulatorConfig, StepCost
from gateway.emulator.serve import RunningEmulator, running_emulator
from tests.support.live_gateway import CHAT, chat
from tests.support.processes import RunningGateway, metrics, running_gateway
from tests.support.redis_server import RedisServer, running_redis

BUDGET = 12
GATEWAYS = 3
CLIENTS = (24, 8, 8)
"""Together they ask for three times what there is, and the first of them for most of it."""
CAPACITY = 'gateway_capacity{resource="sequences"}'
LOOK_SECONDS = 0.005


@dataclass
class Watch:
    """The most that the engine had at once, by phase, as it counts itself."""

    emulator: RunningEmulator
    phase: str = "start"
    most: dict[str, int] = field(default_factory=dict)
    is_over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self.is_over.wait(LOOK_SECONDS):
            statistics = self.emulator.statistics()
            count = statistics.running + statistics.waiting
            self.most[self.phase] = max(self.most.get(self.phase, 0), count)


@contextlib.contextmanager
def watching(emulator: RunningEmulator) -> Iterator[Watch]:
    watch = Watch(emulator)
    thread = threading.Thread(target=watch.run)
    thread.start()
    try:
        yield watch
    finally:
        watch.is_over.set()
        thread.join()


@dataclass
class House:
    redis: RedisServer
    gateways: list[RunningGateway]
    watch: Watch
    answers: list[list[int | str]]

    async def until(self, is_so: Callable[[list[dict[str, float]]], bool], which: slice) -> float:
        """Seconds until it is so of the metrics of these gateways. The bound only ends what hangs."""
        began = time.monotonic()
        while True:
            seen = [await asyncio.to_thread(metrics, gateway.url) for gateway in self.gateways[which]]
            if is_so(seen):
                return time.monotonic() - began
            assert time.monotonic() < began + 60, [(each.get(CAPACITY), each.get("gateway_held")) for each in seen]
            await asyncio.sleep(0.02)

    async def until_answered(self, count: int, which: slice) -> None:
        """So many more requests at each of these."""
        before = [len(answers) for answers in self.answers]
        give_up_at = time.monotonic() + 60
        while any(len(now) < then + count for now, then in zip(self.answers[which], before[which], strict=True)):
            assert time.monotonic() < give_up_at, [len(answers) for answers in self.answers]
            await asyncio.sleep(0.02)


def settings_at(redis: RedisServer) -> dict[str, object]:
    return {
        "ledger": {"redis_url": redis.url, "gateways": GATEWAYS},
        "upstream": {"poll_seconds": 0.2},
        "budget": {"sequences": BUDGET},
        "queue": {"wait_seconds": 120},
        "calibration": "off",
    }


@contextlib.contextmanager
def house(work: pathlib.Path) -> Iterator[House]:
    pace = StepCost(0.03, 0.0, 0.0, 0.0)
    with contextlib.ExitStack() as stack:
        redis = stack.enter_context(running_redis(work / "redis"))
        emulator = stack.enter_context(running_emulator(EmulatorConfig.fast(step_cost=pace)))
        gateways = [
            stack.enter_context(running_gateway(emulator.base_url, work / f"gateway{number}", settings_at(redis)))
            for number in range(GATEWAYS)
        ]
        watch = stack.enter_context(watching(emulator))
        yield House(redis, gateways, watch, [[] for _ in gateways])


async def ask_for_ever(client: httpx.AsyncClient, url: str, answers: list[int | str]) -> None:
    while True:
        try:
            answer = await client.post(f"{url}{CHAT}", json=chat("Hello.", max_tokens=12, ignore_eos=True))
            answers.append(answer.status_code)
        except httpx.TransportError as error:
            answers.append(type(error).__name__)
            await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def load(house: House) -> AsyncIterator[None]:
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(timeout=120, limits=limits, trust_env=False) as client:
        asking = [
            asyncio.create_task(ask_for_ever(client, gateway.url, answers))
            for gateway, answers, count in zip(house.gateways, house.answers, CLIENTS, strict=True)
            for _ in range(count)
        ]
        try:
            yield
        finally:
            for task in asking:
                task.cancel()
            await asyncio.wait(asking)


def have_it_all(seen: list[dict[str, float]]) -> bool:
    return sum(each[CAPACITY] for each in seen) == BUDGET


def know_each_other(seen: list[dict[str, float]]) -> bool:
    return all(each["gateway_ledger_gateways"] == len(seen) for each in seen)


@pytest.mark.system("redis-server")
async def test_the_engine_never_has_more_than_the_budget_whatever_happens(tmp_path, report_line):
    pytest.importorskip("redis")
    everyone, survivors = slice(GATEWAYS), slice(GATEWAYS - 1)
    with house(tmp_path) as three:
        await three.until(have_it_all, everyone)
        async with load(three):
            three.watch.phase = "all"
            await three.until_answered(25, everyone)

            three.watch.phase = "one killed"
            psutil.Process(three.gateways[-1].process_id).kill()
            seconds = {"given back after the kill": await three.until(have_it_all, survivors)}
            await three.until_answered(15, survivors)
            await three.until(know_each_other, survivors)

            three.watch.phase = "Redis gone"
            three.redis.kill()
            await three.until(lambda seen: all(each["gateway_ledger_cut_off"] for each in seen), survivors)
            await three.until(lambda seen: all(each[CAPACITY] == BUDGET // 2 for each in seen), survivors)
            await three.until_answered(15, survivors)

            three.watch.phase = "Redis back"
            three.redis.start()
            seconds["shared again"] = await three.until(
                lambda seen: not any(each["gateway_ledger_cut_off"] for each in seen), survivors
            )
            await three.until_answered(30, survivors)
            three.watch.phase = "end"
    most, static = three.watch.most, BUDGET // 2
    report_line(f"three gateways, budget {BUDGET} sequences: most at the engine {most}; seconds {seconds}")
    assert {status for answers in three.answers[survivors] for status in answers} == {200}
    assert most["all"] == BUDGET, "the load was meant to fill it"
    assert most["one killed"] <= BUDGET
    # Each admits nothing above its static share; what one held above that runs to its end.
    assert most["Redis gone"] <= BUDGET + static
    assert most["Redis back"] <= BUDGET
    assert seconds["given back after the kill"] < 30
