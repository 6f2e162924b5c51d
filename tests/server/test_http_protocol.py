"""Bytes on a connection before there is a request: what comes back, and that the connection ends."""

import asyncio
import json

import pytest

from gateway.server import http_protocol
from gateway.server.http_protocol import MOST_HEADER_BYTES
from tests.support.live_gateway import live_gateway

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


async def test_trailers_without_end_are_refused(connection):
    """Behind a chunked body anything could follow for ever, and uvicorn would keep it all."""
    reader, writer = connection
    trailers = b"x: y\r\n" * MOST_HEADER_BYTES
    writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + trailers)
    async with asyncio.timeout(10):
        answer = await reader.read()
    assert b"headers_too_large" in answer
