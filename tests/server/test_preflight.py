"""`POST /gateway/preflight`: what would become of a request, without sending it."""

import asyncio
import gzip
import json
from contextlib import AsyncExitStack

import pytest

from tests.support.clock import FakeClock
from tests.support.live_gateway import CHAT, chat, image, live_gateway, until
from tests.support.model_server import Patient, error_of, model_server, posts
from tests.support.pictures import data_url, encoded, picture

PREFLIGHT = "/gateway/preflight"


def photo(width, height, *, seed=0):
    return image(data_url(encoded(picture(width, height, seed=seed))))


def turns(*photos):
    told = [{"role": "user", "content": [one, {"type": "text", "text": "And this?"}]} for one in photos]
    answers = [{"role": "assistant", "content": "Yes."}] * len(told)
    return [message for pair in zip(told, answers, strict=True) for message in pair][:-1]


async def ask(gateway, body, **options):
    answer = await gateway.http.post(PREFLIGHT, json=body, **options)
    assert answer.status_code == 200, answer.text
    return answer.json()


def said_to_anthropic(url):
    source = {"type": "base64", "media_type": "image/png", "data": url.partition(",")[2]}
    return {
        "model": "tiny",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": [{"type": "image", "source": source}]}],
    }


def said_in_items(url):
    part = {"type": "input_image", "image_url": url, "detail": "auto"}
    return {"model": "tiny", "input": [{"type": "message", "role": "user", "content": [part]}]}


def ranked(url):
    return {"model": "tiny", "query": "a cat", "documents": [{"content": [image(url)]}]}


def embedded(url):
    return {"model": "tiny", "input_type": "search_document", "images": [url]}


class TestAdmitted:
    async def test_what_fits_now_with_its_cost_and_without_a_word_to_the_model(self):
        async with model_server() as upstream, live_gateway(upstream.base_url, budget={"kv_blocks": 1_000}) as gateway:
            await gateway.until_up()
            said = await ask(gateway, chat("What?", photo(560, 420), max_tokens=100))
            assert (said["verdict"], said["error"], said["culprit"], said["fits_with"]) == ("admitted", *[None] * 3)
            assert said["model"] == {
                "name": "tiny",
                "family": "qwen2_5_vl",
                "family_source": "setting",
                "max_model_len": 32_768,
            }
            [one] = said["images"]
            assert one["param"] == "messages[0].content[1].image_url.url"
            assert (one["action"], one["size"], one["sent_size"], one["model_size"]) == ("kept", *["560x420"] * 3)
            assert (one["tokens"], one["prompt_tokens"], one["encoder_tokens"]) == (300, 302, 300)
            assert (said["tokens"]["visual"], said["tokens"]["output_reserved"]) == (302, 100)
            assert said["amounts"]["encoder_tokens"] == 300
            assert said["kv_blocks_pool"] == 1_000
            assert said["memory"]["host"]["bytes"] > one["file_bytes"]
            assert not posts(upstream)
            await gateway.until_released()
            assert gateway.metrics("gateway_requests_total") == {
                f'{{endpoint="{PREFLIGHT}",model="tiny",outcome="finished"}}': 1
            }
            [line] = await gateway.log(1)
            assert (line["endpoint"], line["outcome"], line["status"]) == (PREFLIGHT, "finished", 200)
            assert "upstream_status" not in line

    async def test_the_prediction_is_what_the_request_then_costs(self):
        body = chat("What?", photo(900, 700), max_tokens=5)
        headers = {"x-gateway-resize": "thumbnail"}
        async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
            await gateway.until_up()
            said = await ask(gateway, body, headers=headers)
            served = await gateway.http.post(CHAT, json=body, headers=headers)
        assert said["images"][0]["action"] == "resized"
        assert said["tokens"]["visual"] == int(served.headers["x-gateway-visual-tokens"])
        assert said["tokens"]["prompt"]["expected"] == int(served.headers["x-gateway-prompt-tokens"])

    async def test_an_image_that_the_engine_knows_is_not_charged_again_and_asking_teaches_nothing(self):
        body = chat("What?", photo(560, 420), max_tokens=5)
        async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
            await gateway.until_up()
            for charged in (300, 300):
                assert (await ask(gateway, body))["amounts"]["encoder_tokens"] == charged
            assert (await gateway.http.post(CHAT, json=body)).status_code == 200
            await gateway.until_released()
            assert (await ask(gateway, body))["amounts"]["encoder_tokens"] == 0

    async def test_a_prompt_is_for_completions(self):
        async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
            await gateway.until_up()
            said = await ask(gateway, {"model": "tiny", "prompt": [[1, 2, 3], [4, 5]], "max_tokens": 8})
        assert said["tokens"]["prompt"] == {"lower": 5, "expected": 5, "upper": 5}
        assert said["amounts"]["sequences"] == 2

    @pytest.mark.parametrize(
        ("route", "body", "param"),
        [
            ("/v1/messages", said_to_anthropic, "messages[0].content[0].source.data"),
            ("/v1/responses", said_in_items, "input[0].content[0].image_url"),
            ("/rerank", ranked, "documents[0].content[0].image_url.url"),
            ("/v2/embed", embedded, "images[0]"),
        ],
    )
    async def test_each_route_is_read_as_its_own(self, route, body, param):
        async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
            await gateway.until_up()
            said = await ask(gateway, body(data_url(encoded(picture(560, 420)))), params={"route": route})
            assert said["verdict"] == "admitted", said["error"]
            assert [each["param"] for each in said["images"]] == [param]
            assert not posts(upstream)

    @pytest.mark.parametrize("route", ["", "/v1/message", "/sleep", "/v1/models", "/tokenize", "/gateway/preflight"])
    async def test_a_route_whose_bodies_are_not_priced_is_a_mistake(self, route):
        async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
            answer = await gateway.http.post(PREFLIGHT, params={"route": route}, json={})
            assert answer.status_code == 400
            assert error_of(answer)["param"] == "route"
            assert (
                "name one of /v1/chat/completions, /v1/chat/completions/batch, /v1/messages"
                in error_of(answer)["message"]
            )

    async def test_a_gzip_body(self):
        body = gzip.compress(json.dumps(chat("Hm?")).encode())
        headers = {"content-type": "application/json", "content-encoding": "gzip"}
        async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
            await gateway.until_up()
            answer = await gateway.http.post(PREFLIGHT, content=body, headers=headers)
        assert answer.json()["verdict"] == "admitted"


