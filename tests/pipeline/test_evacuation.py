"""Who waits for a server that is passed over is let go where another lets it wait, and only there."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from types import SimpleNamespace

from gateway.domain.decision import Verdict
from gateway.domain.quantities import Amounts, Capacity
from gateway.domain.queue import QueuePolicy
from gateway.domain.request import VisionRequest
from gateway.domain.ticket import Ticket
from gateway.ledger.gate import Gate
from gateway.ledger.local import LocalLedger
from gateway.pipeline.evacuation import evacuate
from gateway.pipeline.exchange import Exchange
from tests.support.clock import FakeClock
from tests.support.homes import picture_at
from tests.support.live_gateway import image, live_gateway, until
from tests.support.model_server import answer_chat, error_of, model_server, posts
from tests.support.pictures import data_url, encoded, picture

MODELS = [
    {"name": "large", "family": "qwen2_5_vl", "fallback": "small"},
    {"name": "small", "family": "qwen2_5_vl"},
]
FALLBACK = {"fallback": {"enter": 0.05, "leave": 0.01}}
PAGES_OF_A_FEW_LOOKS = 20


@asynccontextmanager
async def waiting_for_the_fallback(serving):
    """A request for the large model that waits for one of the servers of the small one: these are paused."""
    may_go_on = asyncio.Event()

    async def script(visit):
        if b"Hold this." in visit.body:
            await may_go_on.wait()
        await answer_chat(visit)

    async with AsyncExitStack() as stack:
        servers = {name: await stack.enter_async_context(model_server(script, models=its)) for name, its in serving}
        urls = {name: server.base_url for name, server in servers.items()}
        sections = {"budget": {"sequences": 10}, "pressure": FALLBACK, "models": MODELS}
        gateway = await stack.enter_async_context(live_gateway(urls, **sections))
        await gateway.until_up()
        backends = {backend.name: backend for backend in gateway.application._running.backends}
        held = asyncio.create_task(gateway.chat("Hold this.", model="large"))
        await until(lambda: any(posts(server) for server in servers.values()))
        for backend in backends.values():
            backend.gate.pause_until(backend.gate.now + 0.5)
        ask = asyncio.create_task(gateway.chat("What is it?", model="large"))
        await until(lambda: gateway.metrics("gateway_queue_depth"))
        (where,) = [backend for backend in backends.values() if backend.waiting]
        yield servers, backends, where, ask
        may_go_on.set()
        assert (await held).status_code == 200
        await gateway.until_released()


async def test_who_waits_for_a_fallback_is_let_go_for_the_model_that_it_asked_for():
    async with waiting_for_the_fallback([("a", ["large"]), ("b", ["small"])]) as (servers, _, where, ask):
        assert where.name == "b"
        where.breaker.froze(where.gate.now)
        assert (await ask).status_code == 200
        assert (len(posts(servers["a"])), len(posts(servers["b"]))) == (2, 0)


async def test_another_server_of_the_fallback_is_no_place_for_it():
    serving = [("a", ["large"]), ("b", ["small"]), ("c", ["small"])]
    async with waiting_for_the_fallback(serving) as (servers, backends, where, ask):
        for backend in (backends["a"], where):
            backend.breaker.froze(backend.gate.now)
        answer = await ask
        assert answer.status_code == 200
        assert len(posts(servers[where.name])) == 1


@asynccontextmanager
async def waiting_while_both_are_full(shown):
    async with (
        model_server() as a,
        model_server() as b,
        live_gateway({"a": a.base_url, "b": b.base_url}, budget={"sequences": 1}, queue={"requests": 1}) as gateway,
    ):
        await gateway.until_up()
        at_a, at_b = gateway.application._running.backends
        for backend in (at_a, at_b):
            place = _place(backend.gate.now)
            assert backend.gate.ask(place, print) is Verdict.ADMITTED
        ask = asyncio.create_task(gateway.chat("What is it?", shown))
        await until(lambda: at_a.waiting or at_b.waiting)
        where, other = (at_a, at_b) if at_a.waiting else (at_b, at_a)
        yield (a, b) if where is at_a else (b, a), where, other, ask
        where.gate.give_back(place.amounts)
        await gateway.until_released()


async def test_what_is_wrong_with_an_image_is_told_wherever_it_is_seen():
    """Its pixels are looked at once it is let in."""
    cut_off = image(data_url(encoded(picture(560, 560), "JPEG")[:5000], "image/jpeg"))
    async with waiting_while_both_are_full(cut_off) as (servers, where, other, ask):
        other.gate.give_back(Amounts(sequences=1))
        where.breaker.froze(where.gate.now)
        answer = await ask
        assert (answer.status_code, error_of(answer)["code"]) == (400, "image_parse_error")
        assert not any(posts(server) for server in servers)


async def test_who_could_not_wait_elsewhere_either_waits_on_until_it_can():
    async with waiting_while_both_are_full(picture_at("a")) as ((a, b), where, other, ask):
        other.gate.ask(last := _place(other.gate.now), print)
        where.breaker.froze(where.gate.now)
        seen = len(a.visits)
        await until(lambda: len(a.visits) >= seen + PAGES_OF_A_FEW_LOOKS)
        assert where.waiting
        other.gate.withdraw(last)
        other.gate.give_back(last.amounts)
        assert (await ask).status_code == 200
        assert len(posts(b)) == 1


def test_no_more_are_let_go_at_once_than_find_a_place_in_the_other_line():
    clock, sent_away = FakeClock(), []
    ledger, policy = LocalLedger(Capacity(None, 1)), QueuePolicy(requests=8)
    gate = Gate(ledger, policy, clock=clock, call_later=clock.call_later, jitter=lambda: 0.0)
    for _ in range(3):
        gate.ask(_place(clock.now), print)
    broken = _backend("a", SimpleNamespace(send_away=sent_away.append, utilisation=gate.utilisation), is_healthy=False)
    for _ in range(8):
        exchange = Exchange("1", "POST", "/v1/chat/completions", b"", (), clock.now)
        exchange.request, exchange.backend = VisionRequest("m"), broken
        broken.waiting[_place(clock.now)] = exchange
    evacuate([broken, _backend("b", gate)], clock.now)
    assert sent_away == list(broken.waiting)[:3], "half of the six places that are free"


def _backend(name, gate, *, is_healthy=True):
    return SimpleNamespace(
        name=name,
        gate=gate,
        waiting={},
        models=SimpleNamespace(lists=lambda _name: True),
        follower=SimpleNamespace(pause_seconds=0.0),
        is_healthy=lambda _now: is_healthy,
    )


def _place(now):
    return Ticket(Amounts(sequences=1), now, now + 60.0)
