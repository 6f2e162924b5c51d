import asyncio

import pytest

from gateway.server.joined_writes import JoinedWrites

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n"


class Wire(asyncio.Transport):
    """Keeps what was written, write by write."""

    def __init__(self):
        super().__init__({"peername": ("127.0.0.1", 5)})
        self.writes = []
        self.has_ended = self.is_closed = False

    def write(self, data):
        assert not self.is_closed
        self.writes.append(data)

    def write_eof(self):
        self.has_ended = True

    def close(self):
        self.is_closed = True

    def is_closing(self):
        return self.is_closed


@pytest.fixture
async def wire():
    return Wire()


@pytest.fixture
async def transport(wire):
    return JoinedWrites(wire, asyncio.get_running_loop())


async def next_turn():
    await asyncio.sleep(0)


async def test_a_head_leaves_with_the_body_that_follows_it(wire, transport):
    transport.write(HEAD)
    transport.write(b"body")
    await next_turn()
    assert wire.writes == [HEAD + b"body"]


async def test_a_head_alone_leaves_at_the_next_turn_of_the_loop(wire, transport):
    transport.write(HEAD)
    assert wire.writes == []
    await next_turn()
    assert wire.writes == [HEAD]
    transport.write(b"event")
    assert wire.writes == [HEAD, b"event"]


async def test_a_large_body_is_not_copied_for_it(wire, transport):
    body = bytes(1 << 17)
    transport.write(HEAD)
    transport.write(body)
    assert wire.writes == [HEAD, body]
    assert wire.writes[1] is body


async def test_two_heads_stay_in_order(wire, transport):
    first, second = b"HTTP/1.1 100 Continue\r\n\r\n", HEAD
    transport.write(first)
    transport.write(second)
    transport.write(b"body")
    await next_turn()
    assert b"".join(wire.writes) == first + second + b"body"


@pytest.mark.parametrize("end", ["write_eof", "close"])
async def test_an_ending_sends_what_was_kept_first(wire, transport, end):
    transport.write(HEAD)
    getattr(transport, end)()
    await next_turn()
    assert wire.writes == [HEAD]
    assert wire.has_ended or wire.is_closed


async def test_nothing_is_sent_over_a_connection_that_is_gone(wire, transport):
    transport.write(HEAD)
    wire.close()
    await next_turn()
    assert wire.writes == []
    assert transport.is_closing()


async def test_all_else_is_the_transports_own(transport):
    assert transport.get_extra_info("peername") == ("127.0.0.1", 5)
