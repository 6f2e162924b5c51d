"""Under pressure a model's fallback serves, where that is less pressed and the request fits it; and it says so."""

import asyncio
import json
from contextlib import asynccontextmanager

from gateway.domain.quantities import Amounts
from tests.support.live_gateway import chat, image, live_gateway, until
from tests.support.model_server import answer_chat, model_server, posts
from tests.support.pictures import data_url, encoded, picture

MODELS = [
    {"name": "large", "family": "qwen2_5_vl", "fallback": "small"},
    {"name": "small", "family": "qwen2_5_vl"},
]
RUNG = {"enter": 0.1, "leave": 0.05}


class Servers:
    """A gateway with ten places at each of two servers, that of the large model and that of the small one."""

    def __init__(self, gateway, large, small):
        self.gateway, self.large, self.small = gateway, large, small
        self.may_go_on = asyncio.Event()
        self._held = []

    async def serve(self, visit):
        if b"Hold this." in visit.body:
            await self.may_go_on.wait()
        await answer_chat(visit)

    async def hold(self, model, server, *content, places=1):
        for _ in range(places):
            before = len(posts(server))
            self._held.append(asyncio.create_task(self.ask("Hold this.", *content, model=model)))
            await until(lambda before=before: len(posts(server)) > before)

    async def release(self):
        self.may_go_on.set()
        for each in self._held:
            assert (await each).status_code == 200
        await self.gateway.until_released()

    async def ask(self, *content, model="large", **fields):
        return await self.gateway.chat(*content, model=model, **fields)


@asynccontextmanager
async def servers(pressure=None, contexts=(32_768, 32_768), small_serves=("small",), **sections):
    holder = []

    async def script(visit):
        await holder[0].serve(visit)

    sections = {"budget": {"sequences": 10}, "pressure": pressure or {"fallback": RUNG}, "models": MODELS} | sections
    async with (
        model_server(script, models=["large"], context=contexts[0]) as large,
        model_server(script, models=small_serves, context=contexts[1]) as small,
        live_gateway({"a": large.base_url, "b": small.base_url}, **sections) as gateway,
    ):
        await gateway.until_up()
        holder.append(Servers(gateway, large, small))
        try:
            yield holder[0]
        finally:
            await holder[0].release()


async def test_without_pressure_the_asked_model_serves():
    async with servers() as two:
        answer = await two.ask()
        assert "x-gateway-model" not in answer.headers
        assert (len(posts(two.large)), len(posts(two.small))) == (1, 0)


async def test_under_pressure_its_fallback_does_and_all_that_tells_says_so():
    async with servers() as two:
        await two.hold("large", two.large)
        body = chat("What?", image(data_url(encoded(picture(56, 56)))), model="large")
        answer = await two.gateway.http.post("/v1/chat/completions", json=body)
        assert answer.status_code == 200
        assert answer.headers["x-gateway-model"] == "small"
        assert answer.headers["x-gateway-pressure"] == "fallback"
        (visit,) = posts(two.small)
        assert json.loads(visit.body) == body | {"model": "small"}
        (line,) = await two.gateway.log(1)
        assert (line["model"], line["asked_model"], line["upstream"]) == ("small", "large", "b")
        assert line["rungs"] == "fallback"
        assert two.gateway.metrics("gateway_pressure_requests_total") == {'{rung="fallback"}': 1}
        finished = two.gateway.metrics("gateway_requests_total")
        assert finished == {'{endpoint="/v1/chat/completions",model="small",outcome="finished"}': 1}


async def test_a_model_that_has_none_is_served_as_ever():
    async with servers() as two:
        await two.hold("small", two.small)
        answer = await two.ask(model="small")
        assert "x-gateway-model" not in answer.headers


async def test_not_where_the_fallback_is_pressed_more():
    async with servers() as two:
        await two.hold("large", two.large)
        await two.hold("small", two.small, places=2)
        answer = await two.ask()
        assert "x-gateway-model" not in answer.headers
        assert len(posts(two.large)) == 2


async def test_not_where_no_server_has_the_fallback():
    async with servers(small_serves=["another"]) as two:
        await two.hold("large", two.large)
        assert "x-gateway-model" not in (await two.ask()).headers


