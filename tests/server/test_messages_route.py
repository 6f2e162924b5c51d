"""`POST /v1/messages` through a whole gateway: what goes on, what comes back, and in whose words."""

import asyncio
import base64
import io
import json
from contextlib import asynccontextmanager

import pytest
from PIL import Image

from gateway.emulator.config import EmulatorConfig
from gateway.emulator.serve import running_emulator
from tests.support.live_gateway import MODEL, live_gateway, until
from tests.support.model_server import Patient, model_server, posts
from tests.support.pictures import encoded, picture

PATH = "/v1/messages"
COUNT = "/v1/messages/count_tokens"
FILE = encoded(picture(56, 84))
TURNED = encoded(picture(56, 28), "JPEG", orientation=6)
ANSWER = json.dumps(
    {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": "Yes."}],
        "model": MODEL,
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 30, "cache_read_input_tokens": 10, "output_tokens": 2},
    }
).encode()


def event(name, **fields):
    return (
        f"event: {name}\ndata: ".encode()
        + json.dumps({"type": name} | fields, separators=(",", ":")).encode()
        + b"\n\n"
    )


EVENTS = (
    event("message_start", message={"id": "msg_1", "usage": {"input_tokens": 40, "output_tokens": 0}}),
    event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
    event("content_block_delta", index=0, delta={"type": "text_delta", "text": "Ye"}),
    event("content_block_delta", index=0, delta={"type": "text_delta", "text": "s."}),
    event("content_block_stop", index=0),
    event("message_delta", delta={"stop_reason": "end_turn"}, usage={"input_tokens": 40, "output_tokens": 2}),
    event("message_stop"),
)
STREAM = b"".join(EVENTS)


async def answering(visit):
    if visit.path == COUNT:
        await visit.answer("200 OK", b'{"input_tokens": 40}', "content-type: application/json")
    elif json.loads(visit.body).get("stream"):
        await visit.stream_head()
        for each in EVENTS:
            await visit.chunk(each)
        await visit.write(b"0\r\n\r\n")
    else:
        await visit.answer("200 OK", ANSWER, "content-type: application/json")


def shown(file, media_type="image/png"):
    return {
        "type": "image",
        "source": {"type": "base64", "media_type": media_type, "data": base64.b64encode(file).decode()},
    }


def said(*content, **fields):
    blocks = [{"type": "text", "text": part} if isinstance(part, str) else part for part in content or ("Hello.",)]
    return {"model": MODEL, "max_tokens": 9, "messages": [{"role": "user", "content": blocks}]} | fields


def size_of(block):
    assert block["source"]["type"] == "base64"
    image = Image.open(io.BytesIO(base64.b64decode(block["source"]["data"])))
    assert image.get_format_mimetype() == block["source"]["media_type"]
    return image.size


def error_of(answer):
    assert answer.headers["content-type"] == "application/json"
    told = answer.json()
    assert (set(told), told["type"], set(told["error"])) == ({"type", "error"}, "error", {"type", "message"})
    return told["error"]


@asynccontextmanager
async def between(script=answering, **sections):
    async with model_server(script) as upstream, live_gateway(upstream.base_url, **sections) as gateway:
        await gateway.until_up()
        yield gateway, upstream


