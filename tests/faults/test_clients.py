"""Clients that are slow, many, gone or stubborn: the others are served, and everything comes back."""

import asyncio
import contextlib
import json
import random

import httpx
import pytest

from benchmarks.overload.sdk_rules import delay_seconds, is_retried
from gateway.emulator.config import EmulatorConfig, StepCost
from gateway.emulator.serve import running_emulator
from tests.faults.asking import ask_many, clients
from tests.faults.outside import outside
from tests.server.test_slow_reader import narrow
from tests.support.live_gateway import CHAT, chat, live_gateway, until
from tests.support.model_server import EVENTS, answer_chat, model_server
from tests.support.processes import free_port
from tests.support.raw_client import head, raw_client

pytestmark = pytest.mark.usefixtures("short_pools")
WELL = b"".join(EVENTS)
MANY = 30


async def assert_others_are_served(gateway):
    answers = await ask_many(gateway, [chat(f"Number {n}.", stream=True) for n in range(8)])
    assert [each.content for each in answers] == [WELL] * 8


@pytest.mark.fault("client sends headers slowly")
async def test_slow_headers(fault, monkeypatch):
    monkeypatch.setattr("gateway.server.http_protocol.HEADER_SECONDS", 1.0)
    async with model_server() as upstream, live_gateway(upstream.base_url) as gateway, fault.inside(gateway):
        async with contextlib.AsyncExitStack() as stack:
            slow = [await stack.enter_async_context(raw_client(gateway.host, gateway.port)) for _ in range(MANY)]
            for client in slow:
                client.send(b"POST / HTTP/1.1\r\nx-slow: ")
            await assert_others_are_served(gateway)
            statuses = {(await client.answer())[0] for client in slow}
            assert statuses == {408}
            fault.clients_saw(f"{MANY} x 408; 8 others 200")


@pytest.mark.fault("client sends its body slowly")
async def test_slow_bodies(fault, monkeypatch):
    monkeypatch.setattr("gateway.server.receive.GRACE_SECONDS", 0.5)
    async with model_server() as upstream, live_gateway(upstream.base_url) as gateway, fault.inside(gateway):
        async with contextlib.AsyncExitStack() as stack:
            slow = [await stack.enter_async_context(raw_client(gateway.host, gateway.port)) for _ in range(MANY)]
            for client in slow:
                client.send(head(50_000) + b"{")
            await assert_others_are_served(gateway)
            statuses = {(await client.answer())[0] for client in slow}
            assert statuses == {408}
            fault.clients_saw(f"{MANY} x 408; 8 others 200")


@pytest.mark.fault("client reads slowly")
async def test_slow_readers(fault):
    cut = []

    async def endless_for_some(visit):
        if json.loads(visit.body).get("user") != "slow":
            await answer_chat(visit)
            return
        await visit.stream_head()
        try:
            while True:
                await visit.chunk(b"data: " + b"x" * 65_536 + b"\n\n")
        finally:
            cut.append(visit)

    limits = {"write_timeout_seconds": 0.5}
    async with (
        model_server(endless_for_some) as upstream,
        live_gateway(upstream.base_url, server=limits) as gateway,
        fault.inside(gateway),
        contextlib.AsyncExitStack() as stack,
    ):
        for _ in range(8):
            client = await stack.enter_async_context(raw_client(gateway.host, gateway.port))
            narrow(client)
            client.post(json.dumps(chat(stream=True, user="slow")).encode())
        await assert_others_are_served(gateway)
        await until(lambda: len(cut) == 8)
        await until(lambda: gateway.ended().get("client_left") == 8)
        fault.clients_saw("8 cut off; 8 others 200")


IDLE_AND_ACTIVE = [(500, 50), pytest.param(10_000, 500, marks=pytest.mark.faults)]


