"""Steps of the story that need more than a model server that says yes: exact counts, names, the step from the queue."""

import json

import pytest

from gateway.emulator.config import EmulatorConfig
from gateway.emulator.serve import running_emulator
from tests.conformance import byte_model
from tests.support.live_gateway import CHAT, MODEL, chat, image, live_gateway, until
from tests.support.model_server import ANSWER, model_server, posts
from tests.support.pictures import data_url, encoded, picture

JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    """A model whose tokenizer and template are at hand."""
    folder = tmp_path_factory.mktemp("model")
    byte_model.write(folder)
    return {"name": MODEL, "folder": str(folder)}


@pytest.fixture(scope="module")
def emulator():
    with running_emulator(EmulatorConfig.fast(image_limit=2)) as running:
        yield running


@pytest.mark.parametrize("text", ["Hm?", "é" * 10_000], ids=["short", "long enough for a thread"])
async def test_the_prompt_is_counted_to_the_token(emulator, counted, text):
    photo = image(data_url(encoded(picture(300, 200))))
    async with live_gateway(emulator.base_url, models=[counted]) as gateway:
        answer = await gateway.chat(text, photo, max_tokens=3)
    assert int(answer.headers["x-gateway-prompt-tokens"]) == answer.json()["usage"]["prompt_tokens"]


async def test_markers_of_trimmed_images_are_counted_too(emulator, counted):
    turn = {"role": "user", "content": [image(data_url(encoded(picture(60, 60))))]}
    messages = [turn, {"role": "assistant", "content": "A."}] * 3 + [{"role": "user", "content": "So?"}]
    sections = {"models": [counted], "images": {"max_forwarded": 2}, "history": {"grid": 1}}
    async with live_gateway(emulator.base_url, **sections) as gateway:
        answer = await gateway.chat(messages=messages, max_tokens=3)
    assert answer.headers["x-gateway-images"] == "0;trimmed"
    assert int(answer.headers["x-gateway-prompt-tokens"]) == answer.json()["usage"]["prompt_tokens"]


@pytest.mark.parametrize("field", [b'"x":"\xff"', b'"x":1e999', b'"x":' + b"9" * 5000, b'"x\xff":1'])
async def test_a_field_that_only_vllm_reads_is_for_vllm_to_judge(counted, field):
    async def answer_anything(visit):
        await visit.answer("200 OK", ANSWER, "content-type: application/json")

    body = json.dumps(chat()).encode()[:-1] + b"," + field + b"}"
    async with model_server(answer_anything) as upstream, live_gateway(upstream.base_url, models=[counted]) as gateway:
        assert (await gateway.http.post(CHAT, content=body, headers=JSON)).status_code == 200
        assert posts(upstream)[0].body == body


async def test_a_guess_at_what_images_cost_refuses_nothing():
    """The family of a name that nobody knows is a guess. Its text is not: that could still hang the engine's queue."""
    dear = image(data_url(encoded(picture(1000, 1000), "JPEG"), "image/jpeg"))
    async with model_server() as upstream, live_gateway(upstream.base_url, budget={"kv_blocks": 10}) as gateway:
        await gateway.until_up()
        assert (await gateway.chat("What?", dear, model="unheard-of")).status_code == 200
        assert json.loads(posts(upstream)[-1].body)["messages"][0]["content"][1] == dear
        refused = await gateway.chat("x" * 600_000, model="unheard-of")
        assert refused.json()["error"]["code"] == "request_exceeds_budget"
        await gateway.until_released()
        outcomes = gateway.metrics("gateway_requests_total")
    assert outcomes == {
        f'{{endpoint="{CHAT}",model="other",outcome="finished"}}': 1,
        f'{{endpoint="{CHAT}",model="other",outcome="refused"}}': 1,
    }


async def test_a_guess_at_images_teaches_nothing_of_the_text():
    async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
        unknown = gateway.application._running.proxy._parts.models.served("unheard-of")
        await gateway.chat("x" * 500, image(data_url(encoded(picture(28, 28)))), model="unheard-of")
        await gateway.until_released()
        assert unknown.ratio.bytes_per_token == 3.0
        await gateway.chat("x" * 500, model="unheard-of")
        await gateway.until_released()
        assert unknown.ratio.bytes_per_token > 3.0


async def test_an_image_beyond_the_encoder_budget_is_shrunk_or_refused():
    photo = image(data_url(encoded(picture(560, 560))))
    for fit, status in (("shrink", 200), ("refuse", 400)):
        sections = {"budget": {"encoder_tokens": 100}, "resize": {"fit": fit}}
        async with model_server() as upstream, live_gateway(upstream.base_url, **sections) as gateway:
            await gateway.until_up()
            answer = await gateway.chat(photo)
            assert answer.status_code == status, answer.text
            await gateway.until_released()


async def test_several_damaged_images_end_with_one_error(monkeypatch):
    damaged = [image(data_url(encoded(picture(56, 56, seed=seed))[:-40])) for seed in range(3)]
    async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
        answer = await gateway.chat(*damaged)
        assert answer.json()["error"]["code"] == "image_parse_error"
        await until(lambda: not gateway.held())
        assert not posts(upstream)
