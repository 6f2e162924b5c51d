"""Images that are sent once under a `uuid` and named from then on, through a live gateway and an emulated vLLM."""

import json
from contextlib import asynccontextmanager

import pytest

from gateway.emulator.config import EmulatorConfig
from gateway.emulator.serve import running_emulator
from tests.server.test_tenants import CLASSIFIES, key, tenant
from tests.support.clock import FakeClock
from tests.support.live_gateway import CHAT, MODEL, chat, image, live_gateway, until
from tests.support.model_server import error_of, model_server, posts
from tests.support.pictures import data_url, encoded, picture

SMALL = data_url(encoded(picture(280, 140)))
LARGE = data_url(encoded(picture(1400, 1120)))
TURNED = data_url(encoded(picture(56, 28), "JPEG", orientation=6), "image/jpeg")
TENANTS = [tenant("a"), tenant("b")]


def sent(url=SMALL, uuid="u"):
    return image(url) | {"uuid": uuid}


def named(uuid="u", value=None):
    return {"type": "image_url", "image_url": value, "uuid": uuid}


@asynccontextmanager
async def before_an_emulator(**sections):
    config = EmulatorConfig.fast(model=MODEL, max_model_len=16_384, enable_prompt_tokens_details=True)
    with running_emulator(config) as emulator:
        async with live_gateway(emulator.base_url, **sections) as gateway:
            await gateway.until_up()
            yield gateway, emulator


async def ask(gateway, *content, who=None, **fields):
    return await gateway.chat("What is it?", *content, max_tokens=1, headers=key(who) if who else None, **fields)


def prompt_tokens(answer):
    assert answer.status_code == 200, answer.text
    usage = answer.json()["usage"]["prompt_tokens"]
    assert int(answer.headers["x-gateway-visual-tokens"]) > 0
    return usage


async def test_an_image_is_sent_once_and_named_from_then_on():
    async with before_an_emulator() as (gateway, _):
        first = await ask(gateway, sent())
        for value in (None, "", {}, {"url": None}, {"url": ""}):
            again = await ask(gateway, named(value=value))
            assert prompt_tokens(again) == prompt_tokens(first)
            assert again.headers["x-gateway-visual-tokens"] == first.headers["x-gateway-visual-tokens"]
        assert gateway.metrics("gateway_images_total")


async def test_images_without_a_name_go_along():
    async with before_an_emulator() as (gateway, _):
        first = await ask(gateway, sent(), image(LARGE))
        assert prompt_tokens(await ask(gateway, image(LARGE), named())) == prompt_tokens(first)


async def test_a_stream_names_it_too():
    async with before_an_emulator() as (gateway, _):
        assert (await ask(gateway, sent(), stream=True)).status_code == 200
        assert (await ask(gateway, named(), stream=True)).text.endswith("data: [DONE]\n\n")


async def test_an_image_that_nobody_sent_is_to_be_sent_again():
    async with before_an_emulator() as (gateway, _):
        answer = await ask(gateway, sent(), named("other"))
        error = error_of(answer)
        assert (answer.status_code, error["code"]) == (400, "unknown_image_uuid")
        assert error["param"] == "messages[0].content[2].image_url"
        assert error["message"].endswith("Send the image again, beside its `uuid`.")
        assert answer.headers["x-should-retry"] == "false"
        assert (await ask(gateway, sent(), sent(uuid="other"))).status_code == 200
        assert (await ask(gateway, named(), named("other"))).status_code == 200


async def test_another_tenant_with_the_same_word_does_not_see_the_picture():
    async with before_an_emulator(tenants=TENANTS) as (gateway, _):
        assert (await ask(gateway, sent(), who="a")).status_code == 200
        assert error_of(await ask(gateway, named(), who="b"))["code"] == "unknown_image_uuid"
        other = await ask(gateway, sent(LARGE), who="b")
        assert prompt_tokens(await ask(gateway, named(), who="b")) == prompt_tokens(other)
        mine = await ask(gateway, named(), who="a")
        assert prompt_tokens(mine) < prompt_tokens(other)


