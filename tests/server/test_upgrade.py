"""Offers to go on in another protocol are ignored: the request is read and answered as HTTP/1.1 (RFC 9110 §7.8)."""

import asyncio
import json
import subprocess

import pytest

from tests.support.live_gateway import CHAT, chat, live_gateway
from tests.support.model_server import model_server, posts
from tests.support.raw_client import head, raw_client

BODY = json.dumps(chat()).encode()
H2C = ("connection: Upgrade, HTTP2-Settings", "upgrade: h2c", "http2-settings: AAEAAEAAAAIAAAABAAMAAABk")
WEBSOCKET = ("connection: keep-alive, Upgrade", "upgrade: websocket", "sec-websocket-version: 13")


@pytest.fixture
async def upstream(stack):
    return await stack.enter_async_context(model_server())


@pytest.fixture
async def gateway(stack, upstream):
    return await stack.enter_async_context(live_gateway(upstream.base_url))


@pytest.fixture
async def client(stack, gateway):
    return await stack.enter_async_context(raw_client(gateway.host, gateway.port))


async def assert_answered(client):
    async with asyncio.timeout(10):
        status, headers, body = await client.answer()
    assert (status, headers.get("connection"), headers.get("upgrade")) == (200, None, None)
    assert json.loads(body)["object"] == "chat.completion"


@pytest.mark.parametrize("offer", [H2C, WEBSOCKET, ("connection: upgrade", "upgrade: foo/2")])
async def test_an_offer_with_a_body_is_ignored(client, upstream, offer):
    for _ in range(2):
        client.post(BODY, *offer)
        await assert_answered(client)
    for visit in posts(upstream):
        assert visit.body == BODY
        assert not visit.header("upgrade") + visit.header("http2-settings")


async def test_a_body_in_chunks(client, upstream):
    client.send(head(None, *H2C) + b"%x\r\n" % len(BODY) + BODY + b"\r\n0\r\n\r\n")
    await assert_answered(client)
    assert posts(upstream)[0].body == BODY


async def test_however_it_is_cut_into_pieces(client):
    message = head(len(BODY), *H2C) + BODY
    for at in range(0, len(message), 7):
        client.send(message[at : at + 7])
        await asyncio.sleep(0)
    await assert_answered(client)


async def test_one_behind_the_other(client):
    client.post(BODY, *H2C)
    client.post(BODY, *WEBSOCKET)
    client.post(BODY)
    for _ in range(3):
        await assert_answered(client)


async def test_very_many_in_one_piece(client):
    client.send(head(0, *H2C, path="/livez", method="GET") * 1000)
    for _ in range(1000):
        assert (await client.answer())[0] == 200


async def test_a_request_without_body(client):
    client.send(head(0, *WEBSOCKET, path="/livez", method="GET"))
    assert (await client.answer())[0] == 200


async def test_a_wish_to_close_is_kept(client):
    client.post(BODY, "connection: close, upgrade", "upgrade: h2c")
    assert (await client.answer_head())[1]["connection"] == "close"


async def test_a_wish_to_be_told_to_go_on_is_kept(client):
    client.send(head(len(BODY), *H2C, "expect: 100-continue"))
    assert (await client.answer_head())[0] == 100
    client.send(BODY)
    await assert_answered(client)


@pytest.mark.system("curl")
async def test_curl_that_would_like_http_2(gateway):
    done = await asyncio.to_thread(
        subprocess.run,
        ["curl", "-sS", "--http2", "--max-time", "20", "-w", " %{http_version} %{http_code}", "-H",
         "content-type: application/json", "-d", BODY.decode(), f"http://{gateway.host}:{gateway.port}{CHAT}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.endswith(" 1.1 200")
