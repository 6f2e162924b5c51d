"""The Responses API through a live gateway, before an emulated server that stores its answers, with its own client."""

import asyncio
import json
from contextlib import asynccontextmanager
from hashlib import sha256

import openai
import pytest

from gateway.emulator.config import EmulatorConfig, StepCost
from gateway.emulator.serve import running_emulator
from tests.server.test_tenants import CLASSIFIES
from tests.support.live_gateway import MODEL, live_gateway, until
from tests.support.pictures import data_url, encoded, picture

RESPONSES = "/v1/responses"
STORING = EmulatorConfig.fast(enable_responses_store=True)
SLOW = EmulatorConfig.fast(enable_responses_store=True, step_cost=StepCost(0.01, 0.0, 0.0, 0.0))
ALL = {"responses": {"allow_previous": True, "allow_background": True}}
ANNA, BERT = {"authorization": "Bearer anna"}, {"authorization": "Bearer bert"}


@asynccontextmanager
async def between(config=STORING, **sections):
    with running_emulator(config) as server:
        async with live_gateway(server.base_url, **sections) as gateway:
            yield gateway, server


def shown(width=280, height=140, **fields):
    return {"type": "input_image", "image_url": data_url(encoded(picture(width, height)))} | fields


def said(*parts, role="user"):
    return {"role": role, "content": list(parts)}


def text(words="hi"):
    return {"type": "input_text", "text": words}


async def ask(gateway, request_input="hi", headers=ANNA, **fields):
    body = {"model": MODEL, "input": request_input, "max_output_tokens": 5} | fields
    return await gateway.http.post(RESPONSES, json=body, headers=headers)


def error_of(answer):
    return answer.json()["error"]


class TestAnAnswer:
    async def test_comes_as_vllm_gives_it_and_is_priced_as_vllm_counts_it(self):
        async with between() as (gateway, _):
            answer = await ask(gateway, [said(text(), shown())])
            (line,) = await gateway.log(1)
            await gateway.until_released()

        usage = answer.json()["usage"]
        assert (line["endpoint"], line["images"], line["visual_tokens"]) == (RESPONSES, 1, 52)
        assert (line["actual_prompt_tokens"], line["actual_output_tokens"]) == (usage["input_tokens"], 5)

    async def test_of_a_stream_comes_byte_for_byte_and_its_usage_is_booked(self):
        async with between() as (gateway, _):
            answer = await ask(gateway, [said(text(), shown())], stream=True)
            (line,) = await gateway.log(1)
            await gateway.until_released()

        *_, last = [json.loads(row[6:]) for row in answer.text.splitlines() if row.startswith("data: ")]
        usage = last["response"]["usage"]
        assert (last["type"], usage["output_tokens"]) == ("response.completed", 5)
        assert (line["actual_prompt_tokens"], line["actual_output_tokens"]) == (usage["input_tokens"], 5)
        assert line["first_event_ms"] is not None

    @pytest.mark.parametrize("kind", ["function_call_output", "custom_tool_call_output"])
    async def test_may_be_to_what_a_tool_has_seen(self, kind):
        result = {"type": kind, "call_id": "c", "output": [text("seen"), shown(4000, 3000, detail="auto")]}
        async with between(resize={"max_tokens_per_image": 100}) as (gateway, _):
            answer = await ask(gateway, [said(text("look")), result])

        assert answer.status_code == 200, answer.text
        assert answer.headers["x-gateway-images"].startswith("0;resized;4000x3000;")


class TestHistory:
    async def test_loses_its_oldest_images_and_says_so(self):
        turns = [said(text(), shown(28 * n, 28)) for n in range(2, 7)]
        turns.insert(4, {"role": "assistant", "content": "and?"})
        async with between(history={"mode": "always", "keep": 1, "grid": 2}) as (gateway, _):
            answer = await ask(gateway, turns)
            (line,) = await gateway.log(1)

        assert answer.status_code == 200, answer.text
        assert line["actual_prompt_tokens"] == answer.json()["usage"]["input_tokens"]
        assert "trimmed" in answer.headers["x-gateway-images"]


