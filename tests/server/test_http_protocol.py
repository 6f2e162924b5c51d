"""Bytes on a connection before there is a request: what comes back, and that the connection ends."""

import asyncio
import json

import pytest

from gateway.server import http_protocol
from gateway.server.http_protocol import MOST_HEADER_BYTES
from tests.support.live_gateway import chat, live_gateway, until
from tests.support.raw_client import head, raw_client

HEAD = b"GET /livez HTTP/1.1\r\nHost: t\r\n"
ALIVE = b'{"status":"alive"}'


@pytest.fixture
async def connection():
    """To a gateway whose model server is not there: none of this needs one."""
    async with live_gateway("http://127.0.0.1:9") as gateway:
        reader, writer = await asyncio.open_connection(gateway.host, gateway.port)
        yield reader, writer
        writer.close()
        await writer.wait_closed()


async def refusal(reader):
    async with asyncio.timeout(10):
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    assert b"connection: close" in head
    error = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return int(head.split()[1]), error["code"]


async def test_a_request_is_served_and_the_connection_stays(connection):
    reader, writer = connection
    for _ in range(2):
        writer.write(HEAD + b"\r\n")
        answer = await reader.readuntil(ALIVE)
        assert answer.startswith(b"HTTP/1.1 200")


async def test_what_is_not_http_gets_a_400_in_the_common_shape(connection):
    reader, writer = connection
    writer.write(b"\x16\x03\x01\x02\x00hello\r\n\r\n")
    assert await refusal(reader) == (400, "invalid_request")


async def test_headers_without_end_get_a_431(connection):
    reader, writer = connection
    writer.write(HEAD + b"X-Long: ")
    for _ in range(3):
        writer.write(b"a" * MOST_HEADER_BYTES)
    assert await refusal(reader) == (431, "headers_too_large")


async def test_headers_that_come_whole_but_too_large_get_a_431(connection, monkeypatch):
    monkeypatch.setattr(http_protocol, "MOST_HEADER_BYTES", 1000)
    reader, writer = connection
    writer.write(HEAD + b"X-Long: " + b"a" * 2000 + b"\r\n\r\n")
    assert await refusal(reader) == (431, "headers_too_large")


async def test_a_body_does_not_count_as_headers(connection, monkeypatch):
    monkeypatch.setattr(http_protocol, "MOST_HEADER_BYTES", 1000)
    reader, writer = connection
    writer.write(HEAD + b"Content-Length: 5000\r\n\r\n" + b"a" * 5000)
    assert (await reader.readuntil(ALIVE)).startswith(b"HTTP/1.1 200")


async def test_headers_that_never_end_get_a_408(connection, monkeypatch):
    monkeypatch.setattr(http_protocol, "HEADER_SECONDS", 0.05)
    reader, writer = connection
    writer.write(HEAD)
    assert await refusal(reader) == (408, "request_timeout")


TRAILERS = b"0\r\n" + b"x: y\r\n" * MOST_HEADER_BYTES
LONG = b"x" * 16 * MOST_HEADER_BYTES


@pytest.mark.parametrize(
    "tail", [TRAILERS, b"0\r\nx: " + LONG, b"5;x=" + LONG], ids=["many trailers", "a long trailer", "a long extension"]
)
async def test_what_is_neither_headers_nor_body_is_refused_when_it_has_no_end(connection, tail):
    """Behind a chunked body anything could follow for ever, and the parser would keep and copy it all."""
    reader, writer = connection
    writer.write(head(None) + tail)
    assert await refusal(reader) == (431, "headers_too_large")


async def test_a_long_body_in_tiny_chunks_is_no_header(connection):
    reader, writer = connection
    writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * MOST_HEADER_BYTES + b"0\r\n\r\n")
    assert (await reader.readuntil(ALIVE)).startswith(b"HTTP/1.1 200")
    writer.write(HEAD + b"\r\n")
    assert (await reader.readuntil(ALIVE)).startswith(b"HTTP/1.1 200")


async def test_a_body_that_breaks_behind_its_answer_gets_no_second_one(connection):
    reader, writer = connection
    writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + TRAILERS)
    answer = await reader.read()
    assert answer.endswith(ALIVE)
    assert answer.count(b"HTTP/1.1") == 1


async def test_a_connection_that_is_never_used_is_closed_without_a_word(monkeypatch):
    monkeypatch.setattr(http_protocol, "HEADER_SECONDS", 0.05)
    async with live_gateway("http://127.0.0.1:9") as gateway, raw_client(gateway.host, gateway.port) as client:
        assert await client.reader.read() == b""
        assert gateway.rejected() == {}


async def test_blank_lines_keep_no_connection_alive():
    async with live_gateway("http://127.0.0.1:9") as gateway, raw_client(gateway.host, gateway.port) as client:
        await until(lambda: len(gateway.connections) == 1)
        (connection,) = gateway.connections
        connection.timeout_keep_alive = 0.2
        client.send(HEAD + b"\r\n")
        await client.reader.readuntil(ALIVE)

        async def send_blank_lines():
            while True:
                client.send(b"\r\n")
                await asyncio.sleep(0.02)

        sending = asyncio.create_task(send_blank_lines())
        async with asyncio.timeout(10):
            assert await client.reader.read() == b""
        sending.cancel()


