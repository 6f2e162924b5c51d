"""The model server breaks in every way: clients are told, and everything comes back."""

import asyncio
import contextlib
import json
import signal
import subprocess
import sys

import pytest

from tests.faults.asking import ask_many
from tests.faults.proxy import fault_proxy
from tests.support.live_gateway import CHAT, MODEL, chat, live_gateway, until
from tests.support.model_server import EVENTS, answer_chat, answer_never, error_of, model_server
from tests.support.odd_answers import BODIES, HEADS, STATUSES, STREAMS
from tests.support.processes import free_port

pytestmark = pytest.mark.usefixtures("short_pools")
ENDLESS = {"stream": True, "max_tokens": 20_000, "ignore_eos": True}
PATIENCE = {"first_byte_timeout_seconds": 0.5, "gap_timeout_seconds": 0.5, "total_timeout_seconds": 3.0}


def last_error(content: bytes) -> dict[str, object]:
    """The error event of a stream of chat, which ends with [DONE] behind it."""
    *_, error, done = content.removesuffix(b"\n\n").split(b"\n\n")
    assert done == b"data: [DONE]"
    return json.loads(error.removeprefix(b"data: "))["error"]


@contextlib.contextmanager
def emulator_process(*flags: str, port: int | None = None):
    """A model server that can be killed: its process and address. Nothing waits until it listens."""
    port = port or free_port()
    command = [sys.executable, "-m", "gateway", "emulate", "--port", str(port), "--model", MODEL, *flags]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield process, f"http://127.0.0.1:{port}"
        finally:
            process.kill()


@pytest.mark.fault("upstream killed mid-stream")
async def test_killed_mid_stream(fault):
    with emulator_process("--profile", "small-gpu") as (process, url):
        async with live_gateway(url) as gateway:
            await gateway.until_up()
            async with fault.inside(gateway):
                async with gateway.http.stream("POST", CHAT, json=chat(**ENDLESS)) as answer:
                    pieces = answer.aiter_raw()
                    received = await anext(pieces)
                    fault.begins()
                    process.send_signal(signal.SIGKILL)
                    received += b"".join([piece async for piece in pieces])
                assert answer.status_code == 200
                assert last_error(received)["code"] == "upstream_error"
                fault.clients_saw("200, tokens, error event upstream_error, [DONE]")


@pytest.mark.fault("upstream killed before the first byte")
async def test_killed_before_the_first_byte(fault):
    with emulator_process("--profile", "small-gpu") as (process, url):
        async with live_gateway(url) as gateway:
            await gateway.until_up()
            async with fault.inside(gateway):
                answer = asyncio.create_task(gateway.chat(max_tokens=20_000, ignore_eos=True))
                await until(lambda: gateway.metrics("gateway_upstream_requests_in_flight") == {"": 1})
                fault.begins()
                process.send_signal(signal.SIGKILL)
                told = await answer
                # On a connection that had served before it was tried once more, and nobody listened any more.
                seen = told.status_code, error_of(told)["code"]
                assert seen in {(502, "upstream_error"), (503, "upstream_unavailable")}
                fault.clients_saw(f"{told.status_code} {seen[1]}, then 503 upstream_unavailable")
                later = await gateway.chat()
                assert (later.status_code, error_of(later)["code"]) == (503, "upstream_unavailable")
                assert int(later.headers["retry-after"]) >= 1


@pytest.mark.fault("upstream hangs")
async def test_hangs(fault):
    async with (
        model_server(answer_never) as upstream,
        live_gateway(upstream.base_url, upstream=PATIENCE | {"total_timeout_seconds": 0.5}) as gateway,
        fault.inside(gateway),
    ):
        answers = [await gateway.chat(stream=is_stream) for is_stream in (False, True)]
        assert [(each.status_code, error_of(each)["code"]) for each in answers] == [(504, "upstream_timeout")] * 2
        fault.clients_saw("504 upstream_timeout")


@pytest.mark.fault("upstream stalls between tokens")
async def test_stalls_between_tokens(fault, slow_emulator):
    async with live_gateway(slow_emulator.base_url, upstream=PATIENCE) as gateway, fault.inside(gateway):
        async with gateway.http.stream("POST", CHAT, json=chat(**ENDLESS)) as answer:
            pieces = answer.aiter_raw()
            received = await anext(pieces)
            slow_emulator.set_faults(freeze=True)
            fault.begins()
            received += b"".join([piece async for piece in pieces])
        assert last_error(received)["code"] == "upstream_timeout"
        fault.clients_saw("200, tokens, error event upstream_timeout, [DONE]")
        slow_emulator.set_faults(freeze=False)


