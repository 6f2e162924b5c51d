"""What a request's log line says for `vlm-gateway replay`, through a live gateway; and what no line ever says."""

import asyncio
import json
import time

from tests.support.live_gateway import CHAT, MODEL, image, live_gateway, until
from tests.support.model_server import answer_never, model_server, posts
from tests.support.pictures import data_url, encoded, picture

KEY = "sk-a-secret-of-the-client"
URL = data_url(encoded(picture(112, 84)))
OTHER = data_url(encoded(picture(56, 56, seed=7)))


def conversation(*turns):
    """Each turn a list of image URLs; all but the last have been answered."""
    messages = []
    for urls in turns:
        messages.append({"role": "user", "content": [{"type": "text", "text": "hush"}, *map(image, urls)]})
        messages.append({"role": "assistant", "content": "well"})
    return {"model": MODEL, "messages": messages[:-1], "max_tokens": 9, "priority": 5}


async def lines_of(*bodies, headers=None, **sections):
    """The lines of these requests, and the log as it was written."""
    async with model_server() as upstream, live_gateway(upstream.base_url, **sections) as gateway:
        await gateway.until_up()
        for body in bodies:
            assert (await gateway.http.post(CHAT, json=body, headers=headers)).status_code == 200
        return await gateway.log(len(bodies)), bytes(gateway.log_text)


class TestForReplay:
    async def test_arrival_price_and_limits(self):
        begun = time.time()
        (line,), _ = await lines_of(conversation([]), budget={"kv_blocks": 1000, "sequences": 7})
        assert begun - 0.1 <= line["arrived"] <= time.time()
        assert 0 <= line["offered_ms"] <= line["total_ms"]
        assert (line["max_tokens"], line["asked_priority"], line["priority"]) == (9, "batch", "batch")
        lower, expected, upper = line["text_tokens"]
        assert lower <= expected <= upper
        context, kv_blocks, *_ = line["limits"]
        assert (context, kv_blocks) == (32_768, 1000)
        assert line["capacity"][1] == 7

    async def test_a_text_says_nothing_of_images(self):
        (line,), _ = await lines_of(conversation([]))
        assert not {"pictures", "new_images", "text_bytes", "messages"} & line.keys()

    async def test_pictures_by_number_hash_format_size_and_price(self):
        (line,), _ = await lines_of(conversation([URL], [OTHER, URL]))
        first, other, again = line["pictures"]
        assert first[1:] == ["png", 112, 84, 12, False]
        assert other[1:4] == ["png", 56, 56]
        assert again[0] == first[0] != other[0]
        assert len(first[0]) == 12
        assert (line["images"], line["new_images"], line["messages"]) == (3, 2, 3)

    async def test_what_was_left_out_unseen_has_its_place(self):
        (line,), _ = await lines_of(conversation([URL, URL], [OTHER]), history={"mode": "always", "keep": 1, "grid": 1})
        assert line["pictures"][:2] == [None, None]
        assert line["pictures"][2][2:4] == [56, 56]

    async def test_pictures_that_nobody_decodes_have_no_hash(self):
        (line,), _ = await lines_of(conversation([URL]), images={"verify": "header"})
        assert line["pictures"][0][:2] == [None, "png"]

    async def test_what_the_client_wants(self):
        headers = {"x-gateway-resize": "ocr", "x-stainless-retry-count": "1", "x-gateway-deadline-ms": "9000"}
        (line,), _ = await lines_of(conversation([URL]), headers=headers)
        assert (line["asked_resize"], line["is_return"], line["deadline_ms"]) == ("ocr", True, 9000.0)

    async def test_a_word_that_is_no_size_is_not_written_down(self):
        async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
            body = conversation([URL])
            await gateway.http.post(CHAT, json=body, headers={"x-gateway-resize": "my words"})
            (line,) = await gateway.log(1)
        assert (line["code"], "asked_resize" in line) == ("invalid_request", False)


class TestTenants:
    async def test_are_told_apart_without_their_keys(self):
        async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
            for key in ("sk-a", "sk-b", "sk-a"):
                await gateway.chat(headers={"authorization": f"Bearer {key}"})
            await gateway.chat()
            ids = [line.get("tenant_id") for line in await gateway.log(4)]
        assert ids[0] == ids[2] != ids[1]
        assert ids[3] is None

    async def test_one_with_a_name_has_that_alone(self):
        digest = "8879f6a4ae35c420a15d35fed3b8dd07577207803d404f6d4cc4fa829dafa910"
        tenants = [{"name": "team-a", "key_sha256": [digest]}]
        headers = {"authorization": "Bearer sk-team-a"}
        (line,), _ = await lines_of(conversation([]), headers=headers, tenants=tenants)
        assert (line["tenant"], "tenant_id" in line) == ("team-a", False)


async def test_no_word_no_picture_and_no_key_is_in_it():
    _, text = await lines_of(conversation([URL], [OTHER]), headers={"authorization": f"Bearer {KEY}"})
    for secret in (b"hush", b"well", KEY.encode(), URL[30:60].encode(), OTHER[30:60].encode()):
        assert secret not in text
    assert json.loads(text)["tenant_id"] not in KEY


async def test_the_line_of_a_text_stays_short():
    """A day of a hundred thousand of them is below 100 MB."""
    _, text = await lines_of(conversation([]), headers={"authorization": f"Bearer {KEY}"})
    assert len(text) < 900


async def test_who_is_refused_at_the_door_has_the_length_that_was_announced():
    """It is all that tells what it would have cost."""
    full = {"budget": {"sequences": 1}, "queue": {"requests": 1}}
    async with model_server(answer_never) as upstream, live_gateway(upstream.base_url, **full) as gateway:
        tasks = [asyncio.create_task(gateway.chat()) for _ in range(2)]
        await until(lambda: gateway.metrics("gateway_queue_depth") == {"": 1})
        body = json.dumps(conversation([URL])).encode()
        answer = await gateway.http.post(CHAT, content=body, headers={"content-type": "application/json"})
        assert answer.status_code == 429
        (line,) = await gateway.log(1)
        assert (line["body_bytes"], "text_tokens" in line) == (len(body), False)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await gateway.until_released()


async def test_who_was_refused_after_it_was_read_has_the_server_that_had_no_place():
    async with model_server(answer_never) as upstream:
        narrow = {"budget": {"sequences": 1}, "queue": {"requests": 0}}
        async with live_gateway({"left": upstream.base_url}, **narrow) as gateway:
            task = asyncio.create_task(gateway.chat())
            await until(lambda: len(posts(upstream)) == 1)
            assert (await gateway.chat()).status_code == 429
            (line,) = await gateway.log(1)
            assert (line["upstream"], "text_tokens" in line) == ("left", True)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
