"""Bodies as they come in, message by message."""

import asyncio

import pytest

from gateway.domain.errors import Code, GatewayError
from gateway.domain.outcome import Reason
from gateway.server import receive as room_of_bodies
from gateway.server.receive import (
    FAST_GRACE_SECONDS,
    GRACE_SECONDS,
    BodyLimits,
    ClientLeftError,
    receive_body,
)
from tests.support.clock import StoppedTime

LIMITS = BodyLimits(max_bytes=100, max_decoded_bytes=100, min_bytes_per_second=10)
LEFT = {"type": "http.disconnect"}


class Room:
    """As much as is asked for; remembers what was asked. `first_bytes` are there from the start."""

    def __init__(self, first_bytes=1000, *, is_refusing=False, is_free=False):
        self.byte_count = first_bytes
        self.is_free = is_free
        self.is_ahead = False
        self.is_refusing = is_refusing
        self.asked = []

    def take_at_once(self, byte_count):
        self.asked.append(f"at once {byte_count}")
        return self.is_free

    async def begin(self, *, is_here):
        self.asked.append("here" if is_here else "begin")

    def has_room(self, come_bytes):
        return come_bytes < self.byte_count

    async def grow(self, come_bytes, *, is_fast):
        self.asked.append(f"{'fast' if is_fast else 'slow'} at {come_bytes}")
        self.is_ahead = is_fast
        self.byte_count = 1000 if is_fast else come_bytes + 10

    def fall_back(self, come_bytes):
        self.asked.append(f"back at {come_bytes}")
        self.is_ahead = False
        self.byte_count = come_bytes + 10
        if self.is_refusing:
            raise GatewayError(Code.RATE_LIMIT_EXCEEDED, "no memory", reason=Reason.HOST_MEMORY)

    async def cover(self, byte_count):
        self.asked.append(f"cover {byte_count}")


class Server:
    """Has the whole body already."""

    more_body = False

    def __init__(self, message):
        self.message = message

    async def receive(self):
        return self.message


def received(client, announced=None, limits=LIMITS, room=None):
    return receive_body(client, announced, limits, room or Room())


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
    assert await received(coming(piece(body, more=False)), 100, LIMITS) is body


@pytest.mark.parametrize("announced", [10, None])
async def test_pieces_become_one_buffer(announced):
    client = coming(piece(b"abc"), piece(b""), piece(b"defghij", more=False))
    assert await received(client, announced, LIMITS) == b"abcdefghij"


async def test_an_empty_body():
    assert await received(coming({"type": "http.request"}), None, LIMITS) == b""


async def test_more_than_the_limit():
    assert "100" in await refused(received(coming(piece(b"x" * 101, more=False)), None, LIMITS), 413)
    assert "at least 120" in await refused(received(coming(piece(b"x" * 60), piece(b"x" * 60)), None, LIMITS), 413)


@pytest.mark.parametrize("messages", [[LEFT], [piece(b"x"), LEFT]])
async def test_the_client_leaves(messages):
    with pytest.raises(ClientLeftError):
        await received(coming(*messages), 10, LIMITS)


async def test_too_slow(monkeypatch):
    monkeypatch.setattr(room_of_bodies, "GRACE_SECONDS", 0.01)
    assert "Only 0 bytes" in await refused(received(coming(None), 90, LIMITS), 408)
    assert "Only 1 bytes" in await refused(received(coming(piece(b"x"), None), 90, LIMITS), 408)


def taking_its_time(time, seconds, *messages):
    """A client that sends these, each so long after the one before."""
    left = list(messages)

    async def receive():
        await time.passes(seconds)
        return left.pop(0)

    return receive


async def test_every_byte_buys_time(monkeypatch):
    three = [piece(b"x" * 30), piece(b"x" * 30), piece(b"x" * 30, more=False)]
    in_time, late = BodyLimits(100, 100, min_bytes_per_second=3), BodyLimits(100, 100, min_bytes_per_second=4)
    client = taking_its_time(StoppedTime(monkeypatch), 9.9, *three)
    assert len(await received(client, 90, in_time)) == 90
    client = taking_its_time(StoppedTime(monkeypatch), 9.9, *three)
    assert "Only 30 bytes" in await refused(received(client, 90, late), 408)


async def test_without_a_rate_there_is_no_hurry(monkeypatch):
    patient = BodyLimits(100, 100, min_bytes_per_second=0)
    client = taking_its_time(StoppedTime(monkeypatch), 3600.0, piece(b"x"), piece(b"y", more=False))
    assert await received(client, 2, patient) == b"xy"


