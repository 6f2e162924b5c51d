"""The list of models is the upstream's, and one entry of it, which vLLM does not serve itself."""

import asyncio
import json

import pytest

from tests.support import odd_answers
from tests.support.live_gateway import live_gateway, until
from tests.support.model_server import error_of
from tests.support.raw_client import raw_client
from tests.support.raw_http import raw_http_server

ADAPTER = "org/lora-1"


def upstream_with(status="200 OK", body=None, *headers):
    listed = [{"id": "tiny", "max_model_len": 4096, "odd": 1}, {"id": ADAPTER, "max_model_len": None}]
    answer = json.dumps({"object": "list", "data": listed}).encode() if body is None else body

    async def script(visit):
        asked = visit.path == "/v1/models"
        await visit.answer(
            status if asked else "200 OK", answer if asked else b"", "content-type: application/json", *headers
        )

    return raw_http_server(script)


def names(answer):
    return [card["id"] for card in answer.json()["data"]]


async def test_the_list_is_the_upstreams_with_what_the_gateway_says_of_each():
    async with upstream_with() as upstream, live_gateway(upstream.base_url) as gateway:
        answer = await gateway.http.get("/v1/models", headers={"x-request-id": "a"})
        assert (answer.status_code, answer.headers["x-request-id"], answer.json()["object"]) == (200, "a", "list")
        tiny, adapter = answer.json()["data"]
        own = tiny.pop("vlm_gateway")
        assert tiny == {"id": "tiny", "max_model_len": 4096, "odd": 1}
        assert own["family"] == "qwen2_5_vl"
        assert (adapter["id"], adapter["max_model_len"]) == (ADAPTER, None)
        await gateway.until_released()
        assert gateway.metrics("gateway_requests_total") == {
            '{endpoint="/v1/models",model="other",outcome="finished"}': 1
        }


@pytest.mark.parametrize("model", ["tiny", ADAPTER])
async def test_one_entry(model):
    async with upstream_with() as upstream, live_gateway(upstream.base_url) as gateway:
        answer = await gateway.http.get(f"/v1/models/{model}")
        assert (answer.status_code, answer.json()["id"]) == (200, model)
        assert answer.headers["content-type"] == "application/json"


async def test_a_name_that_is_not_listed():
    async with upstream_with() as upstream, live_gateway(upstream.base_url) as gateway:
        answer = await gateway.http.get("/v1/models/other")
        assert (answer.status_code, error_of(answer)["code"]) == (404, "model_not_found")
        assert "tiny" in error_of(answer)["message"]
        await gateway.until_released()
        assert gateway.ended() == {"refused": 1}


async def test_an_error_of_the_upstream_passes_through():
    refusal = b'{"error":"Unauthorized"}'
    async with (
        upstream_with("401 Unauthorized", refusal) as upstream,
        live_gateway(upstream.base_url) as gateway,
    ):
        for path in ("/v1/models", "/v1/models/tiny"):
            answer = await gateway.http.get(path)
            assert (answer.status_code, answer.content) == (401, refusal)


async def test_a_list_that_cannot_be_read():
    async with upstream_with("200 OK", b"<html>") as upstream, live_gateway(upstream.base_url) as gateway:
        answer = await gateway.http.get("/v1/models/tiny")
        assert (answer.status_code, error_of(answer)["code"]) == (502, "upstream_error")
        await gateway.until_released()
        assert gateway.ended() == {"upstream_broke": 1}


async def test_nobody_there():
    async with upstream_with() as upstream:
        address = upstream.base_url
    async with live_gateway(address) as gateway:
        answer = await gateway.http.get("/v1/models")
        assert (answer.status_code, error_of(answer)["code"]) == (503, "upstream_unavailable")


