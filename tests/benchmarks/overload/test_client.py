"""The imitated client and the real SDK before the same server: both live through the same."""

import time
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from benchmarks.overload.client import Client, session
from benchmarks.overload.sdk_client import SdkClient
from benchmarks.overload.traffic import Habits, Stream, endless
from benchmarks.overload.upstream import MODEL
from benchmarks.overload.visit import Ending
from gateway.emulator.config import EmulatorConfig, StepCost
from gateway.emulator.serve import running_emulator

HABITS = Habits(kind="text", output_median=8, output_spread=0.0, retrying=1.0)
REQUEST = replace(next(endless(1, Stream("any", 1.0, ("a",), HABITS))), max_tokens=32)


@pytest.fixture
def server():
    with running_emulator(EmulatorConfig.fast(model=MODEL, step_cost=StepCost(0.001, 0.0, 0.0, 0.0))) as running:
        yield running


@asynccontextmanager
async def imitated(url, patience_seconds):
    async with session(url) as http:
        yield Client(http, "s", patience_seconds, clock())


@asynccontextmanager
async def real(url, patience_seconds):
    client = SdkClient(url, "s", patience_seconds, clock())
    yield client
    await client.close()


def clock():
    began = time.monotonic()
    return lambda: time.monotonic() - began


@pytest.fixture(params=[imitated, real])
def visited(request, server):
    async def visit(wish=REQUEST, patience_seconds=20.0):
        async with request.param(server.base_url, patience_seconds) as client:
            return await client.visit(wish, 0.0)

    return visit


async def test_an_answer_has_the_length_that_the_traffic_says_whatever_max_tokens(visited):
    visit = await visited()
    assert (visit.ending, visit.attempts) == (Ending.DONE, 1)
    assert len(visit.token_times) == REQUEST.output_tokens - 1  # the token that ends an answer has no text
    assert 0 < visit.first_token_at <= visit.ended_at


async def test_a_503_is_tried_again_after_a_while(visited, server):
    server.set_faults(unavailable_requests=1)
    visit = await visited()
    assert (visit.ending, visit.attempts) == (Ending.DONE, 2)
    assert [refusal.kind for refusal in visit.refusals] == ["503 Service Unavailable"]
    assert visit.attempt_began_at >= 0.375


async def test_who_is_refused_three_times_goes(visited, server):
    server.set_faults(unavailable_requests=9)
    visit = await visited()
    assert (visit.ending, visit.attempts, len(visit.refusals)) == (Ending.REFUSED, 3, 3)


async def test_an_error_inside_the_stream_is_not_tried_again(visited, server):
    server.set_faults(stream_error_after_tokens=3)
    visit = await visited()
    assert (visit.ending, visit.attempts, len(visit.token_times)) == (Ending.BROKEN, 1, 3)
    assert visit.refusals[0].is_in_stream


async def test_a_connection_that_is_reset_is_tried_again(visited, server):
    server.set_faults(reset_requests=1)
    visit = await visited()
    assert (visit.ending, visit.attempts, visit.refusals) == (Ending.DONE, 2, [])


async def test_who_waits_too_long_leaves(visited, server):
    server.set_faults(freeze=True)
    visit = await visited(patience_seconds=0.3)
    assert visit.ending is Ending.LEFT_WAITING
    assert 0.3 <= visit.ended_at < 5.0


async def test_a_server_that_is_not_there_is_no_answer():
    async with imitated("http://127.0.0.1:1", 20.0) as client:
        visit = await client.visit(replace(REQUEST, retries=0), 0.0)
    assert (visit.ending, visit.error, visit.attempts) == (Ending.NO_ANSWER, "ClientConnectorError", 1)