class TestWhatCannotBeSeen:
    async def test_is_refused_with_the_setting_that_lets_it_in(self):
        async with between() as (gateway, _):
            previous = await ask(gateway, previous_response_id="resp_1")
            background = await ask(gateway, background=True)
            line, _ = await gateway.log(2)

        assert (previous.status_code, error_of(previous)["param"]) == (400, "previous_response_id")
        assert "responses.allow_previous" in error_of(previous)["message"]
        assert (background.status_code, error_of(background)["param"]) == (400, "background")
        assert "responses.allow_background" in error_of(background)["message"]
        assert line["reason"] == "bad_request"

    async def test_is_reserved_the_whole_context_where_it_is_let_in(self):
        async with between(**ALL) as (gateway, _):
            first = (await ask(gateway, [said(shown())])).json()
            second = await ask(gateway, "and now?", previous_response_id=first["id"])
            _, line = await gateway.log(2)

        assert second.json()["usage"]["input_tokens"] > first["usage"]["input_tokens"]
        assert line["prompt_tokens"] + line["output_tokens"] == STORING.max_model_len

    async def test_is_not_found_where_it_is_another_tenants(self):
        async with between(**ALL) as (gateway, _):
            first = (await ask(gateway)).json()
            stolen = await ask(gateway, previous_response_id=first["id"], headers=BERT)

        assert (stolen.status_code, error_of(stolen)["param"]) == (404, "previous_response_id")


class TestStoredAnswers:
    async def test_are_told_to_whom_they_were_given_and_to_nobody_else(self):
        async with between() as (gateway, _):
            answers = [(await ask(gateway)).json(), await streamed_answer(gateway)]
            for answer in answers:
                path = f"{RESPONSES}/{answer['id']}"
                again = await gateway.http.get(path, headers=ANNA)
                others = [await gateway.http.get(path, headers=BERT), await gateway.http.get(path)]
                others.append(await gateway.http.post(f"{path}/cancel", headers=BERT))
                assert again.json() == answer
                assert [each.status_code for each in others] == [404] * 3
                assert error_of(others[0])["message"] == f"Response with id '{answer['id']}' not found."

    async def test_of_a_tenant_with_two_keys_are_told_to_both(self):
        keys = [{"authorization": f"Bearer sk-{n}"} for n in (1, 2)]
        digests = [hashed(key) for key in keys]
        async with between(tenants=[{"name": "one", "key_sha256": digests}], keys=CLASSIFIES) as (gateway, _):
            answer = (await ask(gateway, headers=keys[0])).json()
            again = await gateway.http.get(f"{RESPONSES}/{answer['id']}", headers=keys[1])
            stranger = await gateway.http.get(f"{RESPONSES}/{answer['id']}", headers=ANNA)

        assert (again.status_code, stranger.status_code) == (200, 404)

    async def test_that_were_not_to_be_stored_are_not_found(self):
        async with between() as (gateway, _):
            answer = (await ask(gateway, store=False)).json()

            assert (await gateway.http.get(f"{RESPONSES}/{answer['id']}", headers=ANNA)).status_code == 404

    async def test_answer_one_method_each(self):
        async with between() as (gateway, _):
            deleted = await gateway.http.delete(f"{RESPONSES}/resp_1")
            gotten = await gateway.http.get(f"{RESPONSES}/resp_1/cancel")

        assert (deleted.status_code, deleted.headers["allow"]) == (405, "GET")
        assert (gotten.status_code, gotten.headers["allow"]) == (405, "POST")

    async def test_cannot_be_overwritten_by_a_client_that_names_its_own(self):
        async with between() as (gateway, _):
            answer = (await ask(gateway)).json()
            named = await ask(gateway, request_id=answer["id"], headers=BERT)

        assert (named.status_code, error_of(named)["param"]) == (400, "request_id")


