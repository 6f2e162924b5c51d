"""Two emulated servers that break in every way they can, under traffic: everything comes back, nobody gets nonsense."""

import asyncio
import json
import random

import httpx
import pytest

from gateway.emulator.config import EmulatorConfig, StepCost
from gateway.emulator.serve import running_emulator
from tests.support.homes import picture_at
from tests.support.live_gateway import CHAT, MODEL, chat, live_gateway, until
from tests.support.model_server import model_server, posts

REQUESTS = 60
MENDED = {"freeze": False, "stream_error_after_tokens": None, "first_byte_delay_seconds": 0.0}
FAULTS = (
    {"reset_requests": 2},
    {"first_byte_delay_seconds": 0.05},
    {"stream_error_after_tokens": 1},
    {"freeze": True},
    MENDED,
    MENDED | {"unavailable_requests": 1},
)
PICTURES = [picture_at(name, side=side) for name in "ab" for side in (56, 84)]


async def _ask(gateway, chance):
    """One request of any kind; its status, 0 where the client gave up, and the text of its answer."""
    content = ["What?", *chance.choices(PICTURES, k=chance.randrange(3))]
    body = chat(*content, stream=chance.random() < 0.5, max_tokens=chance.randrange(1, 20))
    patience = chance.choice([0.05, 5.0, 5.0])
    try:
        answer = await asyncio.wait_for(gateway.http.post(CHAT, json=body), patience)
    except (TimeoutError, httpx.RemoteProtocolError):
        return 0, ""
    return answer.status_code, answer.text


async def _break(servers, chance, is_over):
    while not is_over.is_set():
        chance.choice(servers).set_faults(**chance.choice(FAULTS))
        await asyncio.sleep(0.02)
    for server in servers:
        server.set_faults(**MENDED, reset_requests=0, unavailable_requests=0)


@pytest.mark.parametrize("seed", range(3))
async def test_every_lease_comes_back_whatever_breaks(seed):
    chance, is_over = random.Random(seed), asyncio.Event()
    config = EmulatorConfig.fast(max_num_seqs=4)
    sections = {"queue": {"requests": 8, "wait_seconds": 1.0}, "upstream": {"gap_timeout_seconds": 0.5}}
    with running_emulator(config) as a, running_emulator(config) as b:
        async with live_gateway({"a": a.base_url, "b": b.base_url}, **sections) as gateway:
            await gateway.until_up()
            breaking = asyncio.create_task(_break([a, b], chance, is_over))
            results = []
            for _ in range(REQUESTS // 6):
                results += await asyncio.gather(*(_ask(gateway, chance) for _ in range(6)))
            is_over.set()
            await breaking
            await gateway.until_released()
            for backend in gateway.application._running.backends:
                assert not backend.waiting
                assert not backend.unseen
                assert not any(backend.gate.statistics().holdings.held)
                assert backend.upstream.statistics().in_flight == 0
            assert "gateway_fault" not in gateway.ended()
            assert sum(gateway.ended().values()) <= REQUESTS, "who gave up soon enough never came"
    assert {status for status, _ in results} <= {0, 200, 429, 500, 502, 503, 504}
    assert any(status == 200 for status, _ in results), "else it shows nothing"
    assert all(_ends_well(text) for status, text in results if status == 200)


def _ends_well(text):
    """A whole answer, or a stream that says how it ended."""
    return text.rstrip().endswith("[DONE]") if text.startswith("data:") else bool(json.loads(text)["choices"])


async def test_a_server_that_dies_amid_traffic_costs_no_whole_answer():
    photo = PICTURES[0]
    with running_emulator() as a, running_emulator() as b:
        async with live_gateway({"a": a.base_url, "b": b.base_url}) as gateway:
            await gateway.until_up()
            assert (await gateway.chat("What?", photo)).status_code == 200
            assert a.statistics().finished == 1
            asks = [asyncio.create_task(gateway.chat("What?", photo)) for _ in range(12)]
            a.set_faults(kill=True)
            assert {(await each).status_code for each in asks} == {200}
            await until(lambda: gateway.metrics("gateway_upstream_up") == {'{upstream="b"}': 1})
            await gateway.until_released()


async def test_one_that_comes_back_gets_its_pictures_again():
    async with model_server() as b, model_server() as a:
        port = int(a.base_url.rpartition(":")[2])
        async with live_gateway({"a": a.base_url, "b": b.base_url}) as gateway:
            await gateway.until_up()
            await a.stop()
            assert (await gateway.chat("What?", PICTURES[0])).status_code == 200
            assert len(posts(b)) == 1
            async with model_server(port=port) as again:
                await gateway.until_up()
                assert (await gateway.chat("What?", PICTURES[0])).status_code == 200
                assert len(posts(again)) == 1


async def test_one_that_comes_back_with_another_model_gets_only_that():
    async with model_server(models=[MODEL, "other"]) as b, model_server() as a:
        port = int(a.base_url.rpartition(":")[2])
        async with live_gateway({"a": a.base_url, "b": b.base_url}) as gateway:
            await gateway.until_up()
            await a.stop()
            async with model_server(port=port, models=["other"]) as again:
                table = gateway.application._running.backends[0].models
                await until(lambda: table.lists("other"), within_seconds=20)
                assert (await gateway.chat("What?", PICTURES[0])).status_code == 200
                assert (await gateway.chat("What?", PICTURES[0], model="other")).status_code == 200
                assert [json.loads(visit.body)["model"] for visit in posts(again)] == ["other"]


async def test_a_frozen_engine_behind_a_server_that_answers_is_passed_over_until_it_works_again(monkeypatch):
    monkeypatch.setattr("gateway.domain.breaker.FROZEN_SECONDS", 0.5)
    config = EmulatorConfig.fast(step_cost=StepCost(base_seconds=0.01))
    with running_emulator(config) as a, running_emulator(config) as b:
        async with live_gateway({"a": a.base_url, "b": b.base_url}) as gateway:
            await gateway.until_up()
            stuck = asyncio.create_task(gateway.chat("What?", PICTURES[0], stream=True, max_tokens=100))
            await until(lambda: a.statistics().generation_tokens > 0)
            a.set_faults(freeze=True)
            await until(lambda: gateway.metrics("gateway_upstream_healthy") == {'{upstream="b"}': 1})
            assert gateway.application.troubles() == [], "its HTTP side says that all is well"
            assert (await gateway.chat("What?", PICTURES[0], max_tokens=1)).status_code == 200
            assert b.statistics().finished == 1
            a.set_faults(freeze=False)
            assert (await stuck).text.rstrip().endswith("[DONE]")
            await until(lambda: len(gateway.metrics("gateway_upstream_healthy")) == 2)
            await gateway.until_released()
