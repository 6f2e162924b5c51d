"""Tenants have prefixes of their own in a cache that they share, through a live gateway and an emulated vLLM."""

import json

import pytest

from gateway.emulator.config import EmulatorConfig
from gateway.emulator.serve import running_emulator
from tests.server.test_tenants import CLASSIFIES, key, tenant
from tests.support.live_gateway import CHAT, MODEL, chat, image, live_gateway
from tests.support.model_server import error_of, model_server, posts
from tests.support.pictures import data_url, encoded, picture

TENANTS = [tenant("a"), tenant("b")]
EACH = {"isolation": {"prefix_cache": "tenant"}}
LONG = "The same beginning of a prompt, over and over. " * 40


def salts(server):
    return [json.loads(visit.body).get("cache_salt") for visit in posts(server)]


async def cached_tokens(gateway, who):
    answer = await gateway.chat(LONG, max_tokens=1, headers=key(who) if who else None)
    assert answer.status_code == 200, answer.text
    return answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


@pytest.mark.parametrize(("sections", "is_shared"), [({"tenants": TENANTS}, False), ({}, True)])
async def test_who_comes_after_another_tenant_finds_nothing_where_tenants_are_told_apart(sections, is_shared):
    config = EmulatorConfig.fast(model=MODEL, enable_prompt_tokens_details=True)
    with running_emulator(config) as emulator:
        async with live_gateway(emulator.base_url, **sections) as gateway:
            await gateway.until_up()
            assert await cached_tokens(gateway, "a") == 0
            assert (await cached_tokens(gateway, "b") > 0) is is_shared
            assert await cached_tokens(gateway, "a") > 0
            assert await cached_tokens(gateway, "b") > 0


DEFAULTS = [
    ({}, False),
    ({"tenants": TENANTS}, True),
    ({"tenants": [{"name": "default", "weight": 2}]}, False),
    ({"tenants": TENANTS, "isolation": {"prefix_cache": "none"}}, False),
    (EACH, True),
    (EACH | {"mode": "shadow"}, False),
]


@pytest.mark.parametrize(("sections", "is_salted"), DEFAULTS)
async def test_when_prefixes_are_kept_apart(sections, is_salted):
    async with model_server() as server, live_gateway(server.base_url, **sections) as gateway:
        assert (await gateway.chat(headers=key("a"))).status_code == 200
        body = json.loads(posts(server)[0].body)
        assert ("cache_salt" in body) is is_salted
        assert {name: value for name, value in body.items() if name != "cache_salt"} == chat()


async def test_each_tenant_has_its_own_salt_and_within_it_those_that_it_asks_for():
    async with model_server() as server, live_gateway(server.base_url, tenants=TENANTS, keys=CLASSIFIES) as gateway:
        for who in ("a", "b", None):
            for own in ({}, {}, {"cache_salt": "mine"}, {"cache_salt": "other"}, {"cache_salt": None}):
                assert (await gateway.chat(headers=key(who) if who else None, **own)).status_code == 200
        found = salts(server)
    by_tenant = [found[start : start + 5] for start in (0, 5, 10)]
    assert all(first == second == null for first, second, _, _, null in by_tenant)
    assert len(set(found)) == 9
    assert not {"mine", "other", None} & set(found)


async def test_a_tenant_that_writes_the_salt_of_another_does_not_get_it():
    async with model_server() as server, live_gateway(server.base_url, tenants=TENANTS) as gateway:
        await gateway.chat(headers=key("a"))
        (victims,) = salts(server)
        await gateway.chat(headers=key("b"), cache_salt=victims)
        assert salts(server)[1] != victims


ROUTES = {
    CHAT: chat(),
    "/v1/completions": {"model": MODEL, "prompt": "a"},
    "/v1/embeddings": {"model": MODEL, "input": "a"},
}


@pytest.mark.parametrize("path", ROUTES)
async def test_every_route_that_fills_the_cache_is_salted(path):
    async with model_server() as server, live_gateway(server.base_url, **EACH) as gateway:
        assert (await gateway.http.post(path, json=ROUTES[path], headers=key("a"))).status_code == 200
        assert salts(server)[0]


async def test_what_fills_no_cache_goes_on_as_it_came():
    async with model_server() as server, live_gateway(server.base_url, **EACH) as gateway:
        await gateway.http.post("/detokenize", json={"model": MODEL, "tokens": [1]})
        assert salts(server) == [None]


async def test_it_goes_along_with_all_that_is_written_into_a_body():
    turned = data_url(encoded(picture(56, 28), "JPEG", orientation=6), "image/jpeg")
    async with model_server() as server, live_gateway(server.base_url, **EACH) as gateway:
        answer = await gateway.chat("?", image(turned) | {"uuid": "u"}, stream=True, priority=-3)
        assert answer.status_code == 200
        body = json.loads(posts(server)[0].body)
    assert body["cache_salt"]
    assert (body["stream_options"], body["priority"]) == ({"include_usage": True}, 0)
    assert body["messages"][0]["content"][1]["uuid"] != "u"


@pytest.mark.parametrize("salt", ["", 5, "x" * 1025])
async def test_a_salt_that_is_no_text_is_refused(salt):
    async with model_server() as server, live_gateway(server.base_url) as gateway:
        answer = await gateway.chat(cache_salt=salt)
        assert (answer.status_code, error_of(answer)["param"]) == (400, "cache_salt")


async def test_those_that_cannot_be_told_apart_share_nothing(monkeypatch):
    monkeypatch.setattr("gateway.domain.tenancy._MOST_LATELY", 1)
    async with model_server() as server, live_gateway(server.base_url, **EACH) as gateway:
        for who in ("a", "b", "b", "c"):
            assert (await gateway.chat(headers=key(who))).status_code == 200
        assert len(set(salts(server))) == 4