async def streamed_answer(gateway):
    answer = await ask(gateway, stream=True)
    *_, last = [json.loads(row[6:]) for row in answer.text.splitlines() if row.startswith("data: ")]
    return last["response"]


def hashed(key):
    return sha256(key["authorization"].removeprefix("Bearer ").encode()).hexdigest()


class TestAnAnswerInTheBackground:
    async def test_holds_its_places_until_it_is_done(self):
        async with between(SLOW, **ALL) as (gateway, _):
            queued = (await ask(gateway, background=True, max_output_tokens=60)).json()
            held = gateway.held()
            await gateway.until_released()
            done = (await gateway.http.get(f"{RESPONSES}/{queued['id']}", headers=ANNA)).json()

        assert held['{resource="sequences"}'] == 1
        assert (queued["status"], done["status"]) == ("queued", "incomplete")

    async def test_is_inside_for_its_tenant_too(self):
        tenants = [{"name": "default", "quota": {"concurrent_requests": 1}}]
        async with between(SLOW, tenants=tenants, **ALL) as (gateway, _):
            queued = (await ask(gateway, background=True, max_output_tokens=5000)).json()
            refused = await ask(gateway, background=True)
            await gateway.http.post(f"{RESPONSES}/{queued['id']}/cancel", headers=ANNA)
            await gateway.until_released()
            answered = await ask(gateway)

        assert (refused.status_code, refused.headers["x-gateway-reason"]) == (429, "tenant_concurrency")
        assert answered.status_code == 200

    async def test_gives_them_back_when_it_is_cancelled(self):
        async with between(SLOW, **ALL) as (gateway, server):
            queued = (await ask(gateway, background=True, max_output_tokens=5000)).json()
            cancelled = await gateway.http.post(f"{RESPONSES}/{queued['id']}/cancel", headers=ANNA)
            await gateway.until_released()

            assert cancelled.json()["status"] == "cancelled"
            assert server.statistics().running == 0

    async def test_of_a_stream_whose_client_leaves_goes_on_and_can_be_followed_again(self):
        async with between(SLOW, **ALL) as (gateway, _):
            body = {"model": MODEL, "input": "hi", "max_output_tokens": 60, "background": True, "stream": True}
            async with gateway.http.stream("POST", RESPONSES, json=body, headers=ANNA) as answer:
                head = await anext(answer.aiter_text())
            await until(lambda: bool(gateway.ended()))
            held = gateway.held()
            path = f"{RESPONSES}/{json.loads(head.split('data: ')[1].splitlines()[0])['response']['id']}"
            again = await gateway.http.get(f"{path}?stream=true&starting_after=3", headers=ANNA)
            await gateway.until_released()

        assert held['{resource="sequences"}'] == 1
        assert again.text.startswith("event: response.output_text.delta")
        assert again.text.rstrip().splitlines()[-2] == "event: response.completed"


@asynccontextmanager
async def client_of(gateway, key="anna"):
    async with openai.AsyncOpenAI(
        base_url=f"http://{gateway.host}:{gateway.port}/v1", api_key=key, max_retries=0, timeout=30
    ) as client:
        yield client


