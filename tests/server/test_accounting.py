"""What each request took of the engine, by kind of token: in the metrics and in its line, as the engine reports it."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest

from gateway.emulator.config import EmulatorConfig
from gateway.emulator.serve import running_emulator
from tests.support.live_gateway import MODEL, chat, image, live_gateway, until
from tests.support.model_server import EVENTS, model_server
from tests.support.pictures import data_url, encoded, picture
from tests.support.raw_client import raw_client

PHOTO = image(data_url(encoded(picture(224, 224))))
VISUAL = 64 + 2
TOKEN = EVENTS[0]


def counted(gateway, **labels):
    """Tokens by kind, or by kind and source."""
    kinds = {}
    for name, value in gateway.metrics("gateway_tokens_total").items():
        pairs = dict(pair.split("=") for pair in name.strip("{}").replace('"', "").split(","))
        if all(pairs[label] == wanted for label, wanted in labels.items()):
            kinds[pairs["kind"]] = kinds.get(pairs["kind"], 0) + int(value)
    return kinds


def answering(usage, status="200 OK"):
    """A server whose answers report this."""
    body = json.dumps({"choices": [], "model": MODEL, "usage": usage}).encode()

    async def script(visit):
        await visit.answer(status, body, "content-type: application/json")

    return script


@asynccontextmanager
async def between(script, **sections):
    async with model_server(script) as upstream, live_gateway(upstream.base_url, **sections) as gateway:
        await gateway.until_up()
        yield gateway


class TestReported:
    async def test_by_an_engine_that_tells_pictures_and_cache_apart(self):
        config = EmulatorConfig.fast(enable_prompt_tokens_details=True)
        with running_emulator(config) as emulator:
            async with live_gateway(emulator.base_url) as gateway:
                await gateway.until_up()
                for _ in range(2):
                    answer = await gateway.chat("What is it?", PHOTO, max_tokens=5)
                usage = answer.json()["usage"]
                lines = await gateway.log(2)
                await gateway.until_released()
                used = lines[1]["used"]
                assert used["visual"] == usage["prompt_tokens_details"]["multimodal_tokens"]["image"] + 2 == VISUAL
                assert used["text"] + used["visual"] == usage["prompt_tokens"]
                assert used["output"] == usage["completion_tokens"]
                assert used["cached"] == usage["prompt_tokens_details"]["cached_tokens"] > 0
                assert counted(gateway, source="reported", model=MODEL, tenant_class="default") == {
                    kind: sum(line["used"].get(kind, 0) for line in lines)
                    for kind in ("text", "visual", "output", "cached")
                }
                assert counted(gateway, source="estimated") == {}

    async def test_where_it_does_not_tell_pictures_have_their_price(self):
        async with between(answering({"prompt_tokens": 100, "completion_tokens": 3})) as gateway:
            await gateway.chat("What?", PHOTO)
            [line] = await gateway.log(1)
            assert line["used"] == {"text": 100 - VISUAL, "visual": VISUAL, "output": 3}

    async def test_pictures_never_take_more_than_the_prompt(self):
        async with between(answering({"prompt_tokens": 10, "completion_tokens": 3})) as gateway:
            await gateway.chat("What?", PHOTO)
            [line] = await gateway.log(1)
            assert line["used"] == {"visual": 10, "output": 3}

    async def test_of_an_unknown_family_they_are_what_the_text_leaves(self):
        usage = {"prompt_tokens": 1500, "completion_tokens": 3}
        async with between(answering(usage), models=[{"name": MODEL}]) as gateway:
            await gateway.chat("What?", PHOTO)
            [line] = await gateway.log(1)
            used = line["used"]
            assert used["text"] + used["visual"] == 1500
            assert 0 < used["text"] < 60

    async def test_text_alone_a_stream_and_embeddings(self):
        async def script(visit):
            details = {"cached_tokens": 16}
            usage = {"prompt_tokens": 40, "completion_tokens": 2, "prompt_tokens_details": details}
            if json.loads(visit.body).get("stream"):
                await visit.stream_head()
                for event in (TOKEN, b'data: {"choices":[],"usage":%s}\n\n' % json.dumps(usage).encode(), EVENTS[2]):
                    await visit.chunk(event)
                await visit.write(b"0\r\n\r\n")
            else:
                await answering({"prompt_tokens": 7})(visit)

        async with between(script) as gateway:
            await gateway.chat("Hello.", stream=True)
            await gateway.http.post("/v1/embeddings", json={"model": MODEL, "input": "Hello."})
            lines = await gateway.log(2)
            assert [line["used"] for line in lines] == [{"text": 40, "output": 2, "cached": 16}, {"text": 7}]

    async def test_videos_are_what_text_and_pictures_leave(self):
        clip = {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA"}}
        videos = {"per_request": 1, "tokens": 3000}
        script = answering({"prompt_tokens": 2000, "completion_tokens": 3})
        async with between(script, videos=videos) as gateway:
            assert (await gateway.chat("What?", PHOTO, clip)).status_code == 200
            [line] = await gateway.log(1)
            used = line["used"]
            assert used["visual"] == VISUAL
            assert used["text"] + used["visual"] + used["media"] == 2000
            assert used["media"] > 1800

    async def test_videos_beside_pictures_of_an_unknown_family_leave_the_text_its_own(self):
        clip = {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA"}}
        sections = {"videos": {"per_request": 1, "tokens": 3000}, "models": [{"name": MODEL}]}
        async with between(answering({"prompt_tokens": 2000, "completion_tokens": 3}), **sections) as gateway:
            assert (await gateway.chat("What?", PHOTO, clip)).status_code == 200
            [line] = await gateway.log(1)
            assert 0 < line["used"]["text"] < 60


class TestEstimated:
    async def test_a_client_that_leaves_a_stream_has_had_what_came_of_it(self):
        is_gone = asyncio.Event()

        async def script(visit):
            await visit.stream_head()
            for _ in range(5):
                await visit.chunk(TOKEN)
            await is_gone.wait()

        async with between(script) as gateway, raw_client(gateway.host, gateway.port) as client:
            body = json.dumps(chat("What?", PHOTO, stream=True)).encode()
            client.post(body)
            for _ in range(5):
                await client.reader.readuntil(TOKEN)
            client.hang_up()
            [line] = await gateway.log(1)
            is_gone.set()
            assert line["outcome"] == "client_left"
            used = line["used"]
            assert (used["is_estimate"], used["visual"], used["output"]) == (True, VISUAL, 5)
            assert used["text"] == line["prompt_tokens"] - VISUAL
            assert counted(gateway, source="estimated") == {"text": used["text"], "visual": VISUAL, "output": 5}
            assert counted(gateway, source="reported") == {}

    async def test_one_that_leaves_before_an_answer_in_one_piece(self):
        is_gone = asyncio.Event()
        has_come = asyncio.Event()

        async def script(visit):
            has_come.set()
            await is_gone.wait()

        async with between(script) as gateway:
            asking = asyncio.create_task(gateway.chat("Hello."))
            await has_come.wait()
            await until(lambda: gateway.metrics("gateway_upstream_requests_in_flight") == {"": 1})
            asking.cancel()
            [line] = await gateway.log(1)
            is_gone.set()
            assert (line["outcome"], line["used"]["is_estimate"]) == ("client_left", True)
            assert line["used"]["text"] == line["prompt_tokens"]

    async def test_a_stream_without_usage_is_counted_by_its_events(self):
        async def script(visit):
            await visit.stream_head()
            for event in (TOKEN, TOKEN, TOKEN, EVENTS[2]):
                await visit.chunk(event)
            await visit.write(b"0\r\n\r\n")

        async with between(script, upstream={"inject_usage": False}) as gateway:
            await gateway.chat("Hello.", stream=True)
            [line] = await gateway.log(1)
            assert line["used"] == {"text": line["prompt_tokens"], "output": 2, "is_estimate": True}

    async def test_a_whole_answer_without_usage_has_no_output_that_is_known(self):
        async with between(answering(None)) as gateway:
            await gateway.chat("Hello.")
            [line] = await gateway.log(1)
            assert line["used"] == {"text": line["prompt_tokens"], "is_estimate": True}

    async def test_what_a_broken_stream_reported_before_it_broke_is_no_estimate(self):
        async def script(visit):
            await visit.stream_head()
            usage = b'{"prompt_tokens":40,"completion_tokens":1}'
            await visit.chunk(b'data: {"choices":[{"index":0}],"usage":%s}\n\n' % usage)
            visit.writer.close()

        async with between(script) as gateway:
            await gateway.chat("Hello.", stream=True)
            [line] = await gateway.log(1)
            assert (line["outcome"], line["used"]) == ("upstream_broke", {"text": 40, "output": 1})


class TestNothing:
    @pytest.mark.parametrize("status", ["400 Bad Request", "500 Internal Server Error", "503 Service Unavailable"])
    async def test_of_a_request_that_the_engine_refused(self, status):
        async with between(answering(None, status)) as gateway:
            await gateway.chat("Hello.")
            [line] = await gateway.log(1)
            assert "used" not in line
            assert counted(gateway) == {}

    async def test_of_an_error_at_the_end_of_a_stream(self):
        async def script(visit):
            await visit.stream_head()
            await visit.chunk(b'data: {"error":{"message":"too long","code":400}}\n\ndata: [DONE]\n\n')
            await visit.write(b"0\r\n\r\n")

        async with between(script) as gateway:
            await gateway.chat("Hello.", stream=True)
            [line] = await gateway.log(1)
            assert "used" not in line

    async def test_of_what_the_gateway_refused_or_no_engine_worked_on(self):
        async with between(answering({"prompt_tokens": 5})) as gateway:
            assert (await gateway.chat("What?", image("data:image/png;base64,AAAA"))).status_code == 400
            assert (await gateway.http.post("/tokenize", json={"model": MODEL, "prompt": "x"})).status_code == 200
            lines = await gateway.log(2)
            assert not any("used" in line for line in lines)
            assert counted(gateway) == {}
