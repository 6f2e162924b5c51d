"""Answers that show nothing until their end hold more and more, as they would if they were streamed."""

import asyncio

import pytest

from gateway.domain.output import AnswerSpeed
from gateway.pipeline.unseen import grow_unseen
from tests.support.live_gateway import CHAT, MODEL, chat, live_gateway, until
from tests.support.model_server import answer_chat, model_server

BLOCKS = '{resource="kv_blocks"}'


class Slow:
    """Answers when the test says so."""

    def __init__(self):
        self.may_answer = asyncio.Event()

    async def __call__(self, visit):
        await self.may_answer.wait()
        await answer_chat(visit)


async def test_an_answer_that_takes_long_grows_until_it_can_be_no_longer(monkeypatch):
    monkeypatch.setattr(AnswerSpeed, "_PRIOR_TOKENS", 100_000.0 * AnswerSpeed._PRIOR_SECONDS)
    slow = Slow()
    async with (
        model_server(slow) as upstream,
        live_gateway(upstream.base_url, budget={"kv_blocks": 100_000}) as gateway,
    ):
        await gateway.until_up()
        ask = asyncio.create_task(gateway.chat(max_tokens=1024, n=2))
        await until(lambda: gateway.metrics("gateway_held").get(BLOCKS, 0) > 0)
        at_first = gateway.metrics("gateway_held")[BLOCKS]
        await until(lambda: gateway.metrics("gateway_held")[BLOCKS] == at_first + 2 * (1024 - 512) // 16)
        slow.may_answer.set()
        assert (await ask).status_code == 200
        await gateway.until_released()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, chat(max_tokens=100)),
        (CHAT, chat(stream=True)),
        ("/v1/embeddings", {"model": MODEL, "input": "x" * 1_000}),
    ],
    ids=["reserved whole", "streamed", "no answer to generate"],
)
async def test_others_do_not(path, body):
    slow = Slow()
    async with (
        model_server(slow) as upstream,
        live_gateway(upstream.base_url, budget={"kv_blocks": 100_000}) as gateway,
    ):
        await gateway.until_up()
        ask = asyncio.create_task(gateway.http.post(path, json=body))
        await until(lambda: gateway.metrics("gateway_held").get(BLOCKS, 0) > 0)
        at_first = gateway.metrics("gateway_held")[BLOCKS]
        parts = gateway.application._running.proxy._parts
        (backend,) = parts.backends
        grow_unseen(backend.unseen.values(), parts.clock() + 1_000.0)
        assert gateway.metrics("gateway_held")[BLOCKS] == at_first
        slow.may_answer.set()
        assert (await ask).status_code == 200
        await gateway.until_released()
        assert not backend.unseen


async def test_the_speed_is_learned_from_whole_answers():
    async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
        await gateway.until_up()
        model = gateway.application._running.proxy._parts.backends[0].models.served("tiny")
        before = model.speed.tokens_per_second
        await gateway.chat()
        await gateway.until_released()
        (line,) = await gateway.log(1)
    seen = line["actual_output_tokens"] / line["total_ms"] * 1000
    # On a machine that stands still just then the answer may be slower than what was assumed.
    assert before < model.speed.tokens_per_second < seen or seen < model.speed.tokens_per_second < before