@pytest.mark.fault("upstream half-open")
async def test_half_open(fault, slow_emulator):
    """Nothing is said any more, and nothing closes: a host that lost its power, or a firewall that forgot."""
    async with (
        fault_proxy(slow_emulator.base_url) as proxy,
        live_gateway(proxy.base_url, upstream=PATIENCE) as gateway,
        fault.inside(gateway),
    ):
        async with gateway.http.stream("POST", CHAT, json=chat(**ENDLESS)) as answer:
            pieces = answer.aiter_raw()
            received = await anext(pieces)
            proxy.be_silent()
            fault.begins()
            received += b"".join([piece async for piece in pieces])
        assert last_error(received)["code"] == "upstream_timeout"
        told = await gateway.chat(stream=True)
        assert (told.status_code, error_of(told)["code"]) in {(504, "upstream_timeout"), (503, "upstream_unavailable")}
        fault.clients_saw(f"error event upstream_timeout, [DONE]; then {told.status_code}")
        proxy.speak()
        proxy.cut()
        await gateway.until_up()
        assert (await gateway.chat(max_tokens=1)).status_code == 200


@pytest.mark.fault("upstream answers garbage")
async def test_garbage(fault):
    """The whole catalogue of odd answers, less those that only time-outs end (tests/server has these one by one)."""
    odd = [each for each in [*STATUSES, *HEADS, *BODIES, *STREAMS] if each.status != 504 and "drips" not in each.name]
    turns = iter(odd)

    async def script(visit):
        await next(turns).script(visit)

    async with model_server(script) as upstream, live_gateway(upstream.base_url) as gateway, fault.inside(gateway):
        statuses = []
        for each in odd:
            async with gateway.http.stream("POST", CHAT, json=chat(stream=each in STREAMS)) as answer:
                statuses.append(answer.status_code)
                with contextlib.suppress(Exception):  # cut off, as it should be where the fault stands in the body
                    await answer.aread()
            assert answer.status_code in {each.status, 502}, each.name
        assert "gateway_fault" not in gateway.ended()
        passed = sum(status == 200 for status in statuses)
        fault.clients_saw(f"{len(odd)} kinds: {passed} x 200, {statuses.count(502)} x 502, {len(odd)} in all")


@pytest.mark.fault("upstream starts slowly")
async def test_slow_start(fault):
    port = free_port()
    async with live_gateway(f"http://127.0.0.1:{port}") as gateway:
        fault.begins()
        early = await gateway.chat()
        assert (early.status_code, error_of(early)["code"]) == (503, "upstream_unavailable")
        assert int(early.headers["retry-after"]) >= 1
        async with model_server(port=port):
            await gateway.until_up()
            async with fault.inside(gateway):
                assert (await gateway.chat()).status_code == 200
                fault.clients_saw("503 upstream_unavailable with Retry-After, then 200")


@pytest.mark.fault("upstream deadlocked, /health well")
async def test_deadlocked(fault, slow_emulator, monkeypatch):
    monkeypatch.setattr("gateway.domain.breaker.FROZEN_SECONDS", 0.3)
    async with model_server() as other:
        two = {"stuck": slow_emulator.base_url, "well": other.base_url}
        limits = {"first_byte_timeout_seconds": 3.0, "gap_timeout_seconds": 3.0}
        async with live_gateway(two, upstream=limits) as gateway, fault.inside(gateway):
            begun = asyncio.create_task(
                ask_many(gateway, [chat(f"Number {number}.", **ENDLESS) for number in range(4)])
            )
            await until(lambda: slow_emulator.statistics().generation_tokens > 0)
            slow_emulator.set_faults(freeze=True)
            fault.begins()
            await until(lambda: gateway.metrics("gateway_upstream_healthy") == {'{upstream="well"}': 1})
            assert gateway.application.troubles() == [], "its HTTP side says that all is well"
            later = await ask_many(gateway, [chat(f"Then {number}.", stream=True) for number in range(8)])
            assert [each.content for each in later] == [b"".join(EVENTS)] * 8
            stuck = [each for each in await begun if each.content != b"".join(EVENTS)]
            assert stuck
            told = [(error_of(each) if each.status_code == 504 else last_error(each.content))["code"] for each in stuck]
            assert set(told) == {"upstream_timeout"}
            fault.clients_saw(f"{len(stuck)} x upstream_timeout; all later ones 200 by the other server")
            slow_emulator.set_faults(freeze=False)


async def test_the_scripts_answer_where_nothing_is_broken():
    """Else the rows above would show nothing."""
    async with model_server(answer_chat) as upstream, live_gateway(upstream.base_url) as gateway:
        assert (await gateway.chat(stream=True)).content == b"".join(EVENTS)