class TestWaiting:
    async def test_what_is_short_and_what_would_fit_beside_what_runs(self):
        patient = Patient()
        budget = {"kv_blocks": 80}
        async with model_server(patient) as upstream, live_gateway(upstream.base_url, budget=budget) as gateway:
            await gateway.until_up()
            running = asyncio.create_task(gateway.chat("x", max_tokens=800))
            await until(lambda: gateway.metrics("gateway_held").get('{resource="sequences"}') == 1)
            held = gateway.metrics("gateway_held")['{resource="kv_blocks"}']
            body = chat(photo(560, 420), max_tokens=640)
            said = await ask(gateway, body)
            assert (said["verdict"], said["ahead"], said["expected_wait_seconds"]) == ("waiting", 0, None)
            assert said["longest_wait_seconds"] == 30
            needed = said["amounts"]["kv_blocks"]
            assert said["culprit"] == {
                "resource": "kv_blocks",
                "param": None,
                "needed": needed,
                "available": 76 - held,
                "capacity": 76,
                "deficit": needed - 76 + held,
            }
            fits = said["fits_with"]
            smaller = photo(*map(int, fits["resize"][0]["size"].split("x")))
            for change in (chat(photo(560, 420), max_tokens=fits["max_tokens"]), chat(smaller, max_tokens=640)):
                assert (await ask(gateway, change))["verdict"] == "admitted", fits
            patient.may_answer.set()
            assert (await running).status_code == 200
            assert (await ask(gateway, body))["verdict"] == "admitted"
            await gateway.until_released()

    async def test_those_before_it_are_counted(self):
        patient = Patient()
        budget = {"sequences": 1}
        async with model_server(patient) as upstream, live_gateway(upstream.base_url, budget=budget) as gateway:
            await gateway.until_up()
            asked = [asyncio.create_task(gateway.chat("Hm?"))]
            await until(lambda: gateway.metrics("gateway_held").get('{resource="sequences"}') == 1)
            asked += [asyncio.create_task(gateway.chat("Hm?")) for _ in range(3)]
            await until(lambda: gateway.metrics("gateway_queue_depth") == {"": 3})
            said = await ask(gateway, chat("Hm?"))
            assert (said["verdict"], said["ahead"], said["culprit"]["resource"]) == ("waiting", 3, "sequences")
            assert gateway.metrics("gateway_queue_depth") == {"": 3}
            patient.may_answer.set()
            assert {(await one).status_code for one in asked} == {200}