@pytest.mark.parametrize(
    ("target", "expected"),
    [(b"example.com:443", (400, "invalid_request")), (b"/v1/chat/completions", (405, "method_not_allowed"))],
)
async def test_connect_is_refused_and_what_follows_is_not_read_as_requests(target, expected):
    async with live_gateway("http://127.0.0.1:9") as gateway, raw_client(gateway.host, gateway.port) as client:
        client.send(b"CONNECT %s HTTP/1.1\r\nHost: t\r\n\r\n" % target + HEAD + b"\r\n")
        assert await refusal(client.reader) == expected


class TestCounting:
    async def test_what_is_refused_is_counted_and_logged(self):
        async with live_gateway("http://127.0.0.1:9") as gateway, raw_client(gateway.host, gateway.port) as client:
            client.send(b"hello\r\n\r\n")
            assert await refusal(client.reader) == (400, "invalid_request")
            line = await gateway.assert_ended("refused", status=400, reason="bad_request")
            assert (line["endpoint"], line["method"], line["code"]) == ("-", "-", "invalid_request")

    async def test_a_flood_is_counted_whole_and_logged_in_part(self, monkeypatch):
        monkeypatch.setattr("gateway.server.connection_refusals.MOST_LINES_PER_SECOND", 0)
        async with live_gateway("http://127.0.0.1:9") as gateway:
            for _ in range(3):
                async with raw_client(gateway.host, gateway.port) as client:
                    client.send(b"hello\r\n\r\n")
                    await client.reader.read()
            assert gateway.rejected() == {"bad_request": 3}
        assert gateway.log_text == b""


class TestBehindAnAnswer:
    """A second request comes while the answer to the first is under way."""

    STREAM = json.dumps(chat(stream=True, max_tokens=30, ignore_eos=True)).encode()

    @pytest.fixture
    async def client(self, slow_emulator, stack):
        gateway = await stack.enter_async_context(live_gateway(slow_emulator.base_url))
        client = await stack.enter_async_context(raw_client(gateway.host, gateway.port))
        client.gateway = gateway
        return client

    async def test_half_a_request_has_time_until_the_answer_is_through(self, client, monkeypatch):
        monkeypatch.setattr(http_protocol, "HEADER_SECONDS", 0.05)
        client.post(self.STREAM)
        assert (await client.answer_head())[0] == 200
        client.send(HEAD)
        stream = await client.reader.readuntil(b"0\r\n\r\n")
        assert stream.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        assert b"HTTP/1.1" not in stream
        assert await refusal(client.reader) == (408, "request_timeout")

    async def test_half_a_request_that_is_completed_later_is_answered(self, client):
        client.post(self.STREAM)
        await client.answer_head()
        client.send(HEAD)
        await client.reader.readuntil(b"0\r\n\r\n")
        client.send(b"\r\n")
        assert (await client.reader.readuntil(ALIVE)).startswith(b"HTTP/1.1 200")

    @pytest.mark.parametrize(
        ("broken", "expected"),
        [
            (b"\x16\x03\x01\r\n\r\n", (400, "invalid_request")),
            (HEAD + b"X-Long: " + b"a" * 2 * MOST_HEADER_BYTES, (431, "headers_too_large")),
            (head(None) + b"no number\r\n", (400, "invalid_request")),
        ],
        ids=["no http", "too large", "a broken body"],
    )
    async def test_what_is_broken_is_refused_when_the_answer_is_through(self, client, broken, expected):
        client.post(self.STREAM)
        await client.answer_head()
        client.send(broken)
        stream = await client.reader.readuntil(b"0\r\n\r\n")
        assert b"HTTP/1.1" not in stream
        assert await refusal(client.reader) == expected
        await client.gateway.until_released()

    async def test_whole_requests_between_are_answered_first(self, client):
        client.post(self.STREAM)
        await client.answer_head()
        client.send(HEAD + b"\r\n" + b"hello\r\n\r\n")
        await client.reader.readuntil(b"0\r\n\r\n")
        assert (await client.reader.readuntil(ALIVE)).startswith(b"HTTP/1.1 200")
        assert await refusal(client.reader) == (400, "invalid_request")


async def test_a_request_whose_body_breaks_is_refused_once_and_leaves_nothing(emulator):
    async with live_gateway(emulator.base_url) as gateway, raw_client(gateway.host, gateway.port) as client:
        client.send(head(None) + b"5\r\nhello\r\n")
        await until(lambda: gateway.held().get('{resource="seats"}') == 1)
        client.send(b"no number\r\n")
        assert await refusal(client.reader) == (400, "invalid_request")
        await gateway.until_released()
        assert gateway.rejected() == {"bad_request": 1}