class TestRoom:
    """What is asked of the room, and when."""

    async def test_what_fits_from_the_start_asks_for_nothing(self):
        room = Room()
        await received(coming(piece(b"abc"), piece(b"def", more=False)), 6, room=room)
        assert room.asked == ["begin", "cover 6"]

    async def test_a_fast_body_asks_once(self):
        room = Room(first_bytes=2)
        client = coming(piece(b"abc"), piece(b"def"), piece(b"ghi", more=False))
        assert await received(client, 9, room=room) == b"abcdefghi"
        assert room.asked == ["begin", "fast at 3", "cover 9"]

    async def test_a_slow_body_asks_again_and_again(self, monkeypatch):
        monkeypatch.setattr(room_of_bodies, "FAST_GRACE_SECONDS", -1.0)
        room = Room(first_bytes=2)
        client = coming(piece(b"x" * 3), piece(b"y" * 9), piece(b"z" * 9), piece(b"!", more=False))
        assert await received(client, 22, room=room) == b"xxx" + b"y" * 9 + b"z" * 9 + b"!"
        assert room.asked == ["begin", "slow at 3", "slow at 21", "cover 22"]

    @pytest.mark.parametrize("announced", [9, None])
    async def test_a_body_that_falls_behind_gives_up_what_it_has_not_filled(self, monkeypatch, announced):
        time, room = StoppedTime(monkeypatch), Room(first_bytes=2)
        is_late = asyncio.Event()
        first = coming(piece(b"abc"), piece(b"def"))

        async def client():
            if "back at 6" in room.asked:
                return piece(b"ghi", more=False)
            if len(room.asked) > 1 and is_late.is_set():
                time.advance(FAST_GRACE_SECONDS + 0.1)
                await asyncio.Event().wait()
            message = await first()
            if message["body"] == b"def":
                is_late.set()
            return message

        assert await received(client, announced, room=room) == b"abcdefghi"
        assert room.asked == ["begin", "fast at 3", "back at 6", "cover 9"]

    async def test_falling_behind_where_there_is_no_room_for_slow_ones(self, monkeypatch):
        monkeypatch.setattr(room_of_bodies, "FAST_GRACE_SECONDS", 0.01)
        client = coming(piece(b"abc"), None)
        assert await refused(received(client, 9, room=Room(2, is_refusing=True)), 429) == "no memory"

    async def test_having_fallen_behind_it_still_has_to_come_at_the_minimum_rate(self, monkeypatch):
        time, room = StoppedTime(monkeypatch), Room(2)
        come = coming(piece(b"a"), piece(b"b"), *[None] * 3)

        async def client():
            if len(room.asked) > 1:
                time.advance(GRACE_SECONDS if room.asked[-1] == "back at 2" else FAST_GRACE_SECONDS + 0.1)
            return await come()

        assert "Only 2 bytes" in await refused(received(client, 9, BodyLimits(100, 100, 10_000), room), 408)
        assert room.asked[1:] == ["fast at 2", "back at 2"]

    async def test_waiting_for_room_is_not_the_clients_fault(self, monkeypatch):
        time = StoppedTime(monkeypatch)

        class Late(Room):
            async def grow(self, come_bytes, *, is_fast):
                time.advance(2 * GRACE_SECONDS)
                await super().grow(come_bytes, is_fast=is_fast)

        left = [piece(b"abc"), piece(b"def"), piece(b"ghi", more=False)]

        async def client():
            await asyncio.sleep(0)
            return left.pop(0)

        room = Late(first_bytes=2)
        assert await received(client, 9, room=room) == b"abcdefghi"
        assert "back at 3" not in room.asked

    @pytest.mark.parametrize("is_free", [False, True])
    async def test_a_body_that_is_here_needs_no_timer(self, monkeypatch, is_free):
        monkeypatch.setattr(asyncio, "timeout_at", None)
        room = Room(is_free=is_free)
        assert await received(Server(piece(b"{}", more=False)).receive, 2, room=room) == b"{}"
        assert room.asked == ["at once 2", *([] if is_free else ["here"]), "cover 2"]

    async def test_who_left_after_the_body_came_has_left(self):
        with pytest.raises(ClientLeftError):
            await received(Server(LEFT).receive, 2, room=Room(is_free=True))
