"""The same model with different contexts: refused for good is only what fits none of its servers."""

from contextlib import asynccontextmanager

from gateway.domain.outcome import Ending
from gateway.domain.quantities import Amounts
from gateway.domain.ticket import Ticket
from gateway.pipeline import fitting
from tests.support.homes import picture_at
from tests.support.live_gateway import MODEL, chat, live_gateway
from tests.support.model_server import error_of, model_server, posts

AT_A = picture_at("a")
LONG, TOO_LONG = "word " * 8000, "word " * 400_000


@asynccontextmanager
async def short_and_long(models=(MODEL,), contexts=(64, 4096), **sections):
    async with (
        model_server(context=contexts[0]) as a,
        model_server(context=contexts[1], models=models) as b,
        live_gateway({"a": a.base_url, "b": b.base_url}, **sections) as gateway,
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


async def test_where_it_fits_it_meets_the_pressure_and_not_now_is_no_never():
    refusing = {"pressure": {"refuse": {"enter": 0.1, "leave": 0.05}}, "budget": {"sequences": 10}}
    async with short_and_long(**refusing) as (gateway, a, b):
        held = held_at(gateway, "b")
        answer = await gateway.chat(LONG, AT_A)
        assert (answer.status_code, "retry-after" in answer.headers) == (429, True)
        assert (await gateway.chat(TOO_LONG, AT_A)).status_code == 400, "it fits neither of them, however busy they are"
        assert not posts(a) + posts(b)
        held.close(Ending.IGNORED)
        await gateway.until_released()


async def test_what_another_server_has_against_it_is_not_what_the_client_is_told():
    async with short_and_long() as (gateway, _, b):
        gateway.application._running.backends[1].models.engine.image_limit.learn(1)
        answer = await gateway.chat(LONG, AT_A, AT_A)
        assert (answer.status_code, error_of(answer)["code"]) == (400, "context_length_exceeded")
        assert "64" in error_of(answer)["message"]
        (line,) = await gateway.log(1)
        assert line["limits"][0] == 64
        assert not posts(b)


async def test_of_servers_that_are_alike_one_says_it_for_all(monkeypatch):
    priced = []

    async def price(parts, exchange, request):
        priced.append(exchange.backend.name)
        return await its_own(parts, exchange, request)

    its_own = fitting.price
    monkeypatch.setattr(fitting, "price", price)
    async with short_and_long(contexts=(64, 64)) as (gateway, _a, _b):
        assert (await gateway.chat(LONG, AT_A)).status_code == 400
        assert priced == ["a"]


async def test_of_several_that_it_fits_the_least_pressed_serves_it():
    async with (
        model_server(context=64) as a,
        model_server() as b,
        model_server() as c,
        live_gateway({"a": a.base_url, "b": b.base_url, "c": c.base_url}, budget={"sequences": 1}) as gateway,
    ):
        await gateway.until_up()
        held = held_at(gateway, "b")
        assert (await gateway.chat(LONG, picture_at("a", "abc"))).status_code == 200
        assert len(posts(c)) == 1
        held.close(Ending.IGNORED)


def held_at(gateway, name):
    """One place."""
    (gate,) = [backend.gate for backend in gateway.application._running.backends if backend.name == name]
    held = gate.lease(Ticket(Amounts(sequences=1), 0.0, 0.0), 0.0)
    gate.grow(held.held)
    return held