async def test_a_server_that_is_silent_is_not_waited_for_long(monkeypatch):
    monkeypatch.setattr("gateway.upstream.listing._LIST_SECONDS", 0.2)

    async def script(visit):
        await visit.reader.read()

    async with raw_http_server(script) as upstream, live_gateway(upstream.base_url) as gateway:
        answer = await gateway.http.get("/v1/models")
        assert (answer.status_code, error_of(answer)["code"]) == (504, "upstream_timeout")
        await gateway.until_released()
        assert gateway.ended() == {"upstream_broke": 1}


class Held:
    """An upstream that answers a gateway's clients only when the test says so; its poller is answered at once."""

    def __init__(self, body=b'{"data":[{"id":"tiny"}]}'):
        self.body, self.may_answer, self.asked = body, asyncio.Event(), []

    async def __call__(self, visit):
        if visit.header("x-request-id"):
            self.asked.append(visit)
            await self.may_answer.wait()
        await visit.answer("200 OK", self.body)


async def test_many_clients_are_one_request():
    held = Held()
    async with raw_http_server(held) as upstream, live_gateway(upstream.base_url) as gateway:
        asks = [
            asyncio.create_task(gateway.http.get(f"/v1/models{suffix}", headers={"x-request-id": str(index)}))
            for index in range(20)
            for suffix in ("", "/tiny")
        ]
        await until(lambda: gateway.metrics("gateway_held") == {'{resource="seats"}': 40})
        held.may_answer.set()
        answers = await asyncio.gather(*asks)
        assert {answer.json().get("id") for answer in answers} == {None, "tiny"}
        assert names(await gateway.http.get("/v1/models")) == ["tiny"]
        assert len(held.asked) == 1
        await gateway.until_released()
        assert gateway.ended() == {"finished": 41}


async def test_a_list_that_was_read_is_asked_for_again_after_a_second(monkeypatch):
    monkeypatch.setattr("gateway.upstream.listing._FRESH_SECONDS", 0.0)
    held = Held()
    held.may_answer.set()
    async with raw_http_server(held) as upstream, live_gateway(upstream.base_url) as gateway:
        assert (await gateway.http.get("/v1/models/tiny")).status_code == 200
        held.body = b'{"data":[{"id":"new"}]}'
        assert (await gateway.http.get("/v1/models/new")).json()["id"] == "new"


async def test_clients_with_other_keys_share_nothing_where_these_go_on_and_ask_few_at_once():
    held, settings = Held(), {"forward_client_key": True}
    async with raw_http_server(held) as upstream, live_gateway(upstream.base_url, upstream=settings) as gateway:
        asks = [
            asyncio.create_task(gateway.http.get("/v1/models", headers={"authorization": f"Bearer {index}"}))
            for index in range(20)
        ]
        await until(lambda: gateway.metrics("gateway_held") == {'{resource="seats"}': 20})
        await until(lambda: len(held.asked) == 4)
        held.may_answer.set()
        assert {answer.status_code for answer in await asyncio.gather(*asks)} == {200}
        assert {visit.header("authorization")[0] for visit in held.asked} == {f"Bearer {index}" for index in range(20)}


async def test_keys_that_the_upstream_never_sees_make_no_difference():
    held = Held()
    held.may_answer.set()
    settings = {"api_key": "sk-engine"}
    async with raw_http_server(held) as upstream, live_gateway(upstream.base_url, upstream=settings) as gateway:
        for key in ("a", "b"):
            answer = await gateway.http.get("/v1/models", headers={"authorization": f"Bearer {key}"})
            assert names(answer) == ["tiny"]
        assert [visit.header("authorization") for visit in held.asked] == [["Bearer sk-engine"]]