class TestOpenAIsOwnClient:
    async def test_creates_streams_retrieves_and_cancels(self):
        items = [said(text(), shown(detail="auto"))]
        async with between(SLOW, **ALL) as (gateway, _), client_of(gateway) as client, client_of(gateway, "b") as other:
            answer = await client.responses.create(model=MODEL, input=items, max_output_tokens=3)
            stream = await client.responses.create(model=MODEL, input="hi", max_output_tokens=3, stream=True)
            events = [event async for event in stream]
            again = await client.responses.retrieve(answer.id)
            queued = await client.responses.create(model=MODEL, input="hi", max_output_tokens=5000, background=True)
            with pytest.raises(openai.NotFoundError):
                await other.responses.cancel(queued.id)
            cancelled = await client.responses.cancel(queued.id)
            await gateway.until_released()

        assert answer.usage.output_tokens == 3
        assert again.output_text == answer.output_text
        assert "".join(each.delta for each in events if each.type == "response.output_text.delta")
        assert events[-1].response.usage.output_tokens == 3
        assert cancelled.status == "cancelled"

    async def test_is_told_why_not(self):
        async with between() as (gateway, _), client_of(gateway) as client:
            with pytest.raises(openai.BadRequestError) as refusal:
                await client.responses.create(model=MODEL, input="hi", previous_response_id="resp_1")

        assert refusal.value.param == "previous_response_id"

    async def test_is_told_of_what_breaks_inside_a_stream(self):
        async with between() as (gateway, server), client_of(gateway) as client:
            server.set_faults(stream_error_after_tokens=2)
            stream = await client.responses.create(model=MODEL, input="hi", stream=True)
            told = await told_by(stream)
            (line,) = await gateway.log(1)

        assert "gave no whole answer" in told
        assert line["outcome"] == "upstream_broke"

    async def test_is_told_of_a_refusal_inside_a_stream_that_had_to_wait(self):
        sections = {"budget": {"sequences": 1}, "queue": {"wait_seconds": 2.0}}
        streaming = {"keep_alive_after_seconds": 1, "keep_alive_every_seconds": 1}
        async with between(SLOW, streaming=streaming, **sections) as (gateway, _), client_of(gateway) as client:
            first = asyncio.create_task(ask(gateway, max_output_tokens=400))
            await until(lambda: gateway.held().get('{resource="sequences"}') == 1)
            stream = await client.responses.create(model=MODEL, input="hi", stream=True)
            told = await told_by(stream)
            await first

        assert "waited" in told


async def told_by(stream):
    """The words of the error, whether the client raises them or hands them out as an event."""
    try:
        *_, last = [event async for event in stream]
    except openai.APIError as error:
        return error.message
    assert last.type == "error"
    return last.message


async def test_shadow_mode_refuses_nothing_and_says_what_it_would():
    async with between(mode="shadow") as (gateway, _):
        answer = await ask(gateway, [said(text(), shown())])
        refused = await ask(gateway, previous_response_id=answer.json()["id"])
        again = await gateway.http.get(f"{RESPONSES}/{answer.json()['id']}", headers=BERT)

    assert [each.status_code for each in (answer, refused, again)] == [200, 200, 200]
    assert refused.headers["x-gateway-shadow"].startswith("refused")


async def test_a_preflight_tells_what_would_become_of_it():
    async with between() as (gateway, _):
        await until(lambda: gateway.metrics("gateway_upstream_up"))
        body = {"model": MODEL, "input": [said(text(), shown())]}
        told = (await gateway.http.post("/gateway/preflight", json=body)).json()
        refused = (await gateway.http.post("/gateway/preflight", json=body | {"background": True})).json()

    assert (told["verdict"], told["tokens"]["visual"]) == ("admitted", 52)
    assert (refused["verdict"], refused["error"]["param"]) == ("refused", "background")


async def test_what_goes_on_goes_to_the_server_that_has_the_history():
    with running_emulator(STORING) as first, running_emulator(STORING) as second:
        servers = {"first": first.base_url, "second": second.base_url}
        async with live_gateway(servers, **ALL) as gateway:
            await until(lambda: len(gateway.metrics("gateway_upstream_up")) == 2)
            answers = [(await ask(gateway, [said(shown(28 * n, 56))])).json() for n in range(2, 10)]
            lines = await gateway.log(8)
            again = [await gateway.http.get(f"{RESPONSES}/{each['id']}", headers=ANNA) for each in answers]
            behind = [await ask(gateway, "and?", previous_response_id=each["id"]) for each in answers]
            second.set_faults(unavailable_requests=8)
            first.set_faults(unavailable_requests=8)
            busy = await ask(gateway, "and?", previous_response_id=answers[0]["id"])

    assert {line["upstream"] for line in lines} == {"first", "second"}
    assert [each.status_code for each in again + behind] == [200] * 16
    assert busy.status_code == 503
