"""Answers in the background hold their places until the server says that they are done, or nothing for too long."""

import asyncio
import json

import pytest

from gateway.domain.outcome import Ending
from gateway.pipeline.background import EVERY_SECONDS, BackgroundWatch
from gateway.pipeline.exchange import Exchange
from gateway.upstream.errors import UpstreamDownError
from tests.support.clock import FakeClock
from tests.support.live_gateway import until

BEGUN_SECONDS = FakeClock()()
MOST_SECONDS = 600.0


class Lease:
    def __init__(self):
        self.endings = []

    def close(self, ending):
        self.endings.append(ending)


class Answer:
    def __init__(self, status, body):
        self.status = status
        self._pieces = [body[:5], body[5:]]
        self.is_finished = False

    async def read(self):
        return self._pieces.pop(0) if self._pieces else b""

    def finish(self):
        self.is_finished = True


class Upstream:
    """Says of the answer what it is told to, one look after the other; the last for ever."""

    def __init__(self, *words):
        self._words = list(words)
        self.asked = []

    async def send(self, method, path, headers, body, *, request_id):
        self.asked.append((method, path))
        word = self._words[0] if len(self._words) == 1 else self._words.pop(0)
        if isinstance(word, Exception):
            raise word
        return word if isinstance(word, Answer) else Answer(200, json.dumps({"status": word}).encode())


class Backend:
    def __init__(self, upstream):
        self.upstream = upstream
        self.models = None
        self.unseen = {}


async def followed(*words):
    """The lease, the server and the clock once the watch has let go."""
    clock = FakeClock()
    exchange = Exchange("id", "POST", "/v1/responses", b"", (), 0.0)
    exchange.goes_to(Backend(Upstream(*words)))
    exchange.lease, exchange.answer_name = Lease(), "resp_1"
    held = []

    async def sleep(seconds):
        held.append((len(exchange.backend.unseen), list(exchange.lease.endings)))
        clock.advance(seconds)
        await asyncio.sleep(0)

    watch = BackgroundWatch(clock, MOST_SECONDS, sleep)
    watch.hold(exchange)
    assert len(watch) == 1
    await until(lambda: not len(watch))
    assert all(each == (1, []) for each in held)
    assert exchange.backend.unseen == {}
    assert exchange.lease.endings == [Ending.IGNORED]
    return exchange.backend.upstream, clock


@pytest.mark.parametrize("last", ["completed", "incomplete", "failed", "cancelled", Answer(404, b"{}")])
async def test_it_is_asked_for_until_it_is_over(last):
    upstream, clock = await followed("queued", "in_progress", last)
    assert upstream.asked == [("GET", "/v1/responses/resp_1")] * 3
    assert clock() == BEGUN_SECONDS + 3 * EVERY_SECONDS


@pytest.mark.parametrize("trouble", [UpstreamDownError("gone"), Answer(500, b"{}"), Answer(200, b"no JSON")])
async def test_a_server_that_cannot_tell_may_still_be_at_it(trouble):
    upstream, _ = await followed(trouble, trouble, "completed")
    assert len(upstream.asked) == 3


async def test_what_is_never_over_is_held_no_longer_than_an_answer_may_take():
    _, clock = await followed("queued")
    assert clock() == BEGUN_SECONDS + MOST_SECONDS


async def test_closing_lets_go_of_all():
    exchange = Exchange("id", "POST", "/v1/responses", b"", (), 0.0)
    exchange.goes_to(Backend(Upstream("queued")))
    exchange.lease = Lease()
    watch = BackgroundWatch(FakeClock(), MOST_SECONDS)
    watch.hold(exchange)
    await asyncio.sleep(0)
    await watch.close()
    assert exchange.lease.endings == [Ending.IGNORED]
