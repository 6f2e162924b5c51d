"""A model server that turns requests away: others wait for it, and none of it is taken for a broken server."""

import asyncio

import pytest

from gateway.emulator.config import EmulatorConfig, StepCost
from gateway.emulator.serve import running_emulator
from tests.support.clock import FakeClock
from tests.support.live_gateway import live_gateway, until
from tests.support.model_server import answer_chat, model_server, posts


@pytest.fixture
def clock():
    return FakeClock()


def turning_away(times, status, *headers):
    """The first chats get this status, the others an answer."""
    left = [times]

    async def script(visit):
        if visit.path.endswith("completions") and left[0]:
            left[0] -= 1
            await visit.answer(status, b'{"error":{"message":"overloaded"}}', *headers)
        else:
            await answer_chat(visit)

    return script


async def test_those_behind_one_that_was_turned_away_wait_and_are_served(stack, clock):
    server = await stack.enter_async_context(model_server(turning_away(1, "503 Service Unavailable")))
    gateway = await stack.enter_async_context(live_gateway(server.base_url, clock=clock))
    assert (await gateway.chat()).status_code == 503
    assert gateway.metrics()["admission_pause_seconds"] == pytest.approx(1.0)
    later = [asyncio.create_task(gateway.chat()) for _ in range(5)]
    await until(lambda: gateway.metrics("gateway_queue_depth") == {"": 5})
    while not all(each.done() for each in later):
        clock.advance(0.1)
        await asyncio.sleep(0.01)
    answers = [await each for each in later]
    assert [answer.status_code for answer in answers] == [200] * 5
    assert all(float(answer.headers["x-gateway-queue-ms"]) >= 990 for answer in answers)
    await gateway.until_released()
    assert gateway.ended() == {"upstream_refused": 1, "finished": 5}


async def test_the_time_that_the_server_names_is_kept(stack, clock):
    server = await stack.enter_async_context(
        model_server(turning_away(1, "429 Too Many Requests", "retry-after-ms: 200"))
    )
    gateway = await stack.enter_async_context(live_gateway(server.base_url, clock=clock))
    refused = await gateway.chat()
    assert (refused.status_code, refused.headers["retry-after-ms"]) == (429, "200")
    assert gateway.metrics()["admission_pause_seconds"] == pytest.approx(0.2)
    later = asyncio.create_task(gateway.chat())
    await until(lambda: gateway.metrics("gateway_queue_depth") == {"": 1})
    clock.advance(0.19)
    assert gateway.metrics("gateway_queue_depth") == {"": 1}
    clock.advance(0.02)
    answer = await later
    assert answer.status_code == 200
    assert int(answer.headers["x-gateway-queue-ms"]) == pytest.approx(200, abs=10)


@pytest.mark.parametrize(
    ("own_key", "paused"), [({"forward_client_key": True}, False), ({}, True), ({"api_key": "sk-ours"}, True)]
)
async def test_the_limit_of_one_clients_own_key_is_not_everybodys(stack, own_key, paused):
    server = await stack.enter_async_context(model_server(turning_away(1, "429 Too Many Requests", "retry-after: 9")))
    gateway = await stack.enter_async_context(live_gateway(server.base_url, upstream=own_key))
    assert (await gateway.chat(headers={"authorization": "Bearer sk-greedy"})).status_code == 429
    assert ("admission_pause_seconds" in gateway.metrics()) is paused


async def test_without_a_queue_the_refusal_says_when_the_pause_ends(stack):
    server = await stack.enter_async_context(model_server(turning_away(1, "503 Service Unavailable", "retry-after: 7")))
    gateway = await stack.enter_async_context(live_gateway(server.base_url, queue={"requests": 0}))
    await gateway.chat()
    refused = await gateway.chat()
    assert (refused.status_code, refused.headers["x-gateway-reason"]) == (503, "upstream_backpressure")
    assert 6 <= int(refused.headers["retry-after"]) <= 10  # some jitter beyond the 7
    assert len(posts(server)) == 1


async def test_a_server_with_a_limit_of_its_own_is_known_after_one_burst(stack):
    """`--max-num-queued-reqs 4`: of thirty at once the rest is turned away, of the next thirty next to nobody."""
    config = EmulatorConfig.fast(max_num_queued_reqs=4, step_cost=StepCost(0.01, 0.0, 0.0, 0.0))
    with running_emulator(config) as emulator:
        gateway = await stack.enter_async_context(live_gateway(emulator.base_url, upstream={"poll_seconds": 0.5}))
        await gateway.until_up()
        refusals = []
        for _ in range(2):
            answers = await asyncio.gather(*(gateway.chat("Hello.", max_tokens=20) for _ in range(30)))
            refusals.append(sum(answer.status_code == 503 for answer in answers))
            await gateway.until_released()
        await until(lambda: gateway.metrics()['capacity{resource="sequences"}'] == 4)
    assert refusals[0] >= 20
    assert refusals[1] <= 2