async def test_a_client_that_leaves_is_noticed_and_the_last_one_takes_the_request_along():
    held = Held()
    async with (
        raw_http_server(held) as upstream,
        live_gateway(upstream.base_url) as gateway,
        raw_client(gateway.host, gateway.port) as first,
        raw_client(gateway.host, gateway.port) as second,
    ):
        for client in (first, second):
            client.send(b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n")
        await until(lambda: gateway.metrics("gateway_held") == {'{resource="seats"}': 2})
        first.hang_up()
        await until(lambda: gateway.metrics("gateway_held") == {'{resource="seats"}': 1})
        assert gateway.metrics("gateway_upstream_requests_in_flight") == {"": 1}
        second.hang_up()
        await gateway.until_released()
        assert gateway.ended() == {"client_left": 2}


async def test_without_a_seat_there_is_no_list():
    held = Held()
    async with (
        raw_http_server(held) as upstream,
        live_gateway(upstream.base_url, server={"seats": 1}) as gateway,
    ):
        ask = asyncio.create_task(gateway.http.get("/v1/models"))
        await until(lambda: gateway.metrics("gateway_held") == {'{resource="seats"}': 1})
        refused = await gateway.http.get("/v1/models")
        assert (refused.status_code, error_of(refused)["code"]) == (429, "rate_limit_exceeded")
        held.may_answer.set()
        assert (await ask).status_code == 200


async def test_a_list_without_end_is_given_up(monkeypatch):
    monkeypatch.setattr("gateway.upstream.listing._MOST_BYTES", 1 << 20)
    held = Held(b" " * (2 << 20))
    held.may_answer.set()
    async with raw_http_server(held) as upstream, live_gateway(upstream.base_url) as gateway:
        answer = await gateway.http.get("/v1/models")
        assert (answer.status_code, error_of(answer)["code"]) == (502, "upstream_error")
        assert "longer than 1 MiB" in error_of(answer)["message"]
        await gateway.until_released()


async def test_a_long_list_comes_whole():
    cards = [{"id": f"org/adapter-{index}", "root": "x" * 100} for index in range(3000)]
    held = Held(json.dumps({"data": cards}).encode())
    held.may_answer.set()
    async with raw_http_server(held) as upstream, live_gateway(upstream.base_url) as gateway:
        assert names(await gateway.http.get("/v1/models")) == [card["id"] for card in cards]
        answer = (await gateway.http.get("/v1/models/org/adapter-2999")).json()
        assert {"id": answer["id"], "root": answer["root"]} == cards[2999]
        refused = await gateway.http.get("/v1/models/none")
        assert error_of(refused)["message"].endswith("org/adapter-1014 and 2980 more.")
        assert (await gateway.http.get("/livez")).status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        b'{"data":[' + b"[" * 5_000,
        b'{"data":[{"id":"tiny","x":' + b"[" * 100_000,
        b"[]",
        b'{"data":[{"name":"tiny"}]}',
        b'{"data":[{"id":7}]}',
    ],
)
async def test_no_list_that_is_none_is_a_fault_of_the_gateway_or_passes(body):
    held = Held(body)
    held.may_answer.set()
    async with raw_http_server(held) as upstream, live_gateway(upstream.base_url) as gateway:
        for path in ("/v1/models/tiny", "/v1/models"):
            answer = await gateway.http.get(path)
            assert (answer.status_code, error_of(answer)["code"]) == (502, "upstream_error")


@pytest.mark.parametrize("odd", [*odd_answers.STATUSES, *odd_answers.HEADS], ids=str)
async def test_an_odd_answer_hurts_nobody(odd, monkeypatch, caplog):
    monkeypatch.setattr("gateway.upstream.listing._LIST_SECONDS", 0.5)

    async def script(visit):
        await (odd.script(visit) if visit.header("x-request-id") else visit.answer("200 OK"))

    async with raw_http_server(script) as upstream, live_gateway(upstream.base_url) as gateway:
        answer = await gateway.http.get("/v1/models")
        # What is no list is no good answer, however well it is put.
        assert answer.status_code in ({502, 204} if odd.is_faulty else {502 if odd.status == 200 else odd.status})
        await gateway.until_released()
    assert "fault of the gateway" not in caplog.text


async def test_only_get():
    async with upstream_with() as upstream, live_gateway(upstream.base_url) as gateway:
        for path in ("/v1/models", "/v1/models/tiny"):
            answer = await gateway.http.post(path, json={})
            assert (answer.status_code, answer.headers["allow"]) == (405, "GET")