class TestWhatGoesOn:
    async def test_nothing_that_needs_no_edit_changes(self):
        body = json.dumps(said("What?", shown(FILE)), indent=1).encode()
        async with between() as (gateway, upstream):
            answer = await gateway.http.post(PATH, content=body, headers={"content-type": "application/json"})
            assert (answer.status_code, answer.content) == (200, ANSWER)
            assert answer.headers["x-gateway-visual-tokens"] == "8"
            assert [visit.body for visit in posts(upstream)] == [body]
            line = await gateway.assert_ended("finished", status=200)
        assert (line["actual_prompt_tokens"], line["actual_output_tokens"], line["endpoint"]) == (40, 2, PATH)

    async def test_a_picture_that_lies_on_its_side_is_turned(self):
        async with between() as (gateway, upstream):
            answer = await gateway.http.post(PATH, json=said(shown(TURNED, "image/jpeg")))
            (visit,) = posts(upstream)
        [block] = json.loads(visit.body)["messages"][0]["content"]
        assert size_of(block) == (28, 56)
        assert answer.headers["x-gateway-images"] == "0;normalised;28x56"

    async def test_a_large_one_in_a_tools_result_is_made_smaller(self):
        result = {"type": "tool_result", "tool_use_id": "t", "content": [shown(encoded(picture(1600, 1200)))]}
        async with between(resize={"preset": "thumbnail"}) as (gateway, upstream):
            answer = await gateway.http.post(PATH, json=said(result))
            (visit,) = posts(upstream)
        [block] = json.loads(visit.body)["messages"][0]["content"][0]["content"]
        assert size_of(block) == (588, 420)
        assert answer.headers["x-gateway-images"].startswith("0;resized;1600x1200;588x420")

    async def test_old_pictures_give_way_to_words(self):
        turns = [{"role": "user", "content": [shown(FILE)]}, {"role": "assistant", "content": "I see."}] * 3
        history = {"mode": "always", "keep": 1, "grid": 1}
        async with between(history=history) as (gateway, upstream):
            answer = await gateway.http.post(PATH, json=said(messages=[*turns, {"role": "user", "content": "And?"}]))
            (visit,) = posts(upstream)
        sent = json.loads(visit.body)["messages"]
        marker = {"type": "text", "text": "[image removed to fit the context]"}
        assert [message["content"][0] for message in sent[:4:2]] == [marker] * 2
        assert sent[4]["content"] == [shown(FILE)]
        assert answer.headers["x-gateway-images"] == "0;trimmed, 1;trimmed"

    async def test_the_fallback_serves_and_has_fewer_tokens_to_say(self):
        """Under pressure: another model's name and a lower bound, both where vLLM reads them."""
        rungs = {
            "fallback": {"enter": 0.01, "leave": 0.005},
            "max_tokens": {"enter": 0.01, "leave": 0.005, "tokens": 5},
        }
        models = [
            {"name": MODEL, "family": "qwen2_5_vl", "fallback": "small"},
            {"name": "small", "family": "qwen2_5_vl"},
        ]
        patient = Patient(then=answering)
        async with (
            model_server(patient, models=(MODEL, "small")) as upstream,
            live_gateway(upstream.base_url, models=models, pressure=rungs, budget={"sequences": 4}) as gateway,
        ):
            await gateway.until_up()
            first = asyncio.create_task(gateway.chat("first"))
            await until(lambda: gateway.metrics("gateway_held").get('{resource="sequences"}') == 1)
            answer = await gateway.http.post(PATH, json=said("second"))
            patient.may_answer.set()
            await first
            sent = json.loads(posts(upstream)[-1].body)
        assert (sent["model"], sent["max_tokens"]) == ("small", 5)
        assert answer.headers["x-gateway-model"] == "small"
        assert answer.headers["x-gateway-pressure"] == "max_tokens;5, fallback"


class TestStreams:
    async def test_pass_as_they_come_and_are_understood(self):
        async with between() as (gateway, upstream):
            body = json.dumps(said(stream=True)).encode()
            answer = await gateway.http.post(PATH, content=body, headers={"content-type": "application/json"})
            assert answer.content == STREAM
            assert posts(upstream)[0].body == body
            line = await gateway.assert_ended("finished", status=200)
        assert (line["actual_prompt_tokens"], line["actual_output_tokens"]) == (40, 2)
        assert line["first_event_ms"] > 0

    async def test_one_that_breaks_off_ends_in_an_event_of_anthropics(self):
        async def broken(visit):
            await visit.stream_head()
            await visit.chunk(EVENTS[0] + EVENTS[1])
            visit.reset()

        async with between(broken) as (gateway, _):
            answer = await gateway.http.post(PATH, json=said(stream=True))
            await gateway.until_released()
        last = answer.content.removeprefix(EVENTS[0] + EVENTS[1])
        name, data = last.strip().split(b"\n")
        assert name == b"event: error"
        assert json.loads(data.removeprefix(b"data: "))["error"]["type"] == "api_error"
        assert b"[DONE]" not in last

    async def test_an_error_inside_is_one_of_the_server(self):
        async def failing(visit):
            await visit.stream_head()
            await visit.chunk(EVENTS[0])
            await visit.chunk(event("error", error={"type": "internal_error", "message": "it died"}))
            await visit.write(b"0\r\n\r\n")

        async with between(failing) as (gateway, _):
            await gateway.http.post(PATH, json=said(stream=True))
            await gateway.assert_ended("upstream_broke", status=200)

    @pytest.mark.parametrize("is_served", [True, False])
    async def test_who_waits_is_pinged_and_told_in_the_same_form(self, is_served):
        patient = Patient(then=answering)
        sections = {"streaming": {"keep_alive_after_seconds": 0.05}, "budget": {"sequences": 1}}
        queue = {"queue": {"wait_seconds": 30.0 if is_served else 0.4}}
        async with (
            model_server(patient) as upstream,
            live_gateway(upstream.base_url, **sections, **queue) as gateway,
        ):
            await gateway.until_up()
            first = asyncio.create_task(gateway.chat("first"))
            await until(lambda: gateway.metrics("gateway_held").get('{resource="sequences"}') == 1)
            request = gateway.http.build_request("POST", PATH, json=said(stream=True))
            answer = await gateway.http.send(request, stream=True)
            if is_served:
                patient.may_answer.set()
            told = await answer.aread()
            patient.may_answer.set()
            await first
            await gateway.until_released()
        assert (answer.status_code, told.startswith(event("ping").replace(b'":"', b'": "'))) == (200, True)
        if is_served:
            assert told.endswith(STREAM)
        else:
            assert told.rpartition(b"event: error\ndata: ")[2].startswith(
                b'{"type":"error","error":{"type":"overloaded_'
            )


