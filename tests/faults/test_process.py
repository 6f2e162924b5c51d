"""Faults of the gateway's own process: its descriptors, its loop, its output, its clock, and how it ends."""

import asyncio
import contextlib
import fcntl
import json
import os
import resource
import signal
from datetime import datetime, timedelta
from pathlib import Path

import httpx
import pytest

from tests.faults.asking import ask_many, clients
from tests.faults.outside import limited, outside
from tests.support.live_gateway import CHAT, chat
from tests.support.model_server import EVENTS, error_of, model_server
from tests.support.processes import free_port

ENDLESS = {"stream": True, "max_tokens": 20_000, "ignore_eos": True}
SHORT = {"max_tokens": 1}
WELL = b"".join(EVENTS)


async def until(is_so, *, within_seconds=30.0):
    """`is_so` is asked again and again; the bound only ends what hangs."""
    async with asyncio.timeout(within_seconds):
        while not await is_so():
            await asyncio.sleep(0.05)


async def is_answered(gateway):
    try:
        (answer,) = await ask_many(gateway, [chat(**SHORT)])
    except httpx.TransportError:
        return False
    return answer.status_code == 200


@pytest.mark.fault("no file descriptors left")
async def test_no_descriptors_left(fault, tmp_path, slow_emulator):
    limits = limited(resource.RLIMIT_NOFILE, 128)
    async with outside(slow_emulator.base_url, tmp_path, limit=limits, server={"seats": 32}) as gateway:
        async with fault.all_comes_back(gateway.look):
            async with clients(gateway) as client, client.stream("POST", CHAT, json=chat(**ENDLESS)) as standing:
                pieces = standing.aiter_raw()
                await anext(pieces)
                idle = [await asyncio.open_connection(gateway.host, gateway.port) for _ in range(200)]
                fault.begins()
                received = await anext(pieces)
                assert received, "a stream that stands goes on"
                told = await asyncio.gather(*(_try(gateway) for _ in range(4)))
                assert set(told) <= {"closed", "waits", 200, 503}
                fault.clients_saw(f"new ones: {sorted(set(map(str, told)))}; streams go on; then 200")
                for _, writer in idle:
                    writer.transport.abort()
            await until(lambda: is_answered(gateway))
        assert gateway.process.poll() is None
        assert "gateway_fault" not in gateway.outcomes()


async def _try(gateway):
    """What becomes of a new client within a moment."""
    try:
        async with clients(gateway, seconds=1.0) as client:
            return (await client.post(CHAT, json=chat(**SHORT))).status_code
    except httpx.TimeoutException:
        return "waits"
    except httpx.TransportError:
        return "closed"


@pytest.mark.fault("event loop blocked for 2 s")
async def test_loop_blocked(fault, tmp_path, slow_emulator):
    """The process is stopped, so that nothing in it can tell the time: as a long pause of the machine."""
    limits = {"gap_timeout_seconds": 1.0, "first_byte_timeout_seconds": 1.0}
    async with outside(slow_emulator.base_url, tmp_path, upstream=limits) as gateway:
        async with fault.all_comes_back(gateway.look):
            bodies = [chat(f"Number {n}.", stream=True, max_tokens=50, ignore_eos=True) for n in range(8)]
            asked = asyncio.create_task(ask_many(gateway, bodies))
            await until(gateway.held)
            gateway.process.send_signal(signal.SIGSTOP)
            fault.begins()
            await asyncio.sleep(2)  # the fault itself
            gateway.process.send_signal(signal.SIGCONT)
            answers = await asked
            assert [each.status_code for each in answers] == [200] * 8
            ends = [each.content.endswith(b"data: [DONE]\n\n") and b'"error"' not in each.content for each in answers]
            fault.clients_saw(f"{sum(ends)} of {len(ends)} streams whole")
            assert all(ends)


@pytest.mark.fault("disk full for logs")
async def test_disk_full(fault, tmp_path):
    with Path("/dev/full").open("wb") as full:
        async with (
            model_server() as upstream,
            outside(upstream.base_url, tmp_path, stdout=full, stderr=full) as gateway,
        ):
            async with fault.all_comes_back(gateway.look):
                answers = await ask_many(gateway, [chat(stream=True)] * 20)
                assert [each.content for each in answers] == [WELL] * 20
                await until(lambda: _lost(gateway, 20))
                fault.clients_saw("20 x 200; lines lost are counted")


async def _lost(gateway, lines):
    told = await asyncio.to_thread(gateway.metrics)
    return told["gateway_log_lines_dropped_total"] >= lines


@contextlib.contextmanager
def full_pipe():
    """Its end to write to, into which nothing fits until somebody reads, and that to read from."""
    reading, writing = os.pipe()
    try:
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
        os.set_blocking(writing, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writing, b"\n" * 4096)
        os.set_blocking(writing, True)
        yield reading, writing
    finally:
        os.close(reading)
        os.close(writing)


