"""What becomes of a body that nobody wants: read to its end where that is cheap, else the connection is closed."""

import asyncio

import pytest

from gateway.server import answers
from tests.support.live_gateway import live_gateway
from tests.support.model_server import model_server
from tests.support.raw_client import head, raw_client

CLOSED = "/invocations"


@pytest.fixture
async def client(stack):
    upstream = await stack.enter_async_context(model_server())
    gateway = await stack.enter_async_context(live_gateway(upstream.base_url))
    return await stack.enter_async_context(raw_client(gateway.host, gateway.port))


async def test_a_small_one_costs_the_connection_nothing(client):
    client.send(head(1000, path=CLOSED) + b"x" * 1000)
    status, headers, _ = await client.answer()
    assert (status, headers.get("connection")) == (403, None)
    client.send(head(2, path=CLOSED) + b"{}")
    assert (await client.answer())[0] == 403


async def test_a_large_one_is_read_first(client):
    client.send(head(1_000_000, path=CLOSED) + b"x" * 999_000)
    client.send(b"x" * 1000)
    status, headers, _ = await client.answer()
    assert (status, headers.get("connection")) == (403, None)
    client.send(head(2, path=CLOSED) + b"{}")
    assert (await client.answer())[0] == 403


async def test_one_in_chunks_is_read_first(client):
    client.send(head(None, path=CLOSED) + b"3\r\nabc\r\n")
    client.send(b"0\r\n\r\n")
    status, headers, _ = await client.answer()
    assert (status, headers.get("connection")) == (403, None)


@pytest.mark.parametrize("extra", [["expect: 100-continue"], []])
async def test_one_that_may_never_come_or_takes_too_long_closes_the_connection(client, monkeypatch, extra):
    monkeypatch.setattr(answers, "_DRAIN_SECONDS", 0.1)
    client.send(head(1_000_000, *extra, path=CLOSED))
    status, headers, _ = await client.answer()
    assert (status, headers["connection"]) == (403, "close")
    assert await client.reader.read() == b""


async def test_one_that_goes_on_coming_does_not_cost_its_sender_the_answer(client, monkeypatch):
    """Closing over bytes that nobody has read would be a reset."""
    monkeypatch.setattr("gateway.server.receive.GRACE_SECONDS", 0.1)
    client.send(head(1_000_000) + b"{")
    client.writer.transport.pause_reading()
    for _ in range(20):
        client.send(b"x")
        await asyncio.sleep(0.02)
    client.writer.transport.resume_reading()
    status, headers, _ = await client.answer()
    assert (status, headers["connection"]) == (408, "close")
    assert await client.reader.read() == b""


async def test_one_too_long_to_be_read_is_not(client):
    client.send(head(65 << 20))
    status, headers, _ = await client.answer()
    assert (status, headers["connection"]) == (413, "close")


async def test_one_in_chunks_that_never_ends_is_read_so_far_only(client, monkeypatch):
    monkeypatch.setattr(answers, "_MOST_DRAINED_BYTES", 100_000)
    client.send(head(None, path=CLOSED) + b"%x\r\n" % 1_000_000 + b"x" * 200_000)
    status, headers, _ = await client.answer()
    assert (status, headers["connection"]) == (403, "close")