async def test_not_where_the_request_would_never_fit_the_fallback():
    async with servers(contexts=(65_536, 64)) as two:
        await two.hold("large", two.large)
        answer = await two.ask("word " * 8000)
        assert answer.status_code == 200
        assert "x-gateway-model" not in answer.headers
        assert not posts(two.small)


async def test_not_where_the_fallback_has_something_against_it_that_the_asked_model_has_not():
    photo = image(data_url(encoded(picture(56, 56))))
    async with servers() as two:
        await two.hold("large", two.large)
        two.gateway.application._running.backends[1].models.engine.image_limit.learn(1)
        answer = await two.ask(photo, photo)
        assert answer.status_code == 200
        assert "x-gateway-model" not in answer.headers
        assert not posts(two.small)


async def test_not_where_the_server_of_the_fallback_turns_requests_away():
    async with servers() as two:
        await two.hold("large", two.large)
        two.gateway.application._running.backends[1].follower.pushed_back(60.0, 1)
        answer = await two.ask()
        assert "x-gateway-model" not in answer.headers
        assert not posts(two.small)


async def test_on_one_server_it_may_be_another_model_of_the_same():
    async with servers(small_serves=["small", "large"]) as two:
        await two.large.stop()
        await until(lambda: two.gateway.metrics("gateway_upstream_up") == {'{upstream="b"}': 1})
        await two.hold("large", two.small)
        answer = await two.ask()
        assert answer.headers["x-gateway-model"] == "small"
        assert json.loads(posts(two.small)[-1].body)["model"] == "small"


async def test_it_meets_the_pressure_of_the_server_that_serves_it():
    """That of the small model is not pressed, so its answers are not cut."""
    pressure = {"max_tokens": {"enter": 0.15, "leave": 0.05, "tokens": 7}, "fallback": {"enter": 0.2, "leave": 0.05}}
    async with servers(pressure) as two:
        await two.hold("large", two.large, places=2)
        answer = await two.ask(max_tokens=100)
        assert answer.headers["x-gateway-pressure"] == "fallback"
        assert json.loads(posts(two.small)[-1].body)["max_tokens"] == 100


async def test_preflight_tells_of_it():
    async with servers() as two:
        await two.hold("large", two.large)
        answer = await two.gateway.http.post("/gateway/preflight", json=chat("What?", model="large"))
        assert answer.json()["pressure"]["changes"] == "fallback"
        assert answer.json()["model"]["name"] == "small"


async def test_shadow_mode_tells_of_it_and_sends_what_came():
    async with servers(mode="shadow") as two:
        await two.hold("large", two.large)
        answer = await two.ask()
        assert answer.headers["x-gateway-shadow-pressure"] == "fallback"
        assert "x-gateway-model" not in answer.headers
        assert json.loads(posts(two.large)[-1].body)["model"] == "large"
        assert not posts(two.small)


async def test_in_shadow_mode_only_the_model_that_served_is_taught_and_only_its_engine_has_something_to_do():
    photo = image(data_url(encoded(picture(1400, 1400))))
    async with servers(mode="shadow", contexts=(32_768, 8192)) as two:
        await two.hold("large", two.large)
        at_large, at_small = two.gateway.application._running.backends
        await two.hold("large", two.large, photo)
        assert at_large.gate.unadmitted.sequences == 1
        assert not at_small.gate.statistics().leases
        assert at_small.gate.unadmitted == Amounts()
        await two.release()
        (line,) = [each for each in await two.gateway.log(2) if "shadow_rungs" in each]
        assert (line["model"], line["upstream"], line["limits"][0]) == ("large", "a", 32_768)
        assert at_large.gate.unadmitted == Amounts()
        assert not at_large.models.engine.images


async def test_a_fallback_that_fails_is_not_asked_again_but_the_asked_model_is():
    async def fails(visit):
        await visit.answer("500 Internal Server Error", b"{}")

    async with servers() as two:
        two.small.script = fails_posts(two.small.script, fails)
        await two.hold("large", two.large)
        answer = await two.ask()
        assert answer.status_code == 200
        assert "x-gateway-model" not in answer.headers
        assert (len(posts(two.small)), len(posts(two.large))) == (1, 2)
        assert json.loads(posts(two.large)[-1].body)["model"] == "large"


def fails_posts(others, fails):
    async def script(visit):
        await (fails if visit.method == "POST" else others)(visit)

    return script