class TestRefusals:
    @pytest.mark.parametrize(
        ("body", "kind", "word"),
        [
            (said(shown(b"GIF89a")), "invalid_request_error", "messages[0].content[0].source.data"),
            (said({"type": "document"}), "invalid_request_error", "messages[0].content[0]"),
            (said(max_tokens=None), "invalid_request_error", "max_tokens"),
            (said("x" * 5_000_000), "invalid_request_error", "maximum context length"),
        ],
    )
    async def test_what_the_gateway_refuses(self, body, kind, word):
        async with between() as (gateway, upstream):
            answer = await gateway.http.post(PATH, json=body)
            assert (answer.status_code, error_of(answer)["type"]) == (400, kind)
            assert word in error_of(answer)["message"]
            assert answer.headers["x-should-retry"] == "false"
            assert "x-gateway-reason" in answer.headers
            assert not posts(upstream)

    async def test_a_full_house_says_when_to_come_back(self):
        sections = {"budget": {"sequences": 1}, "queue": {"wait_seconds": 0.2}}
        patient = Patient()
        async with model_server(patient) as upstream, live_gateway(upstream.base_url, **sections) as gateway:
            await gateway.until_up()
            first = asyncio.create_task(gateway.chat("first"))
            await until(lambda: gateway.metrics("gateway_held").get('{resource="sequences"}') == 1)
            answer = await gateway.http.post(PATH, json=said())
            patient.may_answer.set()
            await first
        assert (answer.status_code, error_of(answer)["type"]) == (503, "overloaded_error")
        assert answer.headers["x-gateway-reason"] == "deadline_passed"

    async def test_an_error_of_the_server_passes_as_it_is(self):
        words = "At most 2 image(s) may be provided in one prompt."
        refusal = json.dumps({"type": "error", "error": {"type": "BadRequestError", "message": words}}).encode()

        async def refusing(visit):
            await visit.answer("400 Bad Request", refusal, "content-type: application/json")

        async with between(refusing) as (gateway, _):
            answer = await gateway.http.post(PATH, json=said(shown(FILE)))
            assert (answer.status_code, answer.content) == (400, refusal)
            engine = gateway.application._running.backends[0].models.engine
            assert engine.image_limit.value == 2, "and what it says is learned"


class TestCounts:
    async def test_sent_on_the_images_are_looked_at_all_the_same(self):
        async with between() as (gateway, upstream):
            answer = await gateway.http.post(COUNT, json=said("What?", shown(TURNED, "image/jpeg")))
            assert (answer.status_code, answer.json()) == (200, {"input_tokens": 40})
            assert answer.headers["x-gateway-images"] == "0;normalised;28x56"
            damaged = await gateway.http.post(COUNT, json=said(shown(b"\x89PNG")))
            assert (damaged.status_code, error_of(damaged)["type"]) == (400, "invalid_request_error")
            assert len(posts(upstream)) == 1
            assert not gateway.held()

    async def test_a_prompt_too_long_to_be_served_is_counted(self):
        async with between() as (gateway, _):
            assert (await gateway.http.post(COUNT, json=said("x" * 5_000_000))).status_code == 200


async def test_before_the_emulator_the_prediction_is_what_it_reports():
    with running_emulator(EmulatorConfig.fast(enable_prompt_tokens_details=True)) as emulator:
        async with live_gateway(emulator.base_url) as gateway:
            await gateway.until_up()
            for _ in range(2):  # the second time its prefix comes out of the cache
                answer = await gateway.http.post(PATH, json=said("a" * 300, shown(FILE)))
                usage = answer.json()["usage"]
            lines = await gateway.log(2)
    assert usage["cache_read_input_tokens"] > 0
    assert {line["actual_prompt_tokens"] for line in lines} == {sum(usage.values()) - usage["output_tokens"]}
