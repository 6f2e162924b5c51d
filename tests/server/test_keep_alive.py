"""When a stream that waits is begun, what is said meanwhile, and that it stops at once. Time is handed in."""

import asyncio

import pytest

from gateway.domain.errors import Code, GatewayError
from gateway.domain.request import VisionRequest
from gateway.pipeline.exchange import Exchange
from gateway.server.keep_alive import KeepAlive
from gateway.wire.voices import OPENAI


class Time:
    """`pass_by` runs what is due; sleepers wake when their time has come."""

    def __init__(self):
        self.now = 0.0
        self._due = []

    def call_later(self, delay, callback):
        entry = [self.now + delay, callback]
        self._due.append(entry)
        return _Timer(self._due, entry)

    async def sleep(self, seconds):
        woken = asyncio.get_running_loop().create_future()
        self.call_later(seconds, lambda: woken.done() or woken.set_result(None))
        await woken

    async def pass_by(self, seconds):
        await settled()
        until = self.now + seconds
        while due := [entry for entry in self._due if entry[0] <= until]:
            first = min(due, key=lambda entry: entry[0])
            self._due.remove(first)
            self.now = first[0]
            first[1]()
            await settled()
        self.now = until
        await settled()

    @property
    def is_idle(self):
        return not self._due


class _Timer:
    def __init__(self, due, entry):
        self._due, self._entry = due, entry

    def cancel(self):
        if self._entry in self._due:
            self._due.remove(self._entry)


async def settled():
    for _ in range(5):
        await asyncio.sleep(0)


class House:
    """One request whose work ends when the test says so; `sent` is what its client got."""

    def __init__(self, *, stream=True, request=True):
        self.time = Time()
        self.rule = KeepAlive(5.0, 10.0, call_later=self.time.call_later, sleep=self.time.sleep)
        self.exchange = Exchange("id-1", "POST", "/v1/chat/completions", b"", (), 0.0)
        self.exchange.request = VisionRequest("m", stream=stream) if request else None
        self.sent = []
        self.send = self.rule.over(self.exchange, self._take)
        self.end = asyncio.get_running_loop().create_future()
        self.got = None
        self.work = asyncio.create_task(self._work())
        self.may_write = asyncio.Event()
        self.may_write.set()

    async def _work(self):
        async with self.send:
            self.got = await self.end
        return self.got

    async def _take(self, message):
        await self.may_write.wait()
        self.sent.append(message)

    @property
    def words(self):
        return [message["body"] for message in self.sent if message["type"] == "http.response.body"]

    async def answer(self, status, headers, *pieces):
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        for piece in pieces[:-1]:
            await self.send({"type": "http.response.body", "body": piece, "more_body": True})
        await self.send({"type": "http.response.body", "body": pieces[-1]})


STREAM = [(b"content-type", b"text/event-stream"), (b"x-gateway-queue-ms", b"1")]


async def test_who_is_served_in_time_sees_nothing_of_it():
    house = House()
    await house.time.pass_by(4.9)
    house.end.set_result("answer")
    assert await house.work == "answer"
    await house.time.pass_by(100)
    await house.answer(200, STREAM, b"data: x\n\n", b"")
    assert [message["type"] for message in house.sent] == ["http.response.start", *["http.response.body"] * 2]
    assert house.sent[0]["headers"] == STREAM
    assert (house.rule.begun, house.exchange.is_kept_alive, house.time.is_idle) == (0, False, True)


async def test_a_stream_that_waits_is_begun_and_goes_on_in_the_same_answer():
    house = House()
    await house.time.pass_by(5)
    assert house.sent[0] == {
        "type": "http.response.start",
        "status": 200,
        "headers": [(b"content-type", b"text/event-stream; charset=utf-8"), (b"x-request-id", b"id-1")],
    }
    await house.time.pass_by(25)
    assert house.words == [OPENAI.waiting] * 3
    house.end.set_result("answer")
    assert await house.work == "answer"
    await house.time.pass_by(100)
    await house.answer(200, STREAM, b"data: x\n\n", b"", b"data: [DONE]\n\n")
    assert house.words[3:] == [b": x-gateway-queue-ms: 1\n\n", b"data: x\n\n", b"data: [DONE]\n\n"]
    assert [message["more_body"] for message in house.sent[1:]] == [True] * 5 + [False]
    assert (house.rule.begun, house.exchange.is_kept_alive, house.time.is_idle) == (1, True, True)


async def test_a_refusal_after_that_is_an_event():
    house = House()
    await house.time.pass_by(5)
    house.end.set_exception(GatewayError(Code.SERVER_IS_OVERLOADED, "late"))
    with pytest.raises(GatewayError):
        await house.work
    await house.answer(503, [(b"content-type", b"application/json")], b'{"error":{"message":"late"}}')
    assert house.words[1:] == [b'data: {"error":{"message":"late"}}\n\ndata: [DONE]\n\n']
    assert house.sent[-1]["more_body"] is False


async def test_an_answer_that_is_no_stream_is_never_begun():
    house = House(stream=False)
    await house.time.pass_by(100)
    house.end.set_result(None)
    await house.work
    assert (house.sent, house.time.is_idle) == ([], True)


async def test_while_the_body_is_read_nobody_knows():
    house = House(request=False)
    await house.time.pass_by(7)
    assert house.sent == []
    house.exchange.request = VisionRequest("m", stream=True)
    await house.time.pass_by(3)
    assert house.words == [OPENAI.waiting]
    house.work.cancel()
    await asyncio.wait([house.work])


async def test_a_client_that_leaves_takes_everything_with_it():
    house = House()
    await house.time.pass_by(5)
    house.work.cancel()
    await asyncio.wait([house.work])
    assert house.work.cancelled()
    assert house.end.cancelled()
    await house.time.pass_by(100)
    assert house.words == [OPENAI.waiting]
    assert house.time.is_idle


async def test_a_client_that_leaves_just_then_leaves_the_answer_to_its_owner():
    house = House()
    await house.time.pass_by(5)
    house.end.set_result("answer")
    await asyncio.sleep(0)
    house.work.cancel()
    await asyncio.wait([house.work])
    assert house.work.cancelled()
    assert house.got == "answer"


@pytest.mark.parametrize("blocked_at", [5.0, 15.0], ids=["at the head", "at a comment"])
async def test_a_client_that_takes_nothing_holds_up_neither_the_work_nor_memory(blocked_at):
    house = House()
    await house.time.pass_by(blocked_at - 0.1)
    house.may_write.clear()
    await house.time.pass_by(1000)
    said = list(house.words)
    house.end.set_result("answer")
    assert await house.work == "answer"
    house.may_write.set()
    await house.answer(200, STREAM, b"")
    assert house.words[len(said) :] == [b": x-gateway-queue-ms: 1\n\n", b""][blocked_at == 5.0 :]
    assert house.exchange.is_kept_alive is (blocked_at == 15.0)


async def test_what_sending_fails_with_is_not_hidden():
    house = House()

    async def broken(_):
        raise OSError

    house.send._send = broken
    await house.time.pass_by(5)
    house.end.set_result("answer")
    with pytest.raises(OSError):
        await house.work
    assert house.got == "answer"
