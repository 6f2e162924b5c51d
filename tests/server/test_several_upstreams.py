"""Several model servers behind one gateway: who gets which request, and what is said of them all."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest

from tests.support.live_gateway import MODEL, chat, image, live_gateway, until
from tests.support.model_server import ANSWER, error_of, model_server, posts
from tests.support.pictures import data_url, encoded, picture
from tests.support.processes import free_port
from tests.support.raw_http import raw_http_server


def photo(seed):
    return image(data_url(encoded(picture(56, 56, seed=seed))))


@asynccontextmanager
async def two_servers(models=((MODEL,), (MODEL,)), models_known=({"name": MODEL, "family": "qwen2_5_vl"},)):
    async with (
        model_server(models=models[0]) as a,
        model_server(models=models[1]) as b,
        live_gateway({"a": a.base_url, "b": b.base_url}, models=models_known) as gateway,
    ):
        await gateway.until_up()
        yield gateway, a, b


async def test_a_conversation_about_a_picture_stays_where_the_picture_is():
    async with two_servers() as (gateway, a, b):
        for seed in range(12):
            for question in ("What is it?", "Where is it?"):
                assert (await gateway.chat(question, photo(seed))).status_code == 200
        seen = [{json.loads(visit.body)["messages"][0]["content"][1]["image_url"]["url"] for visit in posts(server)}
                for server in (a, b)]  # fmt: skip
        assert not seen[0] & seen[1]
        assert len(seen[0]) + len(seen[1]) == 12
        assert all(seen)


async def test_texts_are_spread_over_idle_servers():
    async with two_servers() as (gateway, a, b):
        for _ in range(40):
            assert (await gateway.chat()).status_code == 200
        assert min(len(posts(a)), len(posts(b))) > 5


async def test_a_model_goes_to_the_server_that_lists_it_also_while_that_is_down():
    async with two_servers(models=(("small",), ("large",)), models_known=[]) as (gateway, a, b):
        for name in ("small", "large"):
            for _ in range(5):
                assert (await gateway.chat(model=name)).status_code == 200
        assert {json.loads(visit.body)["model"] for visit in posts(a)} == {"small"}
        assert {json.loads(visit.body)["model"] for visit in posts(b)} == {"large"}
        await b.stop()
        answer = await gateway.chat(model="large")
        assert (answer.status_code, error_of(answer)["code"]) == (503, "upstream_unavailable")


async def test_a_model_that_nobody_lists_yet_waits_for_the_server_that_is_still_loading():
    """The other one would say 404, after which nobody comes back."""
    where = f"http://127.0.0.1:{free_port()}"
    async with model_server(models=["small"]) as up, live_gateway({"up": up.base_url, "loading": where}) as gateway:
        await until(lambda: gateway.metrics("gateway_upstream_up") == {'{upstream="up"}': 1})
        answer = await gateway.chat(model="large")
        assert (answer.status_code, answer.headers["x-gateway-reason"]) == (503, "upstream_loading")
        assert (await gateway.chat(model="small")).status_code == 200


async def test_ready_as_long_as_one_is_up():
    where = f"http://127.0.0.1:{free_port()}"
    async with model_server() as up, live_gateway({"up": up.base_url, "away": where}) as gateway:
        await until(lambda: gateway.application.why_not_ready() is None)
        answer = await gateway.http.get("/readyz")
        assert (answer.status_code, answer.json()["status"]) == (200, "ok")
        assert answer.json()["but"].startswith("the model server away is still loading or not there yet: ")
        await up.stop()
        await until(lambda: gateway.application.why_not_ready() is not None)
        assert "the model server up is down: " in (await gateway.http.get("/readyz")).json()["reason"]


async def test_the_door_refuses_only_what_no_server_could_let_wait():
    hold = asyncio.Event()

    async def busy(visit):
        await hold.wait()
        await visit.answer("200 OK", ANSWER, "content-type: application/json")

    budget, queue = {"sequences": 1}, {"requests": 1}
    async with (
        model_server(busy) as a,
        model_server(busy) as b,
        live_gateway({"a": a.base_url, "b": b.base_url}, budget=budget, queue=queue) as gateway,
    ):
        await gateway.until_up()
        inside = []
        for count in (1, 2, 3, 4):  # one at each server, then one that waits for each
            inside.append(asyncio.create_task(gateway.chat()))
            await until(lambda count=count: len(posts(a)) + len(posts(b)) + sum(
                gateway.metrics("gateway_queue_depth").values()) >= count)  # fmt: skip
        refused = await gateway.chat()
        assert (refused.status_code, refused.headers["x-gateway-reason"]) == (429, "queue_full")
        hold.set()
        assert [(await answer).status_code for answer in inside] == [200] * 4
        await gateway.until_released()


async def test_preflight_answers_for_the_server_that_would_be_picked():
    """Only there would the context be long enough."""
    async with (
        model_server(models=["small"], context=64) as a,
        model_server(models=["large"], context=65_536) as b,
        live_gateway({"a": a.base_url, "b": b.base_url}, models=[]) as gateway,
    ):
        await gateway.until_up()
        verdicts = {}
        for name in ("small", "large"):
            answer = await gateway.http.post("/gateway/preflight", json=chat("word " * 8000, model=name))
            verdicts[name] = answer.json()["verdict"]
        assert verdicts == {"small": "refused", "large": "admitted"}


async def test_v1_models_lists_what_any_of_them_serves():
    async with two_servers(models=(("small", "both"), ("both", "large")), models_known=[]) as (gateway, _a, _b):
        answer = await gateway.http.get("/v1/models")
        assert answer.json()["object"] == "list"
        assert [card["id"] for card in answer.json()["data"]] == ["small", "both", "large"]
        assert (await gateway.http.get("/v1/models/large")).json()["id"] == "large"
        missing = await gateway.http.get("/v1/models/huge")
        assert (missing.status_code, error_of(missing)["code"]) == (404, "model_not_found")
        assert "both, large, small" in error_of(missing)["message"]


async def lists_nothing_readable(visit):
    await visit.answer("200 OK", b"{", "content-type: application/json")


async def wants_a_key(visit):
    await visit.answer(*(("401 Unauthorized", b"{}") if visit.path.endswith("/v1/models") else ("200 OK",)))


async def test_v1_models_does_without_a_server_whose_list_cannot_be_had():
    async with (
        model_server() as good,
        raw_http_server(lists_nothing_readable) as bad,
        raw_http_server(wants_a_key) as closed,
        live_gateway({"bad": bad.base_url, "closed": closed.base_url, "good": good.base_url}) as gateway,
    ):
        await gateway.until_up()
        answer = await gateway.http.get("/v1/models")
        assert [card["id"] for card in answer.json()["data"]] == [MODEL]


@pytest.mark.parametrize(("script", "status"), [(wants_a_key, 401), (lists_nothing_readable, 502), (None, 503)])
async def test_v1_models_says_why_where_no_list_can_be_had(script, status):
    async with raw_http_server(script or wants_a_key) as server:
        servers = {"a": server.base_url, "b": f"{server.base_url}/engine"}
        if script is None:
            await server.stop()
        async with live_gateway(servers) as gateway:
            assert (await gateway.http.get("/v1/models")).status_code == status
