"""Closed routes that the operator has opened: they go on as they came, and /invocations as what it stands for."""

import gzip
import json
from collections.abc import Iterator

import pytest

from gateway.emulator.config import EmulatorConfig
from gateway.emulator.serve import RunningEmulator, running_emulator
from tests.support.live_gateway import MODEL, chat, image, live_gateway
from tests.support.model_server import model_server
from tests.support.pictures import data_url, encoded, picture

SMALL = data_url(encoded(picture(280, 140)))
BAD = "data:image/png;base64,aGVsbG8="
ALL = {"open": ["/reset_mm_cache", "/load", "/invocations"]}


@pytest.fixture(scope="module")
def dev_server() -> Iterator[RunningEmulator]:
    with running_emulator(EmulatorConfig.fast(dev_mode=True)) as running:
        yield running


async def test_they_are_closed_until_they_are_opened(dev_server):
    async with live_gateway(dev_server.base_url) as gateway:
        for method, path in (("POST", "/reset_mm_cache"), ("GET", "/load"), ("POST", "/invocations")):
            refusal = await gateway.http.request(method, path)
            assert refusal.status_code == 403
            assert f"`routes.open: [{path}]`" in refusal.json()["error"]["message"]
            assert refusal.headers["x-gateway-reason"] == "closed_route"


@pytest.mark.parametrize("mode", ["enforce", "shadow"])
async def test_an_opened_one_is_answered_by_the_server(dev_server, mode):
    async with live_gateway(dev_server.base_url, routes=ALL, mode=mode) as gateway:
        emptied = await gateway.http.post("/reset_mm_cache")
        assert (emptied.status_code, emptied.content) == (200, b"")
        load = await gateway.http.get("/load")
        assert load.json() == {"server_load": 0}
        assert "x-gateway-prompt-tokens" not in load.headers
        lines = await gateway.log(2)
        assert [line["outcome"] for line in lines] == ["finished", "finished"]
        assert not gateway.held()


async def test_it_goes_on_as_it_came_whatever_it_is():
    async with model_server() as upstream, live_gateway(upstream.base_url, routes=ALL) as gateway:
        body = gzip.compress(b"\xff{not json" + SMALL.encode())
        headers = {"content-encoding": "gzip", "content-type": "text/plain"}
        await gateway.http.put("/reset_mm_cache?all=1", content=body, headers=headers)
        [visit] = [visit for visit in upstream.visits if visit.method == "PUT"]
    assert (visit.path, visit.body) == ("/reset_mm_cache?all=1", body)
    assert (visit.header("content-encoding"), visit.header("content-type")) == (["gzip"], ["text/plain"])


async def test_its_body_may_be_no_longer_than_any_other(dev_server):
    async with live_gateway(dev_server.base_url, routes=ALL, server={"max_body_bytes": 1000}) as gateway:
        refusal = await gateway.http.post("/reset_mm_cache", content=b"x" * 1001)
        assert refusal.status_code == 413


async def test_an_invocation_is_priced_as_the_route_it_stands_for(dev_server):
    async with live_gateway(dev_server.base_url, routes=ALL) as gateway:
        await gateway.until_up()
        body = chat("Hi.", image(SMALL), max_tokens=3)
        plain = await gateway.http.post("/v1/chat/completions", json=body)
        invoked = await gateway.http.post("/invocations", json=body)
        assert (invoked.status_code, invoked.json()["object"]) == (200, "chat.completion")
        for name in ("x-gateway-prompt-tokens", "x-gateway-visual-tokens"):
            assert invoked.headers[name] == plain.headers[name]
        text = await gateway.http.post("/invocations", json={"model": MODEL, "prompt": "a", "max_tokens": 3})
        assert text.json()["object"] == "text_completion"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (chat(image(BAD)), "messages[0].content[0].image_url.url"),
        (chat() | {"prompt": "a"}, None),
        ({"model": MODEL, "data": [1]}, None),
        ({"query": "a", "documents": [{"content": [image(BAD)]}]}, "documents[0].content[0].image_url.url"),
    ],
)
@pytest.mark.parametrize("mode", ["enforce"])
async def test_an_invocation_is_refused_like_it(dev_server, body, param, mode):
    async with live_gateway(dev_server.base_url, routes=ALL, mode=mode) as gateway:
        refusal = await gateway.http.post("/invocations", json=body)
        assert (refusal.status_code, refusal.json()["error"]["param"]) == (400, param)


async def test_no_header_puts_another_model_in_place_of_the_bodys():
    async with model_server() as upstream, live_gateway(upstream.base_url, routes=ALL) as gateway:
        headers = {"x-amzn-sagemaker-adapter-identifier": "other", "x-amzn-sagemaker-session-id": "s", "x-kept": "1"}
        await gateway.http.post("/invocations", json=chat(), headers=headers)
        [visit] = [visit for visit in upstream.visits if visit.path == "/invocations"]
    names = {name.lower() for name in dict(visit.headers)}
    assert json.loads(visit.body)["model"] == MODEL
    assert not any("sagemaker" in str(name) for name in names)
