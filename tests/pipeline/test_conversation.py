"""A conversation that grows turn by turn: old pictures cost nothing again, and what vLLM has cached stays cached."""

import asyncio
import json
from itertools import pairwise

from gateway.emulator.config import EmulatorConfig
from gateway.emulator.serve import running_emulator
from tests.support.live_gateway import CHAT, MODEL, image, live_gateway, until
from tests.support.model_server import answer_chat, model_server, posts
from tests.support.pictures import data_url, encoded, picture

TURNED = [data_url(encoded(picture(56, 28, seed=n), "JPEG", orientation=6), "image/jpeg") for n in range(14)]
SOUND = [data_url(encoded(picture(56, 28, seed=n))) for n in range(14)]


def conversation(urls):
    """A question with a picture for each, every one but the last answered."""
    messages = []
    for number, url in enumerate(urls):
        messages += [
            {"role": "user", "content": [image(url), {"type": "text", "text": f"And number {number}?"}]},
            {"role": "assistant", "content": f"Number {number}."},
        ]
    return {"model": MODEL, "messages": messages[:-1]}


async def hold(urls, **sections):
    """Has the conversation turn by turn; returns what reached the model server at each, and the workers' counts."""
    async with model_server() as upstream, live_gateway(upstream.base_url, **sections) as gateway:
        for turn in range(1, len(urls) + 1):
            answer = await gateway.http.post(CHAT, json=conversation(urls[:turn]))
            assert answer.status_code == 200, answer.text
        await gateway.until_released()
        images = gateway.application._running.proxy._parts.images.statistics()
        return [visit.body for visit in posts(upstream)], images


async def test_a_picture_that_the_engine_has_answered_for_is_not_charged_again():
    """It still fills the prompt; only decoding and encoding are what the engine's caches spare."""
    may_answer = asyncio.Event()
    may_answer.set()
    charged = []

    async def patiently(visit):
        await may_answer.wait()
        await answer_chat(visit)

    async with (
        model_server(patiently) as upstream,
        live_gateway(upstream.base_url, budget={"kv_blocks": 1000, "encoder_tokens": 1000}) as gateway,
    ):
        await gateway.until_up()  # a server that comes up has empty caches, whatever was sent before
        for turn in (1, 1, 2):
            may_answer.clear()
            asked = asyncio.create_task(gateway.http.post(CHAT, json=conversation(SOUND[:turn]) | {"stream": True}))
            await until(lambda: gateway.held().get('{resource="sequences"}') == 1)
            charged.append(gateway.held().get('{resource="encoder_tokens"}', 0))
            assert gateway.held()['{resource="kv_blocks"}'] > 0
            may_answer.set()
            assert (await asked).status_code == 200
    assert charged == [6, 0, 6]  # 56x28 lies below the least area: the model makes 3x2 of it


async def test_each_picture_is_decoded_once():
    bodies, images = await hold(TURNED[:6])
    assert images.misses == 6
    assert images.hits == 0 + 1 + 2 + 3 + 4 + 5
    last = json.loads(bodies[-1])["messages"]
    first = json.loads(bodies[0])["messages"]
    assert last[0] == first[0]


async def test_what_was_written_anew_is_the_same_at_every_turn():
    bodies, _ = await hold(TURNED[:5])
    for earlier, later in pairwise(bodies):
        assert later.startswith(earlier.removesuffix(b"]}"))


async def test_what_is_kept_begins_the_same_for_as_many_turns_as_the_step_is_wide():
    """At most 6 pictures, by fours: 4 go with the 7th, 4 more with the 11th."""
    bodies, _ = await hold(SOUND[:13], images={"max_forwarded": 6})
    removed = [body.count(b"[image removed") for body in bodies]
    assert removed == [0] * 6 + [4] * 4 + [8] * 3
    steps = [turn for turn, (earlier, later) in enumerate(pairwise(removed), 2) if earlier != later]
    assert steps == [7, 11]
    for turn, (earlier, later) in enumerate(pairwise(bodies), 2):
        assert later.startswith(earlier.removesuffix(b"]}")) is (turn not in steps)


async def test_a_damaged_old_picture_ends_the_conversation_only_while_it_is_looked_at():
    damaged = data_url(encoded(picture(56, 28))[:-40])
    urls = [damaged, *SOUND[:6]]
    async with model_server() as upstream, live_gateway(upstream.base_url, images={"max_forwarded": 6}) as gateway:
        refused = await gateway.http.post(CHAT, json=conversation(urls[:6]))
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "messages[0].content[0].image_url.url")
        answer = await gateway.http.post(CHAT, json=conversation(urls))
        assert answer.status_code == 200, answer.text
        assert damaged.encode() not in posts(upstream)[0].body


async def test_what_does_not_fit_the_context_goes_by_the_step_too():
    """The emulator's own count of the prompt bears out that it fits now."""
    large = [data_url(encoded(picture(1120, 1120, seed=n), "JPEG", quality=30), "image/jpeg") for n in range(2)]
    urls = [large[n % 2] for n in range(25)]
    with running_emulator(EmulatorConfig.fast()) as emulator:
        async with live_gateway(emulator.base_url) as gateway:
            await gateway.until_up()
            answer = await gateway.http.post(CHAT, json=conversation(urls) | {"max_tokens": 5})
            assert answer.status_code == 200, answer.text
    assert answer.headers["x-gateway-images"].count("trimmed") == 8
    assert 32_768 - 4 * 1602 < answer.json()["usage"]["prompt_tokens"] + 1024 <= 32_768


async def test_a_share_of_the_request_is_that_of_the_images_that_stay():
    """Eleven with a sixteenth each do not fit, seven with an eighth do not, three with a quarter are as they came."""
    large = [data_url(encoded(picture(784, 784, seed=n), "JPEG", quality=30), "image/jpeg") for n in range(2)]
    body = conversation([large[n % 2] for n in range(11)])
    body["messages"][0]["content"].append({"type": "text", "text": "a" * 3 * 1000})
    sections = {"resize": {"max_tokens_per_request": 4096}, "budget": {"kv_blocks": 301}}
    async with model_server() as upstream, live_gateway(upstream.base_url, **sections) as gateway:
        await gateway.until_up()
        answer = await gateway.http.post(CHAT, json=body)
        assert answer.status_code == 200, answer.text
    assert answer.headers["x-gateway-images"] == ", ".join(f"{ordinal};trimmed" for ordinal in range(8))
