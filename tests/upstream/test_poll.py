"""Looking at a server over a real socket; the pauses between the looks are stepped by hand."""

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from gateway.upstream.poll import Poller, discover
from gateway.upstream.state import UpstreamModel, UpstreamState
from gateway.wire.vllm_metrics import EngineReport
from tests.support.raw_http import Stub, Visit

METRICS = b"""# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="tiny"} 3.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="tiny"} 2.0
"""
PAGES = {
    "/health": b"",
    "/v1/models": b'{"object":"list","data":[{"id":"tiny","max_model_len":32768,"root":"x"},{"id":"adapter"}]}',
    "/version": b'{"version":"0.32.0"}',
    "/metrics": METRICS,
}


async def vllm(visit: Visit) -> None:
    await visit.answer("200 OK", PAGES[visit.path])


class Steps:
    """A sleep that ends when the test says so, and remembers for how long it was asked to last."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self.asleep: asyncio.Queue[None] = asyncio.Queue()
        self.wake: asyncio.Queue[None] = asyncio.Queue()

    async def sleep(self, seconds: float) -> None:
        self.asked.append(seconds)
        self.asleep.put_nowait(None)
        await self.wake.get()

    async def to_end_of_look(self) -> None:
        await asyncio.wait_for(self.asleep.get(), 5)

    async def another_look(self) -> None:
        self.wake.put_nowait(None)
        await self.to_end_of_look()


@pytest.fixture
def steps() -> Steps:
    return Steps()


@pytest.fixture
async def states() -> list[UpstreamState]:
    return []


@pytest.fixture
async def poller(stub: Stub, steps: Steps, states: list[UpstreamState]) -> AsyncIterator[Poller]:
    stub.script = vllm
    poller = Poller(
        stub.base_url,
        observers=[states.append],
        is_busy=lambda: False,
        upstream_key="sk-engine",
        clock=lambda: 100.0 + len(steps.asked),
        sleep=steps.sleep,
        chance=lambda: 0.5,
    )
    await poller.start()
    await steps.to_end_of_look()
    yield poller
    await poller.close()


async def test_one_look_tells_all(poller: Poller, stub: Stub, states: list[UpstreamState], steps: Steps) -> None:
    assert states == [poller.state]
    assert poller.state == UpstreamState(
        is_up=True,
        has_been_up=True,
        models=(UpstreamModel("tiny", 32_768), UpstreamModel("adapter", None)),
        version="0.32.0",
        report=EngineReport(running=3, waiting=2, engines=1),
        reported_at_seconds=100.0,
        changed_at_seconds=100.0,
        misses=0,
        trouble=None,
    )
    assert [visit.path for visit in stub.visits] == list(PAGES)
    assert stub.visits[1].header("authorization") == ["Bearer sk-engine"]
    assert (stub.connections, steps.asked, poller.report_age_seconds()) == (1, [5.0], 1.0)


async def test_going_and_coming_back(
    poller: Poller, stub: Stub, states: list[UpstreamState], steps: Steps, caplog: pytest.LogCaptureFixture
) -> None:
    stub.script = lambda visit: visit.answer("503 Service Unavailable")
    await steps.another_look()
    await steps.another_look()
    stub.script = vllm
    await steps.another_look()
    assert [state.is_up for state in states] == [True, False, False, True]
    assert steps.asked == [5.0, 1.0, 2.0, 5.0]
    assert [record.getMessage() for record in caplog.records if record.name == "gateway.upstream.poll"] == [
        "upstream is down: /health answered 503",
        "upstream is up",
    ]


async def test_a_page_that_cannot_be_read_is_trouble_but_no_outage(poller: Poller, stub: Stub, steps: Steps) -> None:
    async def half_broken(visit: Visit) -> None:
        match visit.path:
            case "/v1/models":
                await visit.answer("401 Unauthorized")
            case "/version":
                await visit.answer("200 OK", b'{"release":1}')
            case "/metrics":
                visit.reset()
                raise ConnectionError
            case _:
                await visit.answer("200 OK")

    stub.script = half_broken
    await steps.another_look()
    state = poller.state
    assert (state.is_up, state.models[0].id, state.version) == (True, "tiny", "0.32.0")
    assert state.trouble is not None
    assert "/v1/models answered 401; /version: Object missing required field `version`; /metrics: " in state.trouble


async def test_an_observer_that_fails_does_not_end_the_looking(
    stub: Stub, steps: Steps, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_state: UpstreamState) -> None:
        raise RuntimeError("observer")

    stub.script = vllm
    poller = Poller(stub.base_url, observers=[fail], sleep=steps.sleep)
    await poller.start()
    await steps.to_end_of_look()
    await steps.another_look()
    await poller.close()
    assert len(stub.visits) == 2 * len(PAGES)
    assert [record.exc_info[1].args for record in caplog.records if record.exc_info] == [("observer",)] * 2


async def test_closing_what_was_never_started_is_nothing(stub: Stub) -> None:
    await Poller(stub.base_url).close()


async def test_discovery_finds_models_and_limits(stub: Stub) -> None:
    stub.script = vllm
    state = await discover(stub.base_url, clock=lambda: 7.0)
    assert (state.is_up, state.models[0], state.reported_at_seconds) == (True, UpstreamModel("tiny", 32_768), 7.0)


async def test_discovery_of_a_server_that_is_not_there_yet(
    unused_tcp_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    state = await discover(f"http://127.0.0.1:{unused_tcp_port}")
    assert (state.is_loading, state.models) == (True, ())
    assert state.trouble is not None
    assert state.trouble.startswith("/health: ")


async def test_discovery_of_a_server_that_is_silent(stub: Stub) -> None:
    async def silent(visit: Visit) -> None:
        await visit.reader.read()
        raise ConnectionError

    stub.script = silent
    state = await discover(stub.base_url, timeout_seconds=0.05)
    assert (state.is_up, state.misses, state.trouble) == (False, 1, "/health did not answer in time")
