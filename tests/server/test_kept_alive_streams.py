"""Streams that are begun while they wait, through a live gateway with one place, as SDKs and raw clients see them."""

import asyncio
import json
import threading
from contextlib import asynccontextmanager

import openai
import pytest

from gateway.imaging import workers
from tests.support.isolation import InThisProcess
from tests.support.live_gateway import CHAT, MODEL, chat, image, live_gateway, until
from tests.support.model_server import EVENTS, Patient, answer_chat, answer_never, error_of, model_server, posts
from tests.support.pictures import data_url, encoded, picture
from tests.support.raw_client import raw_client

AFTER = {"streaming": {"keep_alive_after_seconds": 0.05}}
ONE_PLACE = {"budget": {"sequences": 1}}
WAITING = b": waiting\n\n"
UNASKED = b"".join(EVENTS)
STREAM = json.dumps(chat(stream=True)).encode()
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":7,"total_tokens":12,"completion_tokens":5}}\n\n'


@asynccontextmanager
async def full_house(then=answer_chat, **sections):
    """A gateway whose only place is taken until `patient.may_answer` is set."""
    patient = Patient(then=then)
    sections = AFTER | ONE_PLACE | sections
    async with model_server(patient) as upstream, live_gateway(upstream.base_url, **sections) as gateway:
        await gateway.until_up()
        first = asyncio.create_task(gateway.chat("first"))
        await until(lambda: gateway.metrics("gateway_held").get('{resource="sequences"}') == 1)
        yield gateway, patient, upstream
        patient.may_answer.set()
        assert (await first).status_code == 200
        await gateway.until_released()


def events_of(text: bytes) -> bytes:
    """The stream without what is no event."""
    return b"".join(block + b"\n\n" for block in text.split(b"\n\n")[:-1] if not block.startswith(b":"))


def told_error(text: bytes) -> dict:
    """The error in which a stream ends."""
    assert text.startswith(WAITING)
    event, done = events_of(text).split(b"\n\n")[:2]
    assert done == b"data: [DONE]"
    (error,) = json.loads(event.removeprefix(b"data: ")).values()
    return error


def pieces_come(gateway) -> int:
    """Pieces of the model server's answers that the gateway has read: what comes after that cannot overtake them."""
    return gateway.application._running.backends[0].upstream.statistics().pieces


@asynccontextmanager
async def waiting_stream(gateway, body=STREAM):
    """The answer to a stream that has begun to wait with its 200."""
    request = gateway.http.build_request("POST", CHAT, content=body, headers={"content-type": "application/json"})
    answer = await gateway.http.send(request, stream=True)
    try:
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        yield answer
    finally:
        await answer.aclose()


class TestServedInTheEnd:
    async def test_the_upstreams_stream_goes_on_behind_the_comments(self):
        async with full_house() as (gateway, patient, upstream):
            async with waiting_stream(gateway) as answer:
                assert "x-gateway-queue-ms" not in answer.headers
                assert len(posts(upstream)) == 1
                patient.may_answer.set()
                text = await answer.aread()
            assert text.startswith(WAITING)
            assert events_of(text) == UNASKED
            told = dict(line.split(b": ")[-2:] for line in text.split(b"\n") if line.startswith(b": x-"))
            assert int(told[b"x-gateway-queue-ms"]) >= 50
            assert told[b"x-gateway-visual-tokens"] == b"0"
            await until(lambda: gateway.ended() == {"finished": 2})
            assert gateway.metrics("gateway_streams_kept_alive_total") == {"": 1}

    async def test_usage_that_was_not_asked_for_is_still_taken_out(self):
        async def counting(visit):
            assert b"include_usage" in visit.body
            await visit.stream_head()
            for event in (*EVENTS[:-1], USAGE, EVENTS[-1]):
                await visit.chunk(event)
            await visit.write(b"0\r\n\r\n")

        async with full_house(counting) as (gateway, patient, _):
            async with waiting_stream(gateway) as answer:
                patient.may_answer.set()
                assert events_of(await answer.aread()) == UNASKED
            lines = await gateway.log(2)
        assert [line.get("actual_output_tokens") for line in lines] == [2, 5]

    async def test_openais_sdk_reads_it(self):
        async with full_house() as (gateway, patient, _), sdk_of(gateway) as client:
            stream = await client.chat.completions.create(model=MODEL, messages=[USER], stream=True)
            patient.may_answer.set()
            assert "".join([event.choices[0].delta.content or "" async for event in stream]) == "Yes."

    async def test_who_is_served_in_time_gets_all_headers_and_no_comment(self):
        sections = {"streaming": {"keep_alive_after_seconds": 20}}
        async with model_server() as upstream, live_gateway(upstream.base_url, **sections) as gateway:
            answer = await gateway.chat(stream=True)
            assert (answer.content, "x-gateway-queue-ms" in answer.headers) == (UNASKED, True)

    async def test_an_answer_in_one_piece_waits_for_its_status(self):
        async with full_house(queue={"wait_seconds": 0.3}) as (gateway, _, _):
            answer = await gateway.chat()
            assert (answer.status_code, error_of(answer)["code"]) == (503, "server_is_overloaded")
            assert answer.headers["x-gateway-reason"] == "deadline_passed"

    async def test_where_nothing_is_set_nothing_is_said(self):
        async with full_house(streaming={}, queue={"wait_seconds": 0.3}) as (gateway, _, _):
            assert (await gateway.chat(stream=True)).status_code == 503

    async def test_a_client_of_http_1_0(self):
        async with full_house() as (gateway, patient, _), raw_client(gateway.host, gateway.port) as client:
            head = f"POST {CHAT} HTTP/1.0\r\ncontent-type: application/json\r\ncontent-length: {len(STREAM)}\r\n\r\n"
            client.send(head.encode() + STREAM)
            await client.reader.readuntil(b"\r\n\r\n" + WAITING)
            patient.may_answer.set()
            assert events_of(await client.reader.read(-1)) == UNASKED


