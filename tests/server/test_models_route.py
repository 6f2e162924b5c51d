"""The list of models is the upstream's, and one entry of it, which vLLM does not serve itself."""

import json

import pytest

from tests.support.live_gateway import live_gateway
from tests.support.model_server import error_of
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


async def test_the_list_is_the_upstreams_to_the_byte():
    spelled = b'{"data": [] ,"x":1}'
    async with (
        upstream_with("200 OK", spelled, "x-own: 1") as upstream,
        live_gateway(upstream.base_url) as gateway,
    ):
        answer = await gateway.http.get("/v1/models", headers={"x-request-id": "a"})
        assert (answer.status_code, answer.content) == (200, spelled)
        assert (answer.headers["x-own"], answer.headers["x-request-id"]) == ("1", "a")
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
    monkeypatch.setattr("gateway.server.models_route._LIST_SECONDS", 0.2)

    async def script(visit):
        await visit.reader.read()

    async with raw_http_server(script) as upstream, live_gateway(upstream.base_url) as gateway:
        answer = await gateway.http.get("/v1/models")
        assert (answer.status_code, error_of(answer)["code"]) == (504, "upstream_timeout")
        await gateway.until_released()
        assert gateway.ended() == {"upstream_broke": 1}


async def test_only_get():
    async with upstream_with() as upstream, live_gateway(upstream.base_url) as gateway:
        for path in ("/v1/models", "/v1/models/tiny"):
            answer = await gateway.http.post(path, json={})
            assert (answer.status_code, answer.headers["allow"]) == (405, "GET")
