"""Bodies as they come in, message by message."""

import asyncio
import gzip
import zlib

import pytest

from gateway.domain.errors import GatewayError
from gateway.server import receive as room
from gateway.server.receive import BodyLimits, ClientLeftError, decode_body, receive_body

LIMITS = BodyLimits(max_bytes=100, max_decoded_bytes=100, min_bytes_per_second=10)
LEFT = {"type": "http.disconnect"}


def piece(body: bytes, *, more=True):
    return {"type": "http.request", "body": body, "more_body": more}


def coming(*messages):
    """A client that sends these; None: it is silent for ever."""
    left = list(messages)

    async def receive():
        message = left.pop(0)
        if message is None:
            await asyncio.Event().wait()
        return message

    return receive


async def refused(awaitable, status):
    with pytest.raises(GatewayError) as raised:
        await awaitable
    assert raised.value.status == status
    return raised.value.message


async def test_one_message_is_handed_on_without_a_copy():
    body = b"x" * 100
    assert await receive_body(coming(piece(body, more=False)), 100, LIMITS) is body


@pytest.mark.parametrize("announced", [10, None])
async def test_pieces_become_one_buffer(announced):
    client = coming(piece(b"abc"), piece(b""), piece(b"defghij", more=False))
    assert await receive_body(client, announced, LIMITS) == b"abcdefghij"


async def test_an_empty_body():
    assert await receive_body(coming({"type": "http.request"}), None, LIMITS) == b""


async def test_more_than_the_limit():
    assert "100" in await refused(receive_body(coming(piece(b"x" * 101, more=False)), None, LIMITS), 413)
    assert "at least 120" in await refused(receive_body(coming(piece(b"x" * 60), piece(b"x" * 60)), None, LIMITS), 413)


@pytest.mark.parametrize("messages", [[LEFT], [piece(b"x"), LEFT]])
async def test_the_client_leaves(messages):
    with pytest.raises(ClientLeftError):
        await receive_body(coming(*messages), 10, LIMITS)


async def test_too_slow(monkeypatch):
    monkeypatch.setattr(room, "GRACE_SECONDS", 0.01)
    assert "Only 0 bytes" in await refused(receive_body(coming(None), 90, LIMITS), 408)
    assert "Only 1 bytes" in await refused(receive_body(coming(piece(b"x"), None), 90, LIMITS), 408)


async def test_every_byte_buys_time(monkeypatch):
    monkeypatch.setattr(room, "GRACE_SECONDS", 0.05)
    quick = BodyLimits(100, 100, min_bytes_per_second=100)

    async def receive():
        await asyncio.sleep(0.04)
        return left.pop(0)

    left = [piece(b"x" * 30), piece(b"x" * 30), piece(b"x" * 30, more=False)]
    assert len(await receive_body(receive, 90, quick)) == 90


async def test_without_a_rate_there_is_no_hurry(monkeypatch):
    monkeypatch.setattr(room, "GRACE_SECONDS", 0.0)
    patient = BodyLimits(100, 100, min_bytes_per_second=0)

    async def receive():
        await asyncio.sleep(0.02)
        return left.pop(0)

    left = [piece(b"x"), piece(b"y", more=False)]
    assert await receive_body(receive, 2, patient) == b"xy"


class TestCodings:
    async def test_undone(self):
        body = b"{}" * 50
        assert await decode_body(gzip.compress(body), b"gzip", 100) == body
        assert await decode_body(zlib.compress(body), b"deflate", 100) == body

    async def test_too_long_a_bomb_is_not_unpacked_further(self):
        assert "at least 101" in await refused(decode_body(gzip.compress(b" " * 10**7), b"gzip", 100), 413)

    @pytest.mark.parametrize(
        "body",
        [b"", b"{}", gzip.compress(b"{}")[:-1], gzip.compress(b"{}") + b"x", gzip.compress(b"{}") * 2],
        ids=["empty", "plain", "cut short", "with a tail", "twice"],
    )
    async def test_damaged(self, body):
        await refused(decode_body(body, b"gzip", 100), 400)
