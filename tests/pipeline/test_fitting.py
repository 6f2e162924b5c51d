"""The same model with different contexts: refused for good is only what fits none of its servers."""

from contextlib import asynccontextmanager

from tests.support.homes import picture_at
from tests.support.live_gateway import MODEL, chat, live_gateway
from tests.support.model_server import error_of, model_server, posts

AT_A = picture_at("a")
LONG, TOO_LONG = "word " * 8000, "word " * 400_000


@asynccontextmanager
async def short_and_long(models=(MODEL,)):
    async with (
        model_server(context=64) as a,
        model_server(context=4096, models=models) as b,
        live_gateway({"a": a.base_url, "b": b.base_url}) as gateway,
    ):
        await gateway.until_up()
        yield gateway, a, b


async def test_what_is_too_long_for_the_server_that_was_picked_goes_to_one_with_more_room():
    async with short_and_long() as (gateway, a, b):
        assert (await gateway.chat(LONG, AT_A)).status_code == 200
        assert (len(posts(a)), len(posts(b))) == (0, 1)
        assert (await gateway.http.post("/gateway/preflight", json=chat(LONG, AT_A))).json()["verdict"] == "admitted"
        await gateway.until_released()


async def test_what_is_too_long_for_all_is_refused_as_the_first_has_it():
    async with short_and_long() as (gateway, _, _b):
        answer = await gateway.chat(TOO_LONG, AT_A)
        assert (answer.status_code, error_of(answer)["code"]) == (400, "context_length_exceeded")
        assert "64" in error_of(answer)["message"]


async def test_only_servers_that_have_the_model_count():
    async with short_and_long(models=["another"]) as (gateway, _, b):
        assert (await gateway.chat(LONG, AT_A)).status_code == 400
        assert not posts(b)