class TestRefused:
    async def test_a_full_queue_with_the_headers_that_a_client_would_get(self):
        patient = Patient()
        sections = {"budget": {"sequences": 1}, "queue": {"requests": 1}, "server": {"overload_status": 503}}
        async with model_server(patient) as upstream, live_gateway(upstream.base_url, **sections) as gateway:
            await gateway.until_up()
            asked = [asyncio.create_task(gateway.chat("Hm?"))]
            await until(lambda: gateway.metrics("gateway_held").get('{resource="sequences"}') == 1)
            asked.append(asyncio.create_task(gateway.chat("Hm?")))
            await until(lambda: gateway.metrics("gateway_queue_depth") == {"": 1})
            said = await ask(gateway, chat("Hm?"))
            refused = await gateway.chat("Hm?")
            error = said["error"]
            assert said["verdict"] == "refused"
            assert (error["status"], error["reason"], error["code"]) == (503, "queue_full", "rate_limit_exceeded")
            assert error["message"] == refused.json()["error"]["message"]
            assert error["headers"] == {"retry-after": "60", "x-should-retry": "false"}
            assert gateway.rejected() == {"queue_full": 1}
            patient.may_answer.set()
            assert {(await one).status_code for one in asked} == {200}

    async def test_what_never_fits_and_what_would(self):
        sections = {"budget": {"kv_blocks": 50}, "resize": {"fit": "refuse"}, "history": {"mode": "off"}}
        photos = [photo(560, 420, seed=seed) for seed in range(4)]
        async with model_server() as upstream, live_gateway(upstream.base_url, **sections) as gateway:
            await gateway.until_up()
            body = chat(messages=turns(*photos))
            said = await ask(gateway, body)
            served = await gateway.http.post(CHAT, json=body)
            error = said["error"]
            assert {"code": error["code"], "message": error["message"], "param": error["param"]} == {
                name: value for name, value in error_of(served).items() if name != "type"
            }
            assert (said["verdict"], error["status"], error["reason"]) == ("refused", 400, "never_fits_kv")
            assert said["culprit"]["resource"] == "kv_blocks"
            assert said["culprit"]["deficit"] == said["culprit"]["needed"] - 50
            fits = said["fits_with"]
            assert fits["leave_out"]["images"] == fits["leave_out"]["turns"] == 2
            shrunk = [photo(*map(int, one["size"].split("x"))) for one in fits["resize"]]
            assert (await ask(gateway, chat(messages=turns(*shrunk))))["verdict"] == "admitted"
            assert (await ask(gateway, chat(messages=turns(*photos[2:]))))["verdict"] == "admitted"
            assert not posts(upstream)

    async def test_a_bad_request_is_an_answer_too(self):
        broken = image(data_url(b"%PDF-1.7"))
        async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
            await gateway.until_up()
            said = await ask(gateway, chat("What?", broken))
        assert (said["verdict"], said["error"]["status"]) == ("refused", 400)
        assert said["error"]["param"] == "messages[0].content[1].image_url.url"
        assert said["error"]["headers"] == {"x-should-retry": "false"}
        assert "tokens" not in said

    async def test_a_model_server_that_is_away(self):
        async with AsyncExitStack() as stack:
            upstream = await stack.enter_async_context(model_server())
            async with live_gateway(upstream.base_url) as gateway:
                await gateway.until_up()
                await stack.aclose()
                await until(lambda: not gateway.metrics("gateway_upstream_up"))
                said = await ask(gateway, chat("What?"))
        assert (said["error"]["status"], said["error"]["reason"]) == (503, "upstream_down")
        assert said["error"]["headers"] == {"retry-after": "5"}
        assert said["tokens"]["visual"] == 0


@pytest.mark.parametrize("body", [b"{", b"", b'{"model": "tiny"} x'])
async def test_what_is_no_json_is_no_request(body):
    async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
        answer = await gateway.http.post(PREFLIGHT, content=body, headers={"content-type": "application/json"})
        assert (answer.status_code, error_of(answer)["code"]) == (400, "invalid_json")
        await gateway.until_released()


@pytest.mark.parametrize("body", [b"[]", b"null", b"{}", b'{"messages": 1}', b'{"prompt": {}}'])
async def test_json_of_another_shape_would_be_refused(body):
    async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
        answer = await gateway.http.post(PREFLIGHT, content=body, headers={"content-type": "application/json"})
        assert answer.status_code == 200, answer.text
        assert answer.json()["error"]["code"] == "invalid_request"


async def test_what_cannot_be_looked_at_is_refused_as_any_upload():
    async with model_server() as upstream, live_gateway(upstream.base_url, server={"max_body_bytes": 100}) as gateway:
        assert (await gateway.http.post(PREFLIGHT, json=chat("x" * 200))).status_code == 413
        assert (await gateway.http.post(PREFLIGHT, content=b"x")).status_code == 400
        answer = await gateway.http.get(PREFLIGHT)
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


async def test_it_is_documented():
    async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
        await gateway.until_up()
        document = (await gateway.http.get("/openapi.json")).json()
        said = await ask(gateway, chat("What?", photo(28, 28)))
    schemas = document["components"]["schemas"]
    assert document["paths"][PREFLIGHT]["post"]["summary"] == "Would it fit?"
    described = set(schemas["VerdictReport"]["properties"]) | set(schemas["EstimateReport"]["properties"])
    assert described == set(said)


async def test_a_request_that_has_a_deadline_waits_no_longer():
    patient, one_place = Patient(), {"budget": {"sequences": 1}, "clock": FakeClock()}
    async with model_server(patient) as upstream, live_gateway(upstream.base_url, **one_place) as gateway:
        await gateway.until_up()
        running = asyncio.create_task(gateway.chat("Hm?"))
        await until(lambda: gateway.metrics("gateway_held").get('{resource="sequences"}') == 1)
        said = await ask(gateway, chat("Hm?"), headers={"x-gateway-deadline-ms": "9000"})
        assert said["verdict"] == "waiting"
        assert said["longest_wait_seconds"] == 9
        patient.may_answer.set()
        assert (await running).status_code == 200
