"""A server is asked how long its model's tokens are before it gets its first request."""

import asyncio
import json

import pytest

from gateway.domain.learning import LearnedLimit
from gateway.models.served import Engine, ModelTable
from gateway.pipeline.follow import list_models
from gateway.pipeline.text_sample import TextSampler
from gateway.upstream.pages import Page
from gateway.upstream.state import UpstreamModel, UpstreamState
from gateway.wire.text_sample import MORE_BYTES, SAMPLE, SHORT
from tests.support.live_gateway import MODEL, chat, live_gateway, until
from tests.support.model_server import answer_chat, model_server, posts

TEMPLATE_TOKENS, USUAL_TEMPLATE_TOKENS = 60, 13


def tokenizer(bytes_per_token):
    """`/tokenize` of a model with such tokens, whose template writes 60 of them; everything else is a chat."""

    async def answer(visit):
        if visit.path != "/tokenize":
            await answer_chat(visit)
            return
        (message,) = json.loads(visit.body)["messages"]
        count = TEMPLATE_TOKENS + -(-len(message["content"].encode()) // bytes_per_token)
        await visit.answer("200 OK", json.dumps({"count": count}).encode(), "content-type: application/json")

    return answer


def asked(upstream):
    return [json.loads(visit.body) for visit in posts(upstream) if visit.path == "/tokenize"]


def looks(upstream):
    """How often the upstream's metrics were read: once at each look at it."""
    return len([visit for visit in upstream.visits if visit.path == "/metrics"])


async def expected_tokens(gateway, text):
    """What the gateway takes a conversation with such a text to be."""
    answer = await gateway.http.post("/gateway/preflight", json=chat(text))
    return answer.json()["tokens"]["text"]["expected"]


async def until_told(gateway, upstream):
    await until(lambda: len(asked(upstream)) >= 2)
    await asyncio.sleep(0.05)  # the second answer is on its way


@pytest.mark.parametrize(("bytes_per_token", "bytes_counted"), [(1, 1.0), (2, 2.0), (4, 3.0)])
async def test_the_first_request_is_priced_by_its_tokenizer_unless_that_says_less_than_is_safe(
    bytes_per_token, bytes_counted
):
    async with (
        model_server(tokenizer(bytes_per_token)) as upstream,
        live_gateway(upstream.base_url, calibration="tokenize") as gateway,
    ):
        await until_told(gateway, upstream)
        tokens = await expected_tokens(gateway, "a" * 1_200)
    assert tokens == pytest.approx(1_200 / bytes_counted + TEMPLATE_TOKENS, rel=0.01)
    short, long = asked(upstream)[:2]
    assert (short["model"], long["model"]) == (MODEL, MODEL)
    assert (short["messages"][0]["content"], long["messages"][0]["content"]) == (SHORT, SAMPLE)
    assert len(SAMPLE) - 1 == MORE_BYTES


async def test_it_is_asked_once_and_never_where_calibration_is_off():
    async with model_server(tokenizer(1)) as upstream:
        async with live_gateway(upstream.base_url, calibration="off") as gateway:
            await gateway.until_up()
            await gateway.chat()
            assert not asked(upstream)
        async with live_gateway(upstream.base_url, calibration="tokenize") as gateway:
            await until(lambda: len([each for each in asked(upstream) if "image" not in str(each)]) >= 2)
            looks_before = looks(upstream)
            await gateway.chat()
            await until(lambda: looks(upstream) > looks_before + 3)
    texts = [each["messages"][0]["content"] for each in asked(upstream)]
    assert texts.count(SHORT) == texts.count(SAMPLE) == 1


@pytest.mark.parametrize("answer", [b"{}", b'{"count": -1}', b"not json", b'{"count": 5}'])
async def test_what_it_answers_can_do_no_harm(answer):
    async def odd(visit):
        if visit.path == "/tokenize":
            await visit.answer("200 OK", answer, "content-type: application/json")
        else:
            await answer_chat(visit)

    async with model_server(odd) as upstream, live_gateway(upstream.base_url, calibration="tokenize") as gateway:
        await until(lambda: len(asked(upstream)) >= 1)
        assert await expected_tokens(gateway, "a" * 1_200) == 400 + USUAL_TEMPLATE_TOKENS
        assert (await gateway.chat()).status_code == 200


async def test_a_server_without_that_route_and_one_that_says_nothing_are_left_alone():
    async def none(visit):
        if visit.path == "/tokenize":
            await visit.answer("404 Not Found")
        else:
            await answer_chat(visit)

    async with model_server(none) as upstream, live_gateway(upstream.base_url, calibration="tokenize") as gateway:
        await until(lambda: b"was not told: /tokenize answered 404" in gateway.log_text or bool(asked(upstream)))
        assert await expected_tokens(gateway, "a" * 1_200) == 400 + USUAL_TEMPLATE_TOKENS
        assert (await gateway.chat()).status_code == 200


async def test_adapters_are_not_asked_about_and_have_their_parents_tokenizer():
    asked_names = []

    class Tokenizer:
        async def post(self, _path, body):
            question = json.loads(body)
            asked_names.append(question["model"])
            return Page(200, json.dumps({"count": 1 + len(question["messages"][0]["content"])}).encode())

        async def close(self):
            pass

    table = ModelTable([], Engine(LearnedLimit(), LearnedLimit()))
    sampler = TextSampler(table, Tokenizer)

    async def see(*adapters):
        models = (UpstreamModel("m", 4096), *(UpstreamModel(name, None, "/adapters", "m") for name in adapters))
        list_models(table, models)
        sampler(UpstreamState(is_up=True, models=models))
        await sampler._task

    await see("early")
    await see("early", "late")
    assert asked_names == ["m", "m"]
    assert {table.served(name).ratio.bytes_per_token for name in ("m", "early", "late")} == {1.0}