async def test_the_same_word_for_another_picture_is_another_name():
    """vLLM would serve the first one, whatever bytes come along."""
    async with before_an_emulator() as (gateway, _):
        small = await ask(gateway, sent(SMALL))
        large = await ask(gateway, sent(LARGE))
        assert prompt_tokens(large) > prompt_tokens(small)
        assert prompt_tokens(await ask(gateway, named())) == prompt_tokens(large)


async def test_what_the_server_lost_is_a_miss_and_then_forgotten():
    async with before_an_emulator() as (gateway, emulator):
        assert (await ask(gateway, sent())).status_code == 200
        emulator.forget_pictures()
        miss = await ask(gateway, named())
        assert miss.status_code == 400
        assert error_of(miss)["message"].startswith("Cache miss for image at index 0")
        assert error_of(await ask(gateway, named()))["code"] == "unknown_image_uuid"
        assert (await ask(gateway, sent())).status_code == 200
        assert (await ask(gateway, named())).status_code == 200


async def test_another_refusal_forgets_nothing():
    async with before_an_emulator() as (gateway, _):
        assert (await ask(gateway, sent())).status_code == 200
        assert (await ask(gateway, named(), temperature=-1)).status_code == 400
        assert (await ask(gateway, named())).status_code == 200


async def test_a_smaller_picture_goes_under_a_name_of_its_own():
    async with before_an_emulator() as (gateway, _):
        whole = await ask(gateway, sent(LARGE))
        shrunk = await gateway.chat("?", sent(LARGE), max_tokens=1, headers={"x-gateway-resize": "thumbnail"})
        assert prompt_tokens(shrunk) < prompt_tokens(whole) / 4
        assert prompt_tokens(await gateway.chat("?", named(), max_tokens=1)) == prompt_tokens(shrunk)


async def test_a_picture_that_would_have_to_be_smaller_now_is_to_be_sent_again():
    async with before_an_emulator() as (gateway, _):
        assert (await ask(gateway, sent(LARGE))).status_code == 200
        answer = await gateway.chat("?", named(), headers={"x-gateway-resize": "thumbnail"})
        assert error_of(answer)["code"] == "unknown_image_uuid"
        assert "has it as 1400x1120, and it would have to be " in error_of(answer)["message"]


async def test_what_was_encoded_anew_is_named_by_what_was_sent():
    async with before_an_emulator() as (gateway, _):
        first = await ask(gateway, sent(TURNED))
        assert first.headers["x-gateway-images"] == "0;normalised;28x56"
        again = await ask(gateway, named())
        assert "x-gateway-images" not in again.headers
        assert prompt_tokens(again) == prompt_tokens(first)


async def test_named_images_are_trimmed_like_others():
    async with before_an_emulator(images={"max_forwarded": 1}) as (gateway, _):
        assert (await ask(gateway, sent())).status_code == 200
        turns = [
            {"role": "user", "content": [named("lost"), named("lost too")]},
            {"role": "assistant", "content": "Two."},
            {"role": "user", "content": [named()]},
        ]
        answer = await gateway.http.post(CHAT, json={"model": MODEL, "messages": turns, "max_tokens": 1})
        assert answer.status_code == 200, answer.text
        assert answer.headers["x-gateway-images"] == "0;trimmed, 1;trimmed"


async def test_before_it_is_sent_it_is_told_what_a_name_would_cost():
    async with before_an_emulator() as (gateway, _):
        body = chat("What is it?", named(), max_tokens=1)
        unknown = (await gateway.http.post("/gateway/preflight", json=body)).json()
        assert unknown["verdict"] == "refused", unknown
        first = await ask(gateway, sent())
        known = (await gateway.http.post("/gateway/preflight", json=body)).json()
        assert known["verdict"] == "admitted", known
        assert str(known["tokens"]["visual"]) == first.headers["x-gateway-visual-tokens"]


