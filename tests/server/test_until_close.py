"""HTTP/1.0 knows no chunks: whoever speaks it gets plain bytes until the connection ends."""

import json

import pytest

from tests.support.live_gateway import CHAT, chat, live_gateway
from tests.support.model_server import ANSWER, EVENTS, model_server
from tests.support.raw_client import raw_client


async def asked(gateway, path=CHAT, **fields):
    """Head and body of the answer."""
    body = json.dumps(chat(**fields)).encode()
    head = f"POST {path} HTTP/1.0\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    async with raw_client(gateway.host, gateway.port) as client:
        client.send(head.encode() + body)
        head, _, body = (await client.reader.read(-1)).partition(b"\r\n\r\n")
    return head.lower(), body


@pytest.fixture
async def gateway(stack):
    upstream = await stack.enter_async_context(model_server())
    return await stack.enter_async_context(live_gateway(upstream.base_url))


async def test_a_stream_has_no_chunks(gateway):
    head, body = await asked(gateway, stream=True)
    assert b"transfer-encoding" not in head
    assert b"connection: close" in head
    assert body == b"".join(EVENTS)
    await gateway.assert_ended("finished", status=200)


async def test_what_has_a_length_keeps_it(gateway):
    head, body = await asked(gateway)
    assert b"content-length: %d" % len(ANSWER) in head
    assert body == ANSWER


async def test_a_refusal_too(gateway):
    head, body = await asked(gateway, path="/nowhere")
    assert head.startswith(b"http/1.1 404")
    assert json.loads(body)["error"]["code"] == "not_found"


async def test_an_answer_of_the_control_routes(gateway):
    async with raw_client(gateway.host, gateway.port) as client:
        client.send(b"GET /metrics HTTP/1.0\r\n\r\n")
        text = await client.reader.read(-1)
    assert text.endswith(b"\n")
    assert b"transfer-encoding" not in text.lower()