USER = {"role": "user", "content": "Hm?"}


@asynccontextmanager
async def sdk_of(gateway):
    """With its retries: none must be made of a stream that has begun."""
    url = f"http://{gateway.host}:{gateway.port}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=2, timeout=20) as client:
        yield client


class TestRefusedInTheEnd:
    async def test_waited_in_vain(self):
        async with full_house(queue={"wait_seconds": 0.3}) as (gateway, _, _):
            async with waiting_stream(gateway) as answer:
                text = await answer.aread()
            error = told_error(text)
            assert (error["code"], error["type"], error["param"]) == ("server_is_overloaded", "server_error", None)
            assert b": x-gateway-reason: deadline_passed\n" in text
            (line,) = await gateway.log(1)
            assert (line["outcome"], line["status"], line["reason"]) == ("refused", 200, "deadline_passed")
            assert line["is_kept_alive"]
            assert gateway.rejected() == {"deadline_passed": 1}

    async def test_openais_sdk_raises_it_and_does_not_try_again(self):
        async with full_house(queue={"wait_seconds": 0.3}) as (gateway, _, _), sdk_of(gateway) as client:
            stream = await client.chat.completions.create(model=MODEL, messages=[USER], stream=True)
            with pytest.raises(openai.APIError, match="waited"):
                await anext(aiter(stream))
            assert gateway.rejected() == {"deadline_passed": 1}

    async def test_by_the_upstream(self):
        refusal = {"error": {"message": "too long\n", "type": "BadRequestError", "param": None, "code": 400}}

        async def unwilling(visit):
            await visit.answer(
                "400 Bad Request", json.dumps(refusal, indent=1).encode(), "content-type: application/json"
            )

        async with full_house(unwilling) as (gateway, patient, _):
            async with waiting_stream(gateway) as answer:
                patient.may_answer.set()
                assert told_error(await answer.aread()) == refusal["error"]
            line = (await gateway.log(2))[-1]
            assert (line["outcome"], line["status"], line["upstream_status"]) == ("upstream_refused", 200, 400)

    async def test_by_an_upstream_that_goes_away(self):
        async def reset(visit):
            visit.reset()

        async with full_house(reset) as (gateway, patient, _), waiting_stream(gateway) as answer:
            patient.may_answer.set()
            assert told_error(await answer.aread())["code"] == "upstream_error"

    async def test_by_an_upstream_that_breaks_off_in_its_refusal(self):
        async def broken(visit):
            come = pieces_come(gateway)
            await visit.write(b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 99\r\n\r\nEngineCore enc")
            await until(lambda: pieces_come(gateway) > come)
            visit.reset()

        async with full_house(broken) as (gateway, patient, _):
            async with waiting_stream(gateway) as answer:
                patient.may_answer.set()
                error = told_error(await answer.aread())
            assert (error["code"], error["message"].endswith("status 500: EngineCore enc")) == (500, True)
            await until(lambda: gateway.ended() == {"finished": 1, "upstream_broke": 1})

    async def test_by_an_upstream_that_breaks_off_in_its_stream(self):
        async def broken(visit):
            come = pieces_come(gateway)
            await visit.stream_head()
            await visit.chunk(EVENTS[0])
            await until(lambda: pieces_come(gateway) > come)
            visit.reset()

        async with full_house(broken) as (gateway, patient, _), waiting_stream(gateway) as answer:
            patient.may_answer.set()
            events = events_of(await answer.aread())
        assert events.startswith(EVENTS[0] + b'data: {"error":')
        assert events.endswith(b"\n\ndata: [DONE]\n\n")

    async def test_for_a_picture_that_turns_out_damaged(self, monkeypatch):
        """Its pixels are looked at once there is a place for it."""
        broken = bytearray(encoded(picture(64, 64)))
        broken[-40:-20] = bytes(20)
        body = json.dumps(chat("What?", image(data_url(bytes(broken))), stream=True)).encode()
        async with full_house() as (gateway, patient, upstream):
            async with waiting_stream(gateway, body) as answer:
                patient.may_answer.set()
                error = told_error(await answer.aread())
            assert (error["code"], error["param"]) == ("image_parse_error", "messages[0].content[1].image_url.url")
            assert len(posts(upstream)) == 1

    async def test_by_a_fault_of_the_gateways_own(self, monkeypatch):
        async with full_house() as (gateway, patient, _):

            def broken(*_):
                raise RuntimeError

            monkeypatch.setattr("gateway.pipeline.story.rewrite", broken)
            async with waiting_stream(gateway) as answer:
                patient.may_answer.set()
                assert told_error(await answer.aread())["code"] == "internal_error"
            assert gateway.ended()["gateway_fault"] == 1


class TestClientsThatLeave:
    async def test_from_the_queue_at_once(self):
        async with full_house() as (gateway, _, upstream):
            async with waiting_stream(gateway):
                assert gateway.metrics("gateway_queue_depth") == {"": 1}
            await until(lambda: not gateway.metrics("gateway_queue_depth"))
            await until(lambda: gateway.ended() == {"client_left": 1})
            (line,) = await gateway.log(1)
            assert (line["outcome"], line["status"], len(posts(upstream))) == ("client_left", 499, 1)

    async def test_just_before_their_200_which_is_the_first_to_find_nobody(self):
        """What a client that only stops sending would do too, so it is asked, and looked at again after that."""
        async with full_house(streaming={"keep_alive_after_seconds": 0.5}) as (gateway, _, _):
            async with raw_client(gateway.host, gateway.port) as client:
                client.post(STREAM)
                await until(lambda: gateway.metrics("gateway_queue_depth") == {"": 1})
            await until(lambda: gateway.ended() == {"client_left": 1})
            assert gateway.metrics("gateway_streams_kept_alive_total") == {"": 1}

    async def test_who_stops_sending_before_that_gets_its_stream(self):
        async with full_house() as (gateway, patient, _), raw_client(gateway.host, gateway.port) as client:
            client.post(STREAM)
            client.writer.write_eof()
            await client.reader.readuntil(WAITING)
            await asyncio.sleep(0.3)  # time enough to be taken for one that has gone
            patient.may_answer.set()
            assert b"data: [DONE]" in await client.reader.read(-1)

    async def test_while_a_picture_is_decoded(self, monkeypatch):
        monkeypatch.setattr("gateway.composing.WorkerProcesses", lambda limits: InThisProcess())
        judge, may_judge = workers.judge, threading.Event()

        def judge_late(*arguments):
            assert may_judge.wait(30)
            return judge(*arguments)

        monkeypatch.setattr(workers, "judge", judge_late)
        body = json.dumps(chat(image(data_url(encoded(picture(64, 64)))), stream=True)).encode()
        async with model_server() as upstream, live_gateway(upstream.base_url, **AFTER) as gateway:
            await gateway.until_up()
            async with waiting_stream(gateway, body):
                pass
            await until(gateway.ended)
            may_judge.set()
            await gateway.until_released()
            assert (gateway.ended(), posts(upstream)) == ({"client_left": 1}, [])

    async def test_while_the_upstream_says_nothing(self):
        async with model_server(answer_never) as upstream, live_gateway(upstream.base_url, **AFTER) as gateway:
            await gateway.until_up()
            async with waiting_stream(gateway):
                assert gateway.metrics("gateway_upstream_requests_in_flight") == {"": 1}
            await gateway.until_released()
            assert gateway.ended() == {"client_left": 1}

    async def test_who_shuts_only_its_own_side_counts_as_gone_as_in_any_stream(self):
        async with full_house() as (gateway, _, _), raw_client(gateway.host, gateway.port) as client:
            client.post(STREAM)
            await client.reader.readuntil(WAITING)
            client.writer.write_eof()
            await until(lambda: gateway.ended() == {"client_left": 1})

    async def test_hundreds_that_leave_at_any_moment(self):
        """Before they wait, while they do, with their 200: the line empties and the next one is served."""
        async with full_house(queue={"requests": 2000, "wait_seconds": 60}) as (gateway, patient, upstream):
            await asyncio.gather(*(leave(gateway, number) for number in range(300)))
            await until(lambda: gateway.metrics("gateway_held").get('{resource="seats"}') == 1)
            assert not gateway.metrics("gateway_queue_depth")
            assert gateway.ended().keys() == {"client_left"}
            assert gateway.ended()["client_left"] >= 100
            async with waiting_stream(gateway) as answer:
                patient.may_answer.set()
                assert events_of(await answer.aread()) == UNASKED
            assert len(posts(upstream)) == 2


async def leave(gateway, number):
    async with raw_client(gateway.host, gateway.port) as client:
        client.post(STREAM)
        if number % 3 == 0:
            await client.reader.readuntil(WAITING)
        await asyncio.sleep(number % 100 / 2000)
        client.hang_up()
