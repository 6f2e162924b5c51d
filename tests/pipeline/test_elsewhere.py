"""One retry at another server, before a byte of an answer has come back: and everything is given back at the first."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest

from gateway.domain.outcome import Ending
from gateway.domain.quantities import Amounts
from gateway.domain.ticket import Ticket
from tests.support.clock import FakeClock
from tests.support.homes import picture_at
from tests.support.live_gateway import MODEL, chat, live_gateway, until
from tests.support.model_server import EVENTS, Patient, answer_chat, answer_never, error_of, model_server, posts
from tests.support.processes import free_port

AT_A = picture_at("a")
FULL = Ticket(Amounts(sequences=1), 0.0, 0.0)
REFUSAL = b'{"error": {"message": "no", "type": "x", "param": null, "code": 1}}'


def answering(status, *headers):
    async def script(visit):
        await visit.answer(status, REFUSAL, "content-type: application/json", *headers)

    return script


async def resets(visit):
    visit.reset()
    raise ConnectionError


async def breaks_mid_stream(visit):
    await visit.stream_head()
    await visit.chunk(EVENTS[0])
    visit.reset()
    raise ConnectionError


@asynccontextmanager
async def two_servers(first, second=answer_chat, **sections):
    async with (
        model_server(first) as a,
        model_server(second) as b,
        live_gateway({"a": a.base_url, "b": b.base_url}, **sections) as gateway,
    ):
        await gateway.until_up()
        yield gateway, a, b


@pytest.mark.parametrize(
    "first",
    [
        answering("500 Internal Server Error"),
        answering("502 Bad Gateway"),
        answering("503 Service Unavailable"),
        answering("429 Too Many Requests"),
        resets,
    ],
    ids=["500", "502", "503", "429", "reset"],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_another_server_answers_what_the_first_did_not(first, stream):
    async with two_servers(first) as (gateway, a, b):
        answer = await gateway.chat("What is it?", AT_A, stream=stream)
        assert answer.status_code == 200
        assert "Yes." in answer.text
        assert (len(posts(a)), len(posts(b))) == (1, 1)
        assert json.loads(posts(a)[0].body) == json.loads(posts(b)[0].body)
        await gateway.until_released()
        assert gateway.ended() == {"finished": 1}
        assert gateway.metrics("gateway_sent_elsewhere_total") == {'{upstream="a"}': 1}
        (line,) = await gateway.log(1)
        assert (line["upstream"], line["failed_upstream"]) == ("b", "a")


async def test_a_server_to_which_no_connection_can_be_made():
    async with two_servers(answer_chat, upstream={"poll_seconds": 60}) as (gateway, a, b):
        await a.stop()
        assert (await gateway.chat("What is it?", AT_A)).status_code == 200
        assert len(posts(b)) == 1
        await gateway.until_released()


async def test_what_needs_no_place_at_the_engine_is_sent_again_too():
    async with two_servers(answering("500 Internal Server Error")) as (gateway, a, b):
        for _ in range(40):  # each goes to either, by its id
            answer = await gateway.http.post("/detokenize", json={"model": MODEL, "tokens": [1]})
            assert answer.status_code == 200
            if posts(a):
                break
        assert posts(a)
        assert posts(b)
        await gateway.until_released()


@pytest.mark.parametrize(
    "status", ["400 Bad Request", "404 Not Found", "422 Unprocessable Entity", "504 Gateway Timeout"]
)
async def test_what_the_first_server_says_of_the_request_is_passed_on(status):
    async with two_servers(answering(status)) as (gateway, _, b):
        answer = await gateway.chat("What is it?", AT_A)
        assert (answer.status_code, answer.content) == (int(status[:3]), REFUSAL)
        assert not posts(b)
        await gateway.until_released()


async def test_a_429_that_may_be_the_limit_of_the_clients_own_key_is_its_own():
    forward = {"upstream": {"forward_client_key": True}}
    async with two_servers(answering("429 Too Many Requests"), **forward) as (gateway, _, b):
        answer = await gateway.chat("What is it?", AT_A, headers={"authorization": "Bearer sk-mine"})
        assert answer.status_code == 429
        assert not posts(b)


async def test_never_after_the_first_byte():
    async with two_servers(breaks_mid_stream) as (gateway, _, b):
        answer = await gateway.chat("What is it?", AT_A, stream=True)
        first, error, done = answer.text.strip().split("\n\n")
        assert (f"{first}\n\n".encode(), done) == (EVENTS[0], "data: [DONE]")
        assert json.loads(error.removeprefix("data: "))["error"]["code"] == "upstream_error"
        assert not posts(b)
        await gateway.until_released()
        assert gateway.ended() == {"upstream_broke": 1}


async def test_never_after_a_long_silence():
    limits = {"total_timeout_seconds": 0.2}
    async with two_servers(answer_never, upstream=limits) as (gateway, _, b):
        assert (await gateway.chat("What is it?", AT_A)).status_code == 504
        assert not posts(b)
        await gateway.until_released()


@pytest.mark.parametrize("second", [answering("500 Internal Server Error"), resets], ids=["500", "reset"])
async def test_exactly_once_and_neither_server_is_blamed_for_a_request_that_breaks_both(second):
    async with two_servers(answering("500 Internal Server Error"), second) as (gateway, a, b):
        for count in range(1, 8):
            answer = await gateway.chat("What is it?", AT_A)
            assert answer.status_code == (500 if second is not resets else 502)
            assert (len(posts(a)), len(posts(b))) == (count, count)
        await gateway.until_released()
        assert gateway.metrics("gateway_upstream_healthy") == {'{upstream="a"}': 1, '{upstream="b"}': 1}


async def test_a_server_that_goes_on_failing_while_the_other_is_busy_is_passed_over_too():
    busy = answering("503 Service Unavailable", "retry-after-ms: 1")
    async with two_servers(answering("500 Internal Server Error"), busy) as (gateway, a, b):
        for _ in range(5):
            assert (await gateway.chat("What is it?", AT_A)).status_code == 503
        assert (len(posts(a)), len(posts(b))) == (5, 5)
        await gateway.until_released()
        assert gateway.metrics("gateway_upstream_healthy") == {'{upstream="b"}': 1}


async def test_a_server_that_goes_on_failing_is_passed_over():
    async with two_servers(answering("500 Internal Server Error")) as (gateway, a, _):
        for _ in range(8):
            assert (await gateway.chat("What is it?", AT_A)).status_code == 200
        assert len(posts(a)) == 5
        assert gateway.metrics("gateway_upstream_healthy") == {'{upstream="b"}': 1}
        await gateway.until_released()


async def test_back_pressure_is_no_failure_but_others_serve_meanwhile():
    async with two_servers(answering("503 Service Unavailable", "retry-after: 30")) as (gateway, a, b):
        for _ in range(8):
            assert (await gateway.chat("What is it?", AT_A)).status_code == 200
        assert (len(posts(a)), len(posts(b))) == (1, 8)
        assert gateway.metrics("gateway_upstream_healthy") == {'{upstream="a"}': 1, '{upstream="b"}': 1}


async def test_in_a_storm_of_429_each_is_asked_once():
    storm = answering("429 Too Many Requests", "retry-after: 30")
    async with two_servers(storm, storm, queue={"wait_seconds": 0.2}) as (gateway, a, b):
        first = await gateway.chat("What is it?", AT_A)
        assert first.status_code == 429
        later = await asyncio.gather(*(gateway.chat("What is it?", AT_A) for _ in range(20)))
        assert {answer.status_code for answer in later} == {503}
        assert (len(posts(a)), len(posts(b))) == (1, 1)
        await gateway.until_released()


async def test_alone_it_is_asked_whatever_it_has_answered():
    async with model_server(answering("500 Internal Server Error")) as only, live_gateway(only.base_url) as gateway:
        await gateway.until_up()
        for count in range(1, 12):
            assert (await gateway.chat()).status_code == 500
            assert len(posts(only)) == count
        assert not gateway.metrics("gateway_upstream_healthy")
        assert (await gateway.http.get("/readyz")).status_code == 200


async def test_not_at_a_server_that_does_not_serve_the_model():
    async with (
        model_server(answering("500 Internal Server Error")) as a,
        model_server(models=["other"]) as b,
        live_gateway({"a": a.base_url, "b": b.base_url}) as gateway,
    ):
        await gateway.until_up()
        assert (await gateway.chat()).status_code == 500
        assert not posts(b)


async def test_not_at_a_server_that_is_down():
    away = f"http://127.0.0.1:{free_port()}"
    async with (
        model_server(answering("500 Internal Server Error")) as a,
        live_gateway({"a": a.base_url, "b": away}) as gateway,
    ):
        await until(lambda: gateway.metrics("gateway_upstream_up") == {'{upstream="a"}': 1})
        answer = await gateway.chat()
        assert (answer.status_code, answer.content) == (500, REFUSAL)


@asynccontextmanager
async def large_and_small(first):
    """The second server has a shorter context."""
    async with (
        model_server(first) as a,
        model_server(context=1024) as b,
        live_gateway({"a": a.base_url, "b": b.base_url}) as gateway,
    ):
        await gateway.until_up()
        yield gateway, b


async def test_the_plan_is_made_again_for_the_other_server():
    pictures = [picture_at("a", side=side) for side in (560, 588, 616)]
    turns = [
        message
        for each in pictures
        for message in (
            {"role": "user", "content": [{"type": "text", "text": "And this?"}, each]},
            {"role": "assistant", "content": "Yes."},
        )
    ]
    body = {"model": MODEL, "max_tokens": 16, "messages": turns[:-1]}
    async with large_and_small(answering("500 Internal Server Error")) as (gateway, b):
        answer = await gateway.http.post("/v1/chat/completions", json=body)
        assert answer.status_code == 200
        (visit,) = posts(b)
        assert visit.body.count(b"image removed to fit the context") == 2
        assert answer.headers["x-gateway-images"].count("trimmed") == 2


@pytest.mark.parametrize(
    ("first", "status", "code"),
    [
        (answering("500 Internal Server Error"), 502, "upstream_error"),
        (answering("503 Service Unavailable"), 503, "server_is_overloaded"),
        (resets, 502, "upstream_error"),
    ],
    ids=["500", "503", "reset"],
)
async def test_what_never_fits_the_other_server_may_come_back_to_the_first(first, status, code):
    async with large_and_small(first) as (gateway, b):
        answer = await gateway.chat("word " * 40_000, AT_A)
        assert (answer.status_code, error_of(answer)["code"]) == (status, code)
        assert not posts(b)
        await gateway.until_released()


async def test_a_server_whose_500_no_other_could_better_is_held_to_be_broken():
    async with large_and_small(answering("500 Internal Server Error")) as (gateway, _):
        for _ in range(5):
            assert (await gateway.chat("word " * 40_000, AT_A)).status_code == 502
        assert gateway.metrics("gateway_upstream_healthy") == {'{upstream="b"}': 1}


async def test_a_client_that_leaves_while_the_second_server_works_leaves_nothing_behind():
    begun = asyncio.Event()

    async def slow(visit):
        begun.set()
        await visit.reader.read()

    async with two_servers(answering("500 Internal Server Error"), slow) as (gateway, _, b):
        ask = asyncio.create_task(gateway.http.post("/v1/chat/completions", json=chat("What is it?", AT_A)))
        await begun.wait()
        ask.cancel()
        await gateway.until_released()
        assert len(posts(b)) == 1
        await until(lambda: gateway.ended() == {"client_left": 1})


async def test_both_waits_count_and_together_they_are_no_longer_than_one():
    """The second server is full, and the first keeps one of them waiting for more than half of its time."""
    clock, at_a, at_b = FakeClock(), Patient(answering("500 Internal Server Error")), Patient()
    sections = {"budget": {"sequences": 1}, "queue": {"wait_seconds": 1.0}}
    async with two_servers(at_a, at_b, clock=clock, **sections) as (gateway, a, b):
        inside = asyncio.create_task(gateway.chat("What is it?", picture_at("b")))
        await until(lambda: len(posts(b)) == 1)
        both = [asyncio.create_task(gateway.chat("What is it?", AT_A)) for _ in range(2)]
        await until(lambda: len(posts(a)) == 1 and gateway.metrics("gateway_queue_depth") == {'{upstream="a"}': 1})
        clock.advance(0.6)
        at_a.may_answer.set()
        await until(lambda: gateway.metrics("gateway_queue_depth") == {'{upstream="b"}': 2})
        clock.advance(0.4)
        (line,) = await gateway.log(1)
        assert line["queue_ms"] == pytest.approx(1000)
        assert gateway.metrics("gateway_queue_depth") == {'{upstream="b"}': 1}
        clock.advance(0.6)
        assert [line["queue_ms"] for line in await gateway.log(2)] == pytest.approx([1000, 1000])
        assert {(await answer).status_code for answer in both} == {503}
        at_b.may_answer.set()
        assert (await inside).status_code == 200
        await gateway.until_released()


@asynccontextmanager
async def one_inside_and_one_that_waits(second_serves=(MODEL,), clock=None):
    """Both at the first server, which has one place."""
    patient = Patient()
    async with (
        model_server(patient) as a,
        model_server(models=second_serves) as b,
        live_gateway({"a": a.base_url, "b": b.base_url}, clock=clock, budget={"sequences": 1}) as gateway,
    ):
        await gateway.until_up()
        asks = [asyncio.create_task(gateway.chat("What is it?", AT_A))]
        await until(lambda: len(posts(a)) == 1)
        # It is busy, so a second one would go to the other server, were that not as busy.
        at_b, lease = gateway.application._running.backends[1], None
        if second_serves == (MODEL,):
            lease = at_b.gate.lease(FULL, 0.0)
            at_b.gate.grow(FULL.amounts)
        asks.append(asyncio.create_task(gateway.chat("What is it?", AT_A)))
        await until(lambda: gateway.metrics("gateway_queue_depth") == {'{upstream="a"}': 1})
        if lease is not None:
            lease.close(Ending.IGNORED)
        yield gateway, a, b, patient, asks


async def test_who_waits_for_a_server_that_dies_is_served_by_another():
    async with one_inside_and_one_that_waits() as (gateway, a, b, _, asks):
        await a.stop()
        assert [(await each).status_code for each in asks] == [200, 200]
        assert len(posts(b)) == 2
        await gateway.until_released()


async def test_who_waits_for_a_server_that_froze_is_served_by_another():
    clock = FakeClock()
    async with one_inside_and_one_that_waits(clock=clock) as (gateway, _, b, patient, (inside, waiting)):
        clock.advance(0.2)
        gateway.application._running.backends[0].breaker.froze(clock())
        answer = await waiting
        assert answer.status_code == 200
        assert int(answer.headers["x-gateway-queue-ms"]) == 200, "the time that it waited in vain counts"
        assert len(posts(b)) == 1
        patient.may_answer.set()
        assert (await inside).status_code == 200
        await gateway.until_released()


async def test_who_waits_for_a_server_that_alone_has_the_model_goes_on_waiting():
    async with one_inside_and_one_that_waits(second_serves=("another",)) as (gateway, a, b, patient, asks):
        backend = gateway.application._running.backends[0]
        backend.breaker.froze(backend.gate.now)
        looks = len(a.visits)
        await until(lambda: len(a.visits) > looks + 20, lambda: "it is looked at no more")
        assert gateway.metrics("gateway_queue_depth") == {'{upstream="a"}': 1}
        patient.may_answer.set()
        assert [(await each).status_code for each in asks] == [200, 200]
        assert not posts(b)
        await gateway.until_released()


async def test_a_client_that_leaves_while_it_is_sent_away_leaves_nothing_behind():
    async with one_inside_and_one_that_waits() as (gateway, a, _, _, asks):
        for ask in asks:
            ask.cancel()
        await a.stop()
        await gateway.until_released()
        assert not any(backend.waiting for backend in gateway.application._running.backends)
