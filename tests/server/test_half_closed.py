"""A client that stops sending and waits gets its answer; one that has gone frees its place all the same."""

import json

import pytest

from gateway.server.half_closed import CONTINUE
from tests.support.live_gateway import chat, live_gateway, until
from tests.support.model_server import ANSWER, answer_never, model_server
from tests.support.raw_client import raw_client

BODY = json.dumps(chat()).encode()
SLOW = json.dumps(chat(max_tokens=60, ignore_eos=True)).encode()  # more than half a second


async def asked(client, body, version=b"1.1"):
    """Sends the request and its own end at once; what came back until the gateway's end."""
    client.post(body)
    client.writer.write_eof()
    return await client.reader.read()


@pytest.mark.parametrize("stream", [False, True])
async def test_it_gets_its_answer(emulator, stream):
    async with live_gateway(emulator.base_url) as gateway, raw_client(gateway.host, gateway.port) as client:
        answer = await asked(client, json.dumps(chat(stream=stream)).encode())
        assert answer.startswith(b"HTTP/1.1 200 OK")
        assert b"connection: close" in answer
        assert answer.endswith(b"0\r\n\r\n" if stream else b"}")
        await gateway.assert_ended("finished", status=200)


async def test_it_is_asked_whether_it_is_still_there_when_the_answer_takes_long(slow_emulator):
    async with live_gateway(slow_emulator.base_url) as gateway, raw_client(gateway.host, gateway.port) as client:
        answer = await asked(client, SLOW)
        assert answer.startswith(CONTINUE + b"HTTP/1.1 200 OK")
        assert answer.count(CONTINUE) == 1
        await gateway.assert_ended("finished", status=200)


async def test_a_client_of_http_1_0_is_not_asked(slow_emulator):
    async with live_gateway(slow_emulator.base_url) as gateway, raw_client(gateway.host, gateway.port) as client:
        client.send(b"POST /v1/chat/completions HTTP/1.0\r\ncontent-type: application/json\r\n")
        client.send(b"content-length: %d\r\n\r\n" % len(SLOW) + SLOW)
        client.writer.write_eof()
        answer = await client.reader.read()
        assert answer.startswith(b"HTTP/1.1 200 OK")
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["usage"]["completion_tokens"] == 60


async def test_one_that_has_gone_is_found_out():
    async with model_server(answer_never) as upstream, live_gateway(upstream.base_url) as gateway:
        async with raw_client(gateway.host, gateway.port) as client:
            client.post(BODY)
            await until(lambda: gateway.held().get('{resource="sequences"}') == 1)
        await gateway.until_released()
        assert gateway.ended() == {"client_left": 1}


async def test_half_a_request_and_then_nothing_is_over_at_once(emulator):
    async with live_gateway(emulator.base_url) as gateway, raw_client(gateway.host, gateway.port) as client:
        client.send(
            b"POST /v1/chat/completions HTTP/1.1\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{"
        )
        client.writer.write_eof()
        assert await client.reader.read() == b""
        await gateway.until_released()
        assert gateway.ended() == {"client_left": 1}


async def test_two_requests_one_behind_the_other(stack):
    upstream = await stack.enter_async_context(model_server())
    gateway = await stack.enter_async_context(live_gateway(upstream.base_url))
    client = await stack.enter_async_context(raw_client(gateway.host, gateway.port))
    client.post(BODY)
    answer = await asked(client, BODY)
    assert answer.count(ANSWER) == 2
    assert answer.count(b"HTTP/1.1") == 2