async def test_headers_alone_are_looked_at_and_names_are_made_of_the_whole_file():
    async with before_an_emulator(images={"verify": "header"}) as (gateway, _):
        small = await ask(gateway, sent(SMALL))
        assert prompt_tokens(await ask(gateway, sent(LARGE))) > prompt_tokens(small)
        assert (await ask(gateway, named())).status_code == 200


def names(server):
    return [
        part["uuid"]
        for visit in posts(server)
        for part in json.loads(visit.body)["messages"][0]["content"]
        if "uuid" in part
    ]


async def test_names_are_each_tenants_own_and_stay_the_same():
    async with model_server() as server:
        for _ in range(2):
            isolation = {"secret": "the same in every gateway"}
            async with live_gateway(server.base_url, tenants=TENANTS, keys=CLASSIFIES, isolation=isolation) as gateway:
                for who in ("a", "b", None):
                    assert (await ask(gateway, sent(), who=who)).status_code == 200
        first, again = names(server)[:3], names(server)[3:]
    assert first == again
    assert len(set(first)) == 3
    assert not {"u"} & set(first)


async def test_without_a_secret_every_start_has_names_of_its_own():
    async with model_server() as server:
        for _ in range(2):
            async with live_gateway(server.base_url) as gateway:
                assert (await ask(gateway, sent())).status_code == 200
        assert len(set(names(server))) == 2


async def test_two_tenants_that_cannot_be_told_apart_have_no_names(monkeypatch):
    monkeypatch.setattr("gateway.domain.tenancy._MOST_LATELY", 1)
    async with model_server() as server, live_gateway(server.base_url) as gateway:
        for who in ("a", "b", "c"):
            assert (await ask(gateway, sent(), who=who)).status_code == 200
        assert len(names(server)) == 1
        assert error_of(await ask(gateway, named(), who="b"))["code"] == "unknown_image_uuid"
        assert (await ask(gateway, named(), who="a")).status_code == 200


async def test_a_day_later_it_is_to_be_sent_again():
    clock = FakeClock()
    async with model_server() as server, live_gateway(server.base_url, clock=clock) as gateway:
        assert (await ask(gateway, sent())).status_code == 200
        clock.advance(24 * 3600)
        assert error_of(await ask(gateway, named()))["code"] == "unknown_image_uuid"


async def test_of_several_servers_the_one_is_asked_that_has_the_picture():
    async with (
        model_server() as a,
        model_server() as b,
        live_gateway({"a": a.base_url, "b": b.base_url}) as gateway,
    ):
        await gateway.until_up()
        uuids = [str(number) for number in range(8)]
        for uuid in uuids:
            assert (await ask(gateway, sent(uuid=uuid))).status_code == 200
        homes = [set(names(a)), set(names(b))]
        assert all(homes)
        for uuid in uuids:
            assert (await ask(gateway, named(uuid))).status_code == 200
        assert [set(names(a)), set(names(b))] == homes
        for seed in range(8):  # a first picture that by itself might draw the request to either
            fresh = image(data_url(encoded(picture(56, 56, seed=seed))))
            assert (await ask(gateway, fresh, named("3"))).status_code == 200
        await a.stop()
        await until(lambda: gateway.metrics("gateway_upstream_up") == {'{upstream="b"}': 1})
        codes = {(await ask(gateway, named(uuid))).status_code for uuid in uuids}
        assert codes == {200, 400}


@pytest.mark.parametrize("status", [500, 503])
async def test_a_server_that_fails_is_not_counted_on_to_have_it_still(status):
    answers = iter([200, status])

    async def answer(visit):
        code = next(answers, 200)
        body = b'{"choices": []}' if code == 200 else b'{"error": {"message": "no"}}'
        await visit.answer(f"{code} X", body, "content-type: application/json")

    async with model_server(answer) as server, live_gateway(server.base_url) as gateway:
        assert (await ask(gateway, sent())).status_code == 200
        assert (await ask(gateway, named())).status_code == status
        is_known = (await ask(gateway, named())).status_code == 200
        assert is_known is (status == 503)
