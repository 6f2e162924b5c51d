"""Looking at a server over a real socket; the pauses between the looks are stepped by hand."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable

import httpx
import pytest

from gateway.upstream.pages import Pages
from gateway.upstream.poll import Poller, discover, look
from gateway.upstream.state import Health, UpstreamModel, UpstreamState
from gateway.wire.vllm_metrics import EngineReport
from tests.support.raw_http import Stub, Visit

METRICS = b"""# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="tiny"} 3.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="tiny"} 2.0
"""
TINY = UpstreamModel("tiny", 32_768, "x")
ADAPTER = UpstreamModel("adapter", None, None, "tiny")
"""A root that is none loses nothing else."""

PAGES = {
    "/health": b"",
    "/v1/models": b'{"object":"list","data":[{"id":"tiny","max_model_len":32768,"root":"x"},'
    b'{"id":"adapter","root":7,"parent":"tiny"}]}',
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
        models=(TINY, ADAPTER),
        version="0.32.0",
        report=EngineReport(running=3, waiting=2, engines=1),
        reported_at_seconds=100.0,
        changed_at_seconds=100.0,
        misses=0,
        trouble=None,
    )
    assert [visit.path for visit in stub.visits] == list(PAGES)
    assert stub.visits[1].header("authorization") == ["Bearer sk-engine"]
    assert (stub.connections, steps.asked, poller.report_age_seconds()) == (1, [1.0], 1.0)


async def test_work_that_begins_does_not_wait_for_the_idle_pace(stub: Stub, steps: Steps) -> None:
    stub.script = vllm
    busy = [False]
    poller = Poller(stub.base_url, is_busy=lambda: busy[0], sleep=steps.sleep, chance=lambda: 0.5)
    await poller.start()
    await steps.to_end_of_look()
    for _ in range(5):
        await steps.another_look()
    looks = [visit.path for visit in stub.visits].count("/health")
    assert (looks, steps.asked) == (2, [1.0] * 6)
    busy[0] = True
    await steps.another_look()
    looks = [visit.path for visit in stub.visits].count("/health")
    assert (looks, steps.asked) == (3, [1.0] * 7)
    await poller.close()


async def test_going_and_coming_back(
    poller: Poller, stub: Stub, states: list[UpstreamState], steps: Steps, caplog: pytest.LogCaptureFixture
) -> None:
    stub.script = lambda visit: visit.answer("503 Service Unavailable")
    await steps.another_look()
    await steps.another_look()
    stub.script = vllm
    await steps.another_look()
    assert [state.is_up for state in states] == [True, False, False, True]
    assert steps.asked == [1.0, 1.0, 2.0, 1.0]
    assert [record.getMessage() for record in caplog.records if record.name == "gateway.upstream.poll"] == [
        "upstream is down: /health answered 503",
        "upstream is up",
    ]


async def test_an_idle_connection_that_the_server_closes_just_then_is_no_outage(
    poller: Poller, stub: Stub, states: list[UpstreamState], steps: Steps
) -> None:
    async def closes_the_first_connection(visit: Visit) -> None:
        if visit.connection == 1:
            visit.reset()
        else:
            await vllm(visit)

    stub.script = closes_the_first_connection
    await steps.another_look()
    assert [state.is_up for state in states] == [True, True]
    assert stub.connections == 2


async def test_a_server_that_closes_every_connection_is_down(
    poller: Poller, stub: Stub, states: list[UpstreamState], steps: Steps
) -> None:
    async def closes(visit: Visit) -> None:
        visit.reset()

    stub.script = closes
    await steps.another_look()
    assert [state.is_up for state in states] == [True, False]
    assert stub.connections == 2


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


_LINE = b"HTTP/1.1 200 OK\r\n"
ODD = {
    "an infinite number": {"/metrics": b"vllm:num_requests_running +Inf\n"},
    "a number of 5000 digits": {"/metrics": b"vllm:num_requests_running " + b"9" * 5000},
    "labels without an end": {"/metrics": b'vllm:num_requests_running{a="\n'},
    "a page of 20 MB": {"/metrics": b"x 1\n" * 5_000_000},
    "a large page": {"/metrics": b"x 1\n" * 200_000 + METRICS},
    "binary": {"/metrics": bytes(range(256)) * 10},
    "deep lists": {"/v1/models": b'{"data":' + b"[" * 100_000, "/version": b'{"x":' + b"[" * 100_000},
    "a model of another shape": {"/v1/models": b'{"data":[{"id":5}]}', "/version": b"[]"},
}
WIRES = {
    "an unknown charset": _LINE + b"content-type: text/plain; charset=nonsense\r\ncontent-length: 2\r\n\r\n{}",
    "a coding nobody asked for": _LINE + b"content-encoding: gzip\r\ncontent-length: 2\r\n\r\n{}",
    "broken chunks": _LINE + b"transfer-encoding: chunked\r\n\r\nzz\r\n",
    "a short body": _LINE + b"content-length: 20\r\n\r\n{}",
    "no HTTP": b"hello\r\n\r\n",
    "status 000": b"HTTP/1.1 000 Zero\r\ncontent-length: 0\r\n\r\n",
    "status 101": b"HTTP/1.1 101 Switch\r\nupgrade: x\r\n\r\n",
    "status 999": b"HTTP/1.1 999 Odd\r\ncontent-length: 0\r\n\r\n",
    "a redirect to itself": b"HTTP/1.1 302 Found\r\nlocation: /health\r\ncontent-length: 0\r\n\r\n",
    "a redirect to nowhere": b"HTTP/1.1 302 Found\r\nlocation: http://[\r\ncontent-length: 0\r\n\r\n",
    "headers that are no text": _LINE + b"x: \xff\xfe\r\nset-cookie: \xff=\r\ncontent-length: 2\r\n\r\n{}",
    "a header of 1 MB": _LINE + b"x: " + b"y" * 1_000_000 + b"\r\ncontent-length: 0\r\n\r\n",
    "nothing": b"",
}


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    return lambda: [record.getMessage() for record in caplog.records if record.name == "gateway.upstream.poll"]


@pytest.mark.parametrize("name", ODD)
async def test_no_page_ends_the_looking(
    poller: Poller, stub: Stub, steps: Steps, said: Callable[[], list[str]], name: str
) -> None:
    stub.script = lambda visit: visit.answer("200 OK", (PAGES | ODD[name])[visit.path])
    await steps.another_look()
    assert poller.state.is_up
    assert poller.state.models == (TINY, ADAPTER)
    assert (poller.state.trouble is None) == (
        name in {"a large page", "an infinite number", "a number of 5000 digits", "binary"}
    )
    await steps.another_look()  # the same trouble is not told twice
    assert len(said()) == (poller.state.trouble is not None)
    assert all(len(sentence) < 700 and "\n" not in sentence for sentence in said())
    stub.script = vllm
    await steps.another_look()
    assert (poller.state.trouble, poller.state.version) == (None, "0.32.0")


@pytest.mark.parametrize("name", WIRES)
async def test_no_answer_on_the_wire_ends_the_looking(
    poller: Poller, stub: Stub, steps: Steps, said: Callable[[], list[str]], name: str
) -> None:
    async def odd(visit: Visit) -> None:
        await visit.write(WIRES[name])
        visit.writer.close()
        raise ConnectionError

    async def odd_but_healthy(visit: Visit) -> None:
        await (vllm(visit) if visit.path == "/health" else odd(visit))

    for script in (odd_but_healthy, odd):
        stub.script = script
        await steps.another_look()
        assert "looking at the upstream failed" not in said()
        assert poller.state.trouble
        assert said()[-1].endswith(poller.state.trouble)
    stub.script = vllm
    await steps.another_look()
    assert (poller.state.is_up, poller.state.trouble) == (True, None)


async def test_a_page_that_drips_is_given_up(stub: Stub) -> None:
    async def drip(visit: Visit) -> None:
        if visit.path != "/metrics":
            await vllm(visit)
            return
        await visit.write(_LINE + b"content-length: 9999\r\n\r\n")
        while True:
            await visit.write(b" ")
            await asyncio.sleep(0.01)

    stub.script = drip
    state = await discover(stub.base_url, timeout_seconds=0.5)
    assert (state.is_up, state.trouble) == (True, "/metrics: did not answer in time")


async def test_a_context_that_no_model_has_is_not_known(stub: Stub) -> None:
    lengths = (0, -1, 2**40, 10**400, 4096)
    cards = ",".join(f'{{"id":"m{index}","max_model_len":{length}}}' for index, length in enumerate(lengths))
    pages = PAGES | {"/v1/models": f'{{"data":[{cards}]}}'.encode()}
    stub.script = lambda visit: visit.answer("200 OK", pages[visit.path])
    state = await discover(stub.base_url)
    assert [model.max_model_len for model in state.models] == [None, None, None, None, 4096]


async def test_of_very_many_models_the_first_are_known(stub: Stub) -> None:
    cards = ",".join(f'{{"id":"m{index}"}}' for index in range(5000))
    pages = PAGES | {"/v1/models": f'{{"data":[{cards}]}}'.encode()}
    stub.script = lambda visit: visit.answer("200 OK", pages[visit.path])
    state = await discover(stub.base_url)
    assert len(state.models) == 4096
    assert state.trouble == "/v1/models lists 5000 models, and only the first 4096 are known apart"


async def test_cookies_of_the_server_are_not_kept(poller: Poller, stub: Stub, steps: Steps) -> None:
    stub.script = lambda visit: visit.answer("200 OK", PAGES[visit.path], "set-cookie: a=b")
    await steps.another_look()
    await steps.another_look()
    assert not [visit for visit in stub.visits if visit.header("cookie")]


async def test_a_server_that_was_never_there_is_told_once_for_each_cause(
    stub: Stub, steps: Steps, said: Callable[[], list[str]]
) -> None:
    stub.script = lambda visit: visit.answer("404 Not Found")
    poller = Poller(stub.base_url, sleep=steps.sleep)
    await poller.start()
    await steps.to_end_of_look()
    await steps.another_look()
    stub.script = lambda visit: visit.answer("503 Service Unavailable")
    await steps.another_look()
    stub.script = vllm
    await steps.another_look()
    await poller.close()
    told = "upstream is not there yet: /health answered {}. Unless vLLM is still loading, check its url".format
    assert said() == [told(404), told(503), "upstream is up"]


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
    assert (state.is_up, state.models[0], state.reported_at_seconds) == (True, TINY, 7.0)


async def test_discovery_of_a_server_that_is_not_there_yet(
    unused_tcp_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    state = await discover(f"http://127.0.0.1:{unused_tcp_port}")
    assert (state.is_loading, state.models) == (True, ())
    assert state.trouble is not None
    assert state.trouble.startswith("/health: ")


async def test_a_connection_that_takes_too_long_is_a_refusal() -> None:
    def never(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectTimeout("", request=request)

    pages = Pages("http://vllm", None, 1.0)
    pages._client = httpx.AsyncClient(transport=httpx.MockTransport(never))
    seen = await look(pages)
    assert (seen.health, seen.trouble) == (Health.REFUSING, "/health: no connection could be made in time")
    await pages.close()


async def test_discovery_of_a_server_that_is_silent(stub: Stub) -> None:
    async def silent(visit: Visit) -> None:
        await visit.reader.read()
        raise ConnectionError

    stub.script = silent
    state = await discover(stub.base_url, timeout_seconds=0.05)
    assert (state.is_up, state.misses, state.trouble) == (False, 1, "/health: did not answer in time")
