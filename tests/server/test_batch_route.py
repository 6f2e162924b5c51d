"""`POST /v1/chat/completions/batch` through a whole gateway: one lease for all, and each conversation by itself."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest

from gateway.emulator.config import EmulatorConfig
from gateway.emulator.serve import running_emulator
from tests.support.live_gateway import MODEL, image, live_gateway, until
from tests.support.model_server import Patient, error_of, model_server, posts
from tests.support.pictures import data_url, encoded, picture

PATH = "/v1/chat/completions/batch"
PICTURE = image(data_url(encoded(picture(56, 84))))
SAYS = {"role": "assistant", "content": "I see."}


def asks(*content):
    return {"role": "user", "content": [{"type": "text", "text": c} if isinstance(c, str) else c for c in content]}


def batch(*conversations, **fields):
    return {"model": MODEL, "messages": list(conversations), "max_tokens": 4} | fields


@asynccontextmanager
async def between(**sections):
    async with model_server() as upstream, live_gateway(upstream.base_url, **sections) as gateway:
        await gateway.until_up()
        yield gateway, upstream


async def test_before_the_emulator_it_is_served_and_counted_as_a_whole():
    with running_emulator(EmulatorConfig.fast()) as emulator:
        async with live_gateway(emulator.base_url) as gateway:
            await gateway.until_up()
            answer = await gateway.http.post(PATH, json=batch([asks("a", PICTURE)], [asks("b")], [asks(PICTURE)]))
            line = await gateway.assert_ended("finished", status=200)
    assert len(answer.json()["choices"]) == 3
    assert answer.headers["x-gateway-visual-tokens"] == "16"
    assert (line["prompts"], line["answers"], line["actual_output_tokens"]) == (3, 3, 12)
    assert line["actual_prompt_tokens"] == answer.json()["usage"]["prompt_tokens"]


async def test_all_its_conversations_hold_places_of_one_lease():
    patient = Patient()
    async with model_server(patient) as upstream, live_gateway(upstream.base_url) as gateway:
        await gateway.until_up()
        asked = asyncio.create_task(gateway.http.post(PATH, json=batch([asks("a")], [asks("b")], [asks("c")])))
        await until(lambda: gateway.metrics("gateway_held").get('{resource="sequences"}') == 3)
        patient.may_answer.set()
        assert (await asked).status_code == 200
        await gateway.until_released()


async def test_more_than_run_together_are_refused_for_good():
    async with between(budget={"sequences": 2}) as (gateway, upstream):
        answer = await gateway.http.post(PATH, json=batch([asks("a")], [asks("b")], [asks("c")]))
        assert (answer.status_code, error_of(answer)["param"]) == (400, "messages")
        assert not posts(upstream)


async def test_no_picture_of_one_is_history_of_another():
    """Each has an old picture and keeps its own new one; counted together there would be four."""
    one = [asks("old", PICTURE), SAYS, asks("new", PICTURE)]
    history = {"mode": "always", "keep": 1, "grid": 1}
    async with between(history=history, images={"max_per_turn": 1}) as (gateway, upstream):
        answer = await gateway.http.post(PATH, json=batch([asks(PICTURE)], one, [asks("x"), SAYS, asks(PICTURE)]))
        line = await gateway.assert_ended("finished", status=200)
        sent = json.loads(posts(upstream)[0].body)["messages"]
    assert answer.headers["x-gateway-images"] == "1;trimmed"
    assert [PICTURE in message["content"] for each in sent for message in each if message["role"] == "user"] == [
        *(True, False, True),
        *(False, True),
    ]
    assert line["new_images"] == 3


@pytest.mark.parametrize("limit", [1, 2])
async def test_what_a_prompt_may_hold_is_asked_of_each(limit):
    async with between(images={"max_forwarded": limit}) as (gateway, _):
        answer = await gateway.http.post(PATH, json=batch([asks(PICTURE)], [asks(PICTURE, PICTURE)]))
        assert answer.status_code == (400 if limit == 1 else 200)
        if limit == 1:
            assert error_of(answer)["code"] == "too_many_images"


@pytest.mark.parametrize("rung", ["shrink", "history"])
async def test_under_pressure_it_is_brought_under_like_any_other(rung):
    words = {"shrink": {"preset": "thumbnail"}, "history": {"keep": 1}}
    rungs = {rung: {"enter": 0.01, "leave": 0.005} | words[rung]}
    large = image(data_url(encoded(picture(1600, 1200))))
    patient = Patient(then=_answer)
    async with (
        model_server(patient) as upstream,
        live_gateway(upstream.base_url, pressure=rungs, budget={"sequences": 8}) as gateway,
    ):
        await gateway.until_up()
        first = asyncio.create_task(gateway.chat("first", PICTURE))
        await until(lambda: gateway.metrics("gateway_held").get('{resource="sequences"}') == 1)
        asked = batch([asks("old", PICTURE), SAYS, asks(large)], [asks("x")], max_tokens=2)
        answer = await gateway.http.post(PATH, json=asked)
        patient.may_answer.set()
        await first
    assert answer.status_code == 200
    changed = answer.headers.get("x-gateway-images", "")
    assert changed.startswith("1;resized" if rung == "shrink" else "0;trimmed")


async def _answer(visit):
    await visit.answer("200 OK", b"{}", "content-type: application/json")
