"""A client that does not take its answer is cut off in bounded time; one that takes it slowly is not."""

import asyncio
import json
import socket
from unittest.mock import ANY

import pytest

from gateway.server.slow_reader import LEAST_BYTES_PER_SECOND, SlowReader
from tests.support.live_gateway import chat, live_gateway, until
from tests.support.model_server import model_server
from tests.support.raw_client import raw_client

SECONDS = 10.0
ENOUGH = int(SECONDS * LEAST_BYTES_PER_SECOND)


class Connection:
    """A transport with so many unsent bytes, and the timer that was set last."""

    def __init__(self, unsent):
        self.unsent = unsent
        self.is_aborted = False
        self.look = None

    def get_write_buffer_size(self):
        return self.unsent

    def abort(self):
        self.is_aborted = True

    def call_later(self, seconds, callback):
        assert seconds == SECONDS
        self.look = callback
        return self

    def cancel(self):
        self.look = None

    def later(self, unsent):
        """The next look finds this."""
        look, self.look, self.unsent = self.look, None, unsent
        look()


@pytest.fixture
def connection():
    return Connection(unsent=5 * ENOUGH)


@pytest.fixture
def reader(connection):
    watched = SlowReader(connection, connection, SECONDS)
    watched.begin()
    return watched


def test_nothing_taken(connection, reader):
    connection.later(5 * ENOUGH)
    assert connection.is_aborted


def test_too_little_taken(connection, reader):
    connection.later(4 * ENOUGH)
    connection.later(3 * ENOUGH + 1)
    assert connection.is_aborted


def test_all_taken_in_time(connection, reader):
    for left in (4, 3, 2, 1, 0):
        connection.later(left * ENOUGH)
    assert not connection.is_aborted
    assert connection.look is None


def test_new_bytes_begin_anew(connection, reader):
    connection.later(6 * ENOUGH)
    assert not connection.is_aborted
    connection.later(6 * ENOUGH)
    assert connection.is_aborted


def test_begun_twice_and_stopped_twice(connection, reader):
    look = connection.look
    reader.begin()
    assert connection.look is look
    reader.stop()
    reader.stop()
    assert connection.look is None


def narrow(client):
    """Next to nothing of an answer fits between the gateway and this client."""
    client.writer.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.writer.transport.pause_reading()


async def test_a_stream_that_nobody_reads_gives_its_place_back():
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
        live_gateway(upstream.base_url, server={"write_timeout_seconds": 0.3}) as gateway,
        raw_client(gateway.host, gateway.port) as client,
    ):
        narrow(client)
        client.post(json.dumps(chat(stream=True)).encode())
        await cut.wait()
        await gateway.until_released()
        assert gateway.ended() == {"client_left": 1}


@pytest.mark.parametrize("headers", [["connection: close"], []])
async def test_an_answer_at_rest_does_not_keep_its_connection_open_for_ever(headers):
    """Closing waits until all is sent, which it never is."""

    async def large(visit):
        await visit.answer("200 OK", b"x" * 8_000_000, "content-type: application/json")

    async with (
        model_server(large) as upstream,
        live_gateway(upstream.base_url, server={"write_timeout_seconds": 0.3}) as gateway,
        raw_client(gateway.host, gateway.port) as client,
    ):
        narrow(client)
        await until(lambda: len(gateway.connections) == 1)
        (connection,) = gateway.connections
        connection.transport.set_write_buffer_limits(high=100_000_000)
        connection.timeout_keep_alive = 0.1
        client.post(json.dumps(chat()).encode(), *headers)
        await until(lambda: gateway.ended() == {"finished": 1})
        await until(lambda: not gateway.connections)


async def test_a_client_that_pauses_and_then_goes_on_gets_it_all():
    async def large(visit):
        await visit.answer("200 OK", b"x" * 8_000_000, "content-type: application/json")

    async with (
        model_server(large) as upstream,
        live_gateway(upstream.base_url) as gateway,
        raw_client(gateway.host, gateway.port) as client,
    ):
        await until(lambda: len(gateway.connections) == 1)
        (connection,) = gateway.connections
        for _ in range(2):
            client.writer.transport.pause_reading()
            client.post(json.dumps(chat()).encode())
            await until(lambda: connection.flow.write_paused)
            client.writer.transport.resume_reading()
            async with asyncio.timeout(20):
                assert await client.answer() == (200, ANY, b"x" * 8_000_000)
        await until(lambda: gateway.ended() == {"finished": 2})