@pytest.mark.parametrize(("idle", "active"), IDLE_AND_ACTIVE)
@pytest.mark.fault("idle and active connections")
async def test_idle_and_active(fault, tmp_path, idle, active):
    with running_emulator(EmulatorConfig.fast(step_cost=StepCost(0.01, 0.0, 0.0, 0.0))) as emulator:
        async with outside(emulator.base_url, tmp_path, budget={"sequences": active}) as gateway:
            async with fault.all_comes_back(gateway.look):
                writers = []
                for _ in range(idle // 100):
                    opened = [asyncio.open_connection(gateway.host, gateway.port) for _ in range(100)]
                    writers += [writer for _, writer in await asyncio.gather(*opened)]
                bodies = [chat(f"Number {n}.", stream=True, max_tokens=20, ignore_eos=True) for n in range(active)]
                answers = await ask_many(gateway, bodies)
                told = {(each.status_code, each.content.endswith(b"data: [DONE]\n\n")) for each in answers}
                assert told == {(200, True)}
                fault.clients_saw(f"{active} x 200 beside {idle} idle ones", more_seconds=idle / 50)
                for writer in writers:
                    writer.transport.abort()


AT_ONCE = 25


def uploading(client):
    client.send(head(1000) + b"{")


def waiting_for_the_head(client):
    client.post(json.dumps(chat(max_tokens=20_000, ignore_eos=True)).encode())


def streaming(client):
    client.post(json.dumps(chat(stream=True, max_tokens=20_000, ignore_eos=True)).encode())


async def come_and_leave(gateway, ask, is_there):
    """So many at once, that leave when all of them are there; `is_there` counts them."""
    seats = gateway.application._running.seats
    before = seats.taken
    async with contextlib.AsyncExitStack() as stack:
        those = [await stack.enter_async_context(raw_client(gateway.host, gateway.port)) for _ in range(AT_ONCE)]
        for client in those:
            ask(client)
        await until(lambda: is_there() == AT_ONCE, lambda: f"{is_there()} of {AT_ONCE}")
        if ask is streaming:
            for client in those:
                assert (await client.answer_head())[0] == 200
        for client in those:
            client.hang_up()
        await until(lambda: seats.taken == before)


@pytest.mark.parametrize("times", [50, pytest.param(2_500, marks=pytest.mark.faults)])
@pytest.mark.fault("clients leave in every phase")
async def test_clients_leave(fault, slow_emulator, times):
    """Each of four phases so many times: while they upload, wait for the head, read a stream, and queue."""
    async with live_gateway(slow_emulator.base_url, budget={"sequences": AT_ONCE}) as gateway, fault.inside(gateway):
        (backend,) = gateway.application._running.backends
        seats = gateway.application._running.seats
        in_flight = lambda: backend.upstream.statistics().in_flight  # noqa: E731
        for _ in range(times // AT_ONCE):
            await come_and_leave(gateway, uploading, lambda: seats.taken)
            await come_and_leave(gateway, waiting_for_the_head, in_flight)
            await come_and_leave(gateway, streaming, in_flight)
        await until(lambda: slow_emulator.statistics().running == 0)
        assert gateway.ended()["client_left"] == 3 * times
        assert (await gateway.chat(max_tokens=1)).status_code == 200
    async with live_gateway(slow_emulator.base_url, budget={"sequences": 1}) as gateway:
        (backend,) = gateway.application._running.backends
        queued = lambda: backend.gate.statistics().admission.queue_depth  # noqa: E731
        async with fault.inside(gateway), raw_client(gateway.host, gateway.port) as inside:
            streaming(inside)
            assert (await inside.answer_head())[0] == 200
            for _ in range(times // AT_ONCE):
                await come_and_leave(gateway, waiting_for_the_head, queued)
            assert gateway.ended()["client_left"] == times
            assert slow_emulator.statistics().running == 1
            fault.clients_saw(f"{4 * times} left; those that stay: 200", more_seconds=times / 5)
            inside.hang_up()


@pytest.mark.parametrize("times", [300, pytest.param(10_000, marks=pytest.mark.faults)])
@pytest.mark.fault("keep-alive race with the upstream")
async def test_keep_alive_race(fault, times):
    """The upstream closes each connection a moment after its answer, just when the next request may come on it."""
    chance = random.Random(1)

    async def answer_and_close_soon(visit):
        await answer_chat(visit)
        asyncio.get_running_loop().call_later(chance.random() * 0.004, visit.writer.close)

    async with (
        model_server(answer_and_close_soon) as upstream,
        live_gateway(upstream.base_url) as gateway,
        fault.inside(gateway),
        raw_client(gateway.host, gateway.port) as client,
    ):
        body = json.dumps(chat()).encode()
        for _ in range(times):
            client.post(body)
            status, _, _ = await client.answer()
            assert status == 200
            await asyncio.sleep(chance.random() * 0.004)  # the race itself
        again = gateway.metrics("gateway_upstream_retries").get("_total", 0)
        fault.clients_saw(f"{times} x 200; {again:.0f} sent again", more_seconds=times / 20)


@pytest.mark.parametrize("count", [100, pytest.param(1_000, marks=pytest.mark.faults)])
@pytest.mark.fault("retry storm after an outage of 2 s")
async def test_retry_storm(fault, tmp_path, count):
    """As many clients as there are keep to the rules of OpenAI's SDK, with more patience than its two tries."""
    port, chance = free_port(), random.Random(1)
    async with model_server(port=port):
        gateway = await _start_before_the_outage(port, tmp_path, stack := contextlib.AsyncExitStack())
    async with stack, fault.all_comes_back(gateway.look):
        async with clients(gateway, seconds=60) as client:
            storm = [asyncio.create_task(_stubborn(client, n, random.Random(chance.random()))) for n in range(count)]
            await asyncio.sleep(2)  # the outage itself
            async with model_server(port=port):
                ends = await asyncio.gather(*storm)
                tries = [each for each in ends if each is not None]
                told = (
                    f"{len(tries)} x 200 after {sum(tries) / len(tries):.1f} tries on average, {ends.count(None)} x 429"
                )
                fault.clients_saw(told, more_seconds=count / 10)
                assert max(tries) <= 20
                (after,) = await ask_many(gateway, [chat()])
                assert after.status_code == 200


async def _start_before_the_outage(port, work, stack):
    return await stack.enter_async_context(outside(f"http://127.0.0.1:{port}", work))


async def _stubborn(client, number, draw):
    """How many tries it took; None where it was told not to come again."""
    for tries in range(1, 31):
        try:
            answer = await client.post(CHAT, json=chat(f"Number {number}."))
        except httpx.TransportError:
            headers = {}
        else:
            if answer.status_code == 200:
                return tries
            headers = answer.headers
            if not is_retried(answer.status_code, headers):
                assert (answer.status_code, headers["x-should-retry"]) == (429, "false"), answer.text
                return None
        await asyncio.sleep(delay_seconds(headers, tries - 1, draw))
    raise AssertionError("never served")