@pytest.mark.fault("log pipe blocked")
async def test_log_pipe_blocked(fault, tmp_path):
    """Whoever reads the log sleeps: requests go on, warnings too, and the process ends when it is told to."""
    async with contextlib.AsyncExitStack() as stack:
        _, writing = stack.enter_context(full_pipe())
        upstream = await stack.enter_async_context(model_server())
        gateway = await stack.enter_async_context(
            outside(upstream.base_url, tmp_path, stdout=writing, stderr=writing, log={"level": "debug"})
        )
        async with fault.all_comes_back(gateway.look):
            answers = await ask_many(gateway, [chat(stream=True)] * 20)
            assert [each.content for each in answers] == [WELL] * 20
            await upstream.stop()  # which is worth a warning
            (down,) = await ask_many(gateway, [chat()])
            assert (down.status_code, error_of(down)["code"]) == (503, "upstream_unavailable")
            fault.clients_saw("20 x 200")
        gateway.process.send_signal(signal.SIGINT)
        assert await asyncio.to_thread(gateway.process.wait, 30) == 0


@pytest.mark.system("faketime")
@pytest.mark.fault("clock jumps")
async def test_clock_jumps(fault, tmp_path, slow_emulator):
    """An hour forth, and a day back, of the clock on the wall; the one that only counts goes on."""
    offset = tmp_path / "offset"
    offset.write_text("+0\n")
    (library,) = Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")
    fake = {
        "LD_PRELOAD": str(library),
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }
    async with outside(slow_emulator.base_url, tmp_path, environment=fake) as gateway:
        async with fault.all_comes_back(gateway.look):
            bodies = [chat(f"Number {n}.", stream=True, max_tokens=100, ignore_eos=True) for n in range(4)]
            asked = asyncio.create_task(ask_many(gateway, bodies))
            await until(gateway.held)
            for jump in ("+3600\n", "-86400\n"):
                offset.write_text(jump)
                assert await is_answered(gateway)
            answers = await asked
            assert all(each.content.endswith(b"data: [DONE]\n\n") for each in answers)
            assert not any(b'"error"' in each.content for each in answers)
            fault.clients_saw("200 throughout")
        lines = [json.loads(line) for line in (tmp_path / "gateway.log").read_text().splitlines()]
    ended = [line for line in lines if "outcome" in line]
    times = [datetime.fromisoformat(line["time"]) for line in ended]
    assert max(times) - min(times) > timedelta(hours=24), "else the clock never jumped"
    assert all(0 <= line.get("total_ms", 0) < 60_000 for line in ended)


@pytest.mark.fault("SIGTERM under load")
async def test_sigterm_under_load(fault, tmp_path, slow_emulator):
    async with outside(slow_emulator.base_url, tmp_path, server={"drain_grace_seconds": 0.5}) as gateway:
        bodies = [chat(f"Number {n}.", stream=True, max_tokens=150, ignore_eos=True) for n in range(20)]
        asked = asyncio.create_task(ask_many(gateway, bodies))
        await until(gateway.held)
        fault.begins()
        gateway.process.send_signal(signal.SIGTERM)
        late = []
        async with clients(gateway) as client:
            while not late or late[-1].status_code == 200:
                late.append(await client.post(CHAT, json=chat(**SHORT)))
        answers = await asked
        assert all(each.content.endswith(b"data: [DONE]\n\n") and b'"error"' not in each.content for each in answers)
        assert (late[-1].status_code, late[-1].headers["x-gateway-reason"]) == (503, "draining")
        fault.clients_saw(f"20 streams whole, {len(late) - 1} x 200, then 503 draining")
        assert await asyncio.to_thread(gateway.process.wait, 30) == 0
    assert slow_emulator.statistics().running == 0
    fault.process_is_gone()


@pytest.mark.fault("SIGKILL and restart under load")
async def test_sigkill_and_restart(fault, tmp_path, slow_emulator):
    port = free_port()
    async with outside(slow_emulator.base_url, tmp_path / "first", port=port) as gateway:
        bodies = [chat(f"Number {n}.", **ENDLESS) for n in range(8)]
        asked = [asyncio.create_task(_stream(gateway, body)) for body in bodies]
        await until(lambda: _runs(slow_emulator, 8))
        fault.begins()
        gateway.process.send_signal(signal.SIGKILL)
        ends = await asyncio.gather(*asked)
        assert set(ends) == {"cut"}, "nobody takes half an answer for a whole one"
        await until(lambda: _runs(slow_emulator, 0))
    async with outside(slow_emulator.base_url, tmp_path / "second", port=port) as again:
        async with fault.all_comes_back(again.look):
            assert await is_answered(again)
            fault.clients_saw("8 streams cut, never ended in order; 200 of the next process on the same port")


async def _stream(gateway, body):
    try:
        async with clients(gateway) as client, client.stream("POST", CHAT, json=body) as answer:
            async for _ in answer.aiter_raw():
                pass
    except httpx.TransportError:
        return "cut"
    return "ended"


async def _runs(emulator, count):
    return emulator.statistics().running == count
