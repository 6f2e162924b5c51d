"""Several names, one gateway: aliases, models of several servers, adapters, and what a tenant gets to see of them."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest

from gateway.domain.geometry import Size
from gateway.emulator.config import EmulatorConfig
from gateway.emulator.serve import running_emulator
from tests.server.test_tenants import CLASSIFIES, key, tenant
from tests.support.live_gateway import CHAT, chat, image, live_gateway, until
from tests.support.model_server import Patient, answer_chat, error_of, model_server, posts
from tests.support.pictures import data_url, encoded, picture
from tests.support.raw_http import raw_http_server

MODELS = [
    {"name": "small", "family": "qwen2_5_vl", "aliases": ["gpt-4o-mini", "org/tiny"]},
    {"name": "large", "family": "qwen3_vl", "aliases": ["gpt-4o"], "fallback": "small"},
]


@asynccontextmanager
async def two_emulators(**sections):
    """Real servers with a model each, of other families."""
    with (
        running_emulator(EmulatorConfig.fast(model="small", max_model_len=8_192)) as small,
        running_emulator(EmulatorConfig.fast(model="large", family="qwen3_vl", max_model_len=16_384)) as large,
    ):
        addresses = {"a": small.base_url, "b": large.base_url}
        async with live_gateway(addresses, **{"models": MODELS} | sections) as gateway:
            await gateway.until_up()
            yield gateway


class TestTwoEmulators:
    async def test_each_name_and_each_alias_is_served_by_the_server_that_has_its_model(self):
        async with two_emulators() as gateway:
            said = {}
            for asked in ("small", "gpt-4o-mini", "org/tiny", "large", "gpt-4o"):
                answer = await gateway.chat("Hello.", model=asked, max_tokens=4)
                said[asked] = answer.json()["model"], answer.headers.get("x-gateway-model")
            assert said == {
                "small": ("small", None),
                "gpt-4o-mini": ("small", "small"),
                "org/tiny": ("small", "small"),
                "large": ("large", None),
                "gpt-4o": ("large", "large"),
            }
            lines = await gateway.log(5)
            assert [(line["model"], line.get("asked_model"), line["upstream"]) for line in lines] == [
                ("small", None, "a"),
                ("small", "gpt-4o-mini", "a"),
                ("small", "org/tiny", "a"),
                ("large", None, "b"),
                ("large", "gpt-4o", "b"),
            ]
            counted = gateway.metrics("gateway_requests_total")
            assert {name.partition('model="')[2].partition('"')[0] for name in counted} == {"small", "large"}

    async def test_a_picture_costs_what_it_costs_with_the_model_behind_the_alias(self):
        photo = image(data_url(encoded(picture(640, 480))))
        async with two_emulators() as gateway:
            for asked in ("gpt-4o-mini", "gpt-4o"):
                answer = await gateway.chat("What?", photo, model=asked, max_tokens=4)
                assert answer.status_code == 200
            lines = await gateway.log(2)
            sizes = [Size(644, 476), Size(640, 480)]  # on their grids of 28 and 32 pixels
            assert [line["visual_tokens"] for line in lines] == [
                size.pixels // side**2 + markers for size, side, markers in zip(sizes, (28, 32), (2, 2), strict=True)
            ]

    async def test_a_stream_by_an_alias(self):
        async with two_emulators() as gateway:
            answer = await gateway.chat("Hello.", model="gpt-4o", stream=True, max_tokens=4)
            assert (answer.status_code, answer.headers["x-gateway-model"]) == (200, "large")
            assert answer.text.endswith("data: [DONE]\n\n")

    async def test_the_list_has_all_names_and_says_what_may_be_sent(self):
        async with two_emulators(images={"max_per_turn": 5}, resize={"preset": "ocr"}) as gateway:
            cards = {card["id"]: card for card in (await gateway.http.get("/v1/models")).json()["data"]}
            assert [*cards] == ["small", "gpt-4o-mini", "org/tiny", "large", "gpt-4o"]
            small, alias, large = cards["small"], cards["gpt-4o-mini"], cards["large"]
            assert (small["root"], small["max_model_len"]) == ("qwen2_5_vl", 8_192)
            assert small["vlm_gateway"]["aliases"] == ["gpt-4o-mini", "org/tiny"]
            assert (alias["root"], alias["vlm_gateway"]["alias_of"]) == (small["root"], "small")
            assert "aliases" not in alias["vlm_gateway"]
            own = large["vlm_gateway"]
            assert (own["family"], own["family_source"], own["max_model_len"]) == ("qwen3_vl", "setting", 16_384)
            assert (own["max_images_per_turn"], own["max_image_bytes"]) == (5, 20 << 20)
            assert own["max_pixels"] <= own["max_jpeg_pixels"]
            assert own["max_body_bytes"] <= 32 << 20
            assert "jpeg" in own["image_formats"]
            assert (own["resize"], own["resize_default"]) == (["off", "thumbnail", "ocr"], "ocr")

    async def test_one_entry_by_an_alias_with_a_slash_too(self):
        async with two_emulators() as gateway:
            card = (await gateway.http.get("/v1/models/org/tiny")).json()
            assert (card["id"], card["vlm_gateway"]["alias_of"]) == ("org/tiny", "small")

    async def test_what_is_asked_beside_answers_knows_aliases_too(self):
        async with two_emulators() as gateway:
            by_name, by_alias = [
                await gateway.http.post("/gateway/preflight", json=chat("Hello.", model=name))
                for name in ("large", "gpt-4o")
            ]
            for what in ("verdict", "prompt_tokens", "limits"):
                assert by_name.json().get(what) == by_alias.json().get(what)
            assert by_alias.json()["verdict"] == "admitted"
            counting = {"x-gateway-tokens": "estimate"}
            for body in (chat("Hello.", model="gpt-4o"), {"model": "gpt-4o", "prompt": "Hello."}):
                answer = await gateway.http.post("/tokenize", json=body, headers=counting)
                assert (answer.status_code, answer.json()["max_model_len"]) == (200, 16_384)
            body = {"model": "gpt-4o", "max_tokens": 1, "messages": [{"role": "user", "content": "Hello."}]}
            answer = await gateway.http.post("/v1/messages/count_tokens", json=body, headers=counting)
            assert answer.status_code == 200


class TestBodies:
    @pytest.mark.parametrize(
        "path", ["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/tokenize", "/detokenize"]
    )
    async def test_nothing_but_the_name_is_changed(self, path):
        spelled = b'{ "model" :"a","x":1,"mo\\u0064el" : "gpt-4o" ,"messages":[{"role":"user","content":"\\u00e4"}]}'
        if path != CHAT:
            spelled = spelled.replace(b'"messages":[{"role":"user","content":"\\u00e4"}]', b'"input":"x","prompt":"x"')
        async with (
            model_server(models=["large"]) as server,
            live_gateway(server.base_url, models=[{"name": "large", "aliases": ["gpt-4o"]}]) as gateway,
        ):
            await gateway.until_up()
            answer = await gateway.http.post(path, content=spelled, headers={"content-type": "application/json"})
            assert answer.status_code == 200
            [visit] = posts(server)
            assert visit.body == spelled.replace(b'"gpt-4o"', b'"large"')

    async def test_a_long_body_with_a_picture_gets_the_name_too(self):
        photo = image(data_url(encoded(picture(900, 900, seed=1), "PNG")))
        async with (
            model_server(models=["large"]) as server,
            live_gateway(server.base_url, models=MODELS) as gateway,
        ):
            await gateway.until_up()
            assert (await gateway.chat("What?", photo, model="gpt-4o")).status_code == 200
            [visit] = posts(server)
            assert len(visit.body) > 64 * 1024
            assert json.loads(visit.body)["model"] == "large"

    async def test_under_pressure_the_fallback_of_its_model_serves(self):
        first = Patient(then=answer_chat)
        pressure = {"fallback": {"enter": 0.1, "leave": 0.05}}
        async with (
            model_server(first, models=["large", "small"]) as server,
            live_gateway(server.base_url, models=MODELS, pressure=pressure, budget={"sequences": 4}) as gateway,
        ):
            await gateway.until_up()
            held = asyncio.create_task(gateway.chat("Hold this.", model="large"))
            await until(lambda: len(posts(server)) == 1)
            answer = await gateway.chat("Hello.", model="gpt-4o")
            assert (answer.status_code, answer.headers["x-gateway-model"]) == (200, "small")
            assert json.loads(posts(server)[1].body)["model"] == "small"
            [line] = await gateway.log(1)
            assert (line["model"], line["asked_model"]) == ("small", "gpt-4o")
            first.may_answer.set()
            await held

    async def test_in_shadow_mode_it_is_priced_as_its_model_and_goes_on_as_it_is(self):
        async with (
            model_server(models=["large"]) as server,
            live_gateway(server.base_url, models=MODELS, mode="shadow") as gateway,
        ):
            await gateway.until_up()
            assert (await gateway.chat("Hello.", model="gpt-4o")).status_code == 200
            assert json.loads(posts(server)[0].body)["model"] == "gpt-4o"
            [line] = await gateway.log(1)
            assert (line["model"], line["asked_model"]) == ("large", "gpt-4o")


FEW = {"tenants": [tenant("few", models=["small"])], "keys": CLASSIFIES}
"""Its tenant may ask for the small model alone, everyone else for all."""


class TestTenants:
    async def test_a_tenant_sees_what_it_may_ask_for_and_its_other_names(self):
        async with two_emulators(**FEW) as gateway:
            listed = (await gateway.http.get("/v1/models", headers=key("few"))).json()["data"]
            assert [card["id"] for card in listed] == ["small", "gpt-4o-mini", "org/tiny"]
            assert len((await gateway.http.get("/v1/models")).json()["data"]) == 5
            for hidden in ("large", "gpt-4o", "nobody"):
                answer = await gateway.http.get(f"/v1/models/{hidden}", headers=key("few"))
                assert (answer.status_code, error_of(answer)["code"]) == (404, "model_not_found")
                assert "large" not in error_of(answer)["message"].replace("'large'", "")


class TestAServerThatIsAway:
    async def test_its_models_are_not_listed_and_one_of_them_is_away_rather_than_unknown(self):
        async with (
            model_server(models=["small"]) as a,
            model_server(models=["large"]) as b,
            live_gateway({"a": a.base_url, "b": b.base_url}, models=MODELS, **FEW) as gateway,
        ):
            await gateway.until_up()
            assert len((await gateway.http.get("/v1/models")).json()["data"]) == 5
            await b.stop()
            await until(lambda: len(gateway.application.troubles()) == 1)
            listed = (await gateway.http.get("/v1/models")).json()["data"]
            assert [card["id"] for card in listed] == ["small", "gpt-4o-mini", "org/tiny"]
            for name in ("large", "gpt-4o"):
                answer = await gateway.http.get(f"/v1/models/{name}")
                assert (answer.status_code, answer.headers["x-gateway-reason"]) == (503, "upstream_down")
            assert (await gateway.http.get("/v1/models/huge")).status_code == 404
            hidden = await gateway.http.get("/v1/models/large", headers=key("few"))
            assert hidden.status_code == 404, "nobody is told of a model that he may not ask for"
            assert (await gateway.chat(model="gpt-4o-mini")).status_code == 200
            answer = await gateway.chat(model="gpt-4o")
            assert (answer.status_code, answer.headers["x-gateway-reason"]) == (503, "upstream_down")


class TestAdapters:
    async def test_one_is_listed_with_the_limits_of_its_parent_and_priced_as_that(self):
        cards = [
            {"id": "base", "max_model_len": 512, "root": "Qwen/Qwen2.5-VL-7B-Instruct"},
            {"id": "adapter", "root": "/adapters/a", "parent": "base"},
        ]
        listed = json.dumps({"data": cards}).encode()

        async def script(visit):
            await visit.answer("200 OK", listed if visit.path == "/v1/models" else b"")

        async with raw_http_server(script) as server, live_gateway(server.base_url, models=[]) as gateway:
            await gateway.until_up()
            base, adapter = (await gateway.http.get("/v1/models")).json()["data"]
            assert base["vlm_gateway"] == adapter["vlm_gateway"]
            assert (adapter["vlm_gateway"]["family"], adapter["vlm_gateway"]["max_model_len"]) == ("qwen2_5_vl", 512)
            answer = await gateway.chat("word " * 40_000, model="adapter")
            assert (answer.status_code, error_of(answer)["code"]) == (400, "context_length_exceeded")


async def test_the_longest_context_of_several_servers_is_told():
    async with (
        model_server(context=64) as a,
        model_server(context=65_536) as b,
        live_gateway({"a": a.base_url, "b": b.base_url}) as gateway,
    ):
        await gateway.until_up()
        [card] = (await gateway.http.get("/v1/models")).json()["data"]
        assert (card["max_model_len"], card["vlm_gateway"]["max_model_len"]) == (64, 65_536)


async def test_of_an_unknown_family_it_is_told_that_there_is_none():
    async with model_server(models=["mine"]) as server, live_gateway(server.base_url, models=[]) as gateway:
        await gateway.until_up()
        own = (await gateway.http.get("/v1/models/mine")).json()["vlm_gateway"]
        assert ("family" in own, own["family_source"], "max_tokens_per_image" in own) == (False, "assumed", False)


async def test_an_alias_goes_before_a_model_that_a_server_lists_by_that_name():
    async with (
        model_server(models=["large", "gpt-4o"]) as server,
        live_gateway(server.base_url, models=MODELS, **FEW) as gateway,
    ):
        await gateway.until_up()
        cards = (await gateway.http.get("/v1/models")).json()["data"]
        assert [(card["id"], card["vlm_gateway"].get("alias_of")) for card in cards] == [
            ("large", None),
            ("gpt-4o", "large"),
        ]


async def test_a_model_that_an_alias_hides_is_not_listed_where_the_alias_leads_nowhere():
    async with (
        model_server(models=["small", "gpt-4o"]) as server,
        live_gateway(server.base_url, models=MODELS, **FEW) as gateway,
    ):
        await gateway.until_up()
        cards = (await gateway.http.get("/v1/models")).json()["data"]
        assert [card["id"] for card in cards] == ["small", "gpt-4o-mini", "org/tiny"]
        assert (await gateway.http.get("/v1/models/gpt-4o")).status_code == 404
