"""A client that leaves, in whatever phase, leaves nothing behind: nothing held, nobody waiting, the engine freed."""

import asyncio
import json
import threading

import pytest

from gateway.imaging import workers
from tests.support.isolation import InThisProcess
from tests.support.live_gateway import chat, image, live_gateway, until
from tests.support.model_server import answer_never, model_server, posts
from tests.support.pictures import data_url, encoded, picture
from tests.support.raw_client import head, raw_client

ENDLESS = {"max_tokens": 20_000, "ignore_eos": True}
LARGE_BYTES = 400_000  # more than what counts as a small body, which has memory of its own


def body_of(*content, **fields) -> bytes:
    return json.dumps(chat(*content, **ENDLESS | fields)).encode()


async def uploading(gateway, client):
    client.send(head(1000) + b"{")
    await until(lambda: gateway.held().get('{resource="body_bytes"}') == 1000)


async def queued(gateway, client):
    client.post(body_of())
    await until(lambda: gateway.metrics("gateway_queue_depth") == {"": 1})


async def waiting_for_the_head(gateway, client):
    client.post(body_of())
    await until(lambda: gateway.held().get('{resource="sequences"}') == 1)
    await until(lambda: gateway.metrics("gateway_upstream_requests_in_flight") == {"": 1})


async def in_the_stream(gateway, client):
    client.post(body_of(stream=True))
    status, _ = await client.answer_head()
    assert status == 200
    await client.reader.readuntil(b"data: ")


async def in_the_stream_with_another_request_behind(gateway, client):
    await in_the_stream(gateway, client)
    client.post(body_of())


@pytest.mark.parametrize(
    "phase", [uploading, waiting_for_the_head, in_the_stream, in_the_stream_with_another_request_behind]
)
async def test_it_all_comes_back(slow_emulator, phase):
    async with live_gateway(slow_emulator.base_url) as gateway:
        async with raw_client(gateway.host, gateway.port) as client:
            await phase(gateway, client)
            client.hang_up()
            await gateway.until_released()
        await until(lambda: slow_emulator.statistics().running == 0)
        assert gateway.ended() == {"client_left": 1}
        (line,) = await gateway.log(1)
        assert (line["outcome"], line["status"]) == ("client_left", 499)


async def test_a_place_in_the_queue_comes_back_while_the_others_go_on(slow_emulator):
    async with (
        live_gateway(slow_emulator.base_url, budget={"sequences": 1}) as gateway,
        raw_client(gateway.host, gateway.port) as inside,
        raw_client(gateway.host, gateway.port) as waiting,
    ):
        await in_the_stream(gateway, inside)
        await queued(gateway, waiting)
        waiting.hang_up()
        await until(lambda: not gateway.metrics("gateway_queue_depth"))
        assert gateway.held()['{resource="sequences"}'] == 1
        assert slow_emulator.statistics().running == 1
        inside.hang_up()
        await gateway.until_released()
        await until(lambda: slow_emulator.statistics().running == 0)


async def test_the_next_in_line_moves_up_when_one_inside_leaves(slow_emulator):
    async with (
        live_gateway(slow_emulator.base_url, budget={"sequences": 1}) as gateway,
        raw_client(gateway.host, gateway.port) as inside,
        raw_client(gateway.host, gateway.port) as waiting,
    ):
        await in_the_stream(gateway, inside)
        await queued(gateway, waiting)
        inside.hang_up()
        await until(lambda: gateway.ended() == {"client_left": 1})
        await until(lambda: gateway.held().get('{resource="sequences"}') == 1)
        waiting.hang_up()
        await gateway.until_released()


async def test_while_it_waits_for_memory_it_is_gone_as_soon_as_its_turn_comes():
    """Its socket cannot be looked at before there is memory for what would come out of it."""
    async with (
        model_server(answer_never) as upstream,
        live_gateway(upstream.base_url, budget={"body_bytes": 3 * LARGE_BYTES}) as gateway,
        raw_client(gateway.host, gateway.port) as holder,
        raw_client(gateway.host, gateway.port) as other_holder,
        raw_client(gateway.host, gateway.port) as waiting,
    ):
        large = body_of("x" * LARGE_BYTES)
        holder.post(large)
        other_holder.post(large)
        await until(lambda: gateway.held().get('{resource="body_bytes"}') == 2 * len(large))
        waiting.send(head(len(large)) + large[:20_000])
        await until(lambda: gateway.held().get('{resource="seats"}') == 3)
        waiting.hang_up()
        holder.hang_up()
        await until(lambda: gateway.ended() == {"client_left": 2})
        other_holder.hang_up()
        await gateway.until_released()
        assert len(posts(upstream)) == 2


async def test_while_its_picture_is_decoded(emulator, monkeypatch):
    monkeypatch.setattr("gateway.composing.WorkerProcesses", lambda limits: InThisProcess())
    may_decode = threading.Event()
    judge = workers.judge

    def judge_late(*arguments):
        assert may_decode.wait(10)
        return judge(*arguments)

    monkeypatch.setattr(workers, "judge", judge_late)
    url = data_url(encoded(picture(64, 64)))
    async with live_gateway(emulator.base_url) as gateway, raw_client(gateway.host, gateway.port) as client:
        client.post(body_of(image(url)))
        await until(lambda: '{resource="decode_bytes"}' in gateway.held())
        client.hang_up()
        await until(lambda: set(gateway.held()) == {'{resource="decode_bytes"}'}, lambda: str(gateway.held()))
        may_decode.set()
        await gateway.until_released()
        assert gateway.ended() == {"client_left": 1}


async def test_while_the_answer_is_stuck_because_it_reads_nothing(monkeypatch):
    """A client that is there but takes nothing does not hold its place for ever."""
    monkeypatch.setattr("gateway.server.proxy._SLOW_READER_SECONDS", 0.0)
    cut = asyncio.Event()

    async def endless(visit):
        await visit.stream_head()
        try:
            while True:
                await visit.chunk(b"data: " + b"x" * 65_536 + b"\n\n")
        finally:
            cut.set()

    async with (
        model_server(endless) as upstream,
        live_gateway(
            upstream.base_url, upstream={"total_timeout_seconds": 0.5}, queue={"wait_seconds": 0.5}
        ) as gateway,
        raw_client(gateway.host, gateway.port) as client,
    ):
        client.writer.transport.get_extra_info("socket").setsockopt(1, 8, 4096)
        client.post(body_of(stream=True))
        await until(lambda: gateway.held().get('{resource="sequences"}') == 1)
        await gateway.until_released()
        await cut.wait()
        assert gateway.ended() == {"client_left": 1}
