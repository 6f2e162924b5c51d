"""However a request ends, everything comes back, and it is counted and logged once."""

import asyncio
import contextlib
import gzip
import json
from dataclasses import replace

import pytest

from gateway.pipeline import reading
from gateway.wire.routes import Kind
from tests.support.live_gateway import CHAT, chat, image, live_gateway, until
from tests.support.model_server import ANSWER, EVENTS, answer_chat, answer_never, error_of, model_server, posts
from tests.support.pictures import data_url, encoded, picture
from tests.support.raw_client import head, raw_client

JSON = {"content-type": "application/json"}
PICTURE = image(data_url(encoded(picture(56, 56))))


class TestAnswers:
    async def test_a_whole_answer(self):
        async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
            answer = await gateway.chat("Is it?", PICTURE)
            assert (answer.status_code, answer.content) == (200, ANSWER)
            line = await gateway.assert_ended("finished", status=200)
        assert (line["model"], line["endpoint"], line["images"]) == ("tiny", CHAT, 1)
        assert (line["actual_prompt_tokens"], line["actual_output_tokens"]) == (40, 2)
        assert line["visual_tokens"] == 6

    async def test_a_stream(self):
        async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
            answer = await gateway.chat(stream=True)
            assert answer.content == b"".join(EVENTS)
            line = await gateway.assert_ended("finished", status=200)
        assert line["is_streaming"] is True
        assert 0 < line["first_event_ms"] <= line["total_ms"]

    async def test_a_prompt_without_media_of_another_route(self):
        async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
            for path, body in (
                ("/v1/completions", {"model": "tiny", "prompt": "Once"}),
                ("/v1/embeddings", {"model": "tiny", "input": ["a", "b"]}),
                ("/tokenize", {"model": "tiny", "prompt": "Once"}),
            ):
                assert (await gateway.http.post(path, json=body)).status_code == 200
                await gateway.until_released()
            assert [visit.path for visit in posts(upstream)] == ["/v1/completions", "/v1/embeddings", "/tokenize"]
            endpoints = {
                name.partition('endpoint="')[2].partition('"')[0] for name in gateway.metrics("gateway_requests")
            }
        assert {"/v1/completions", "/v1/embeddings"} <= endpoints

    async def test_a_query_goes_on_as_it_came(self):
        async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
            await gateway.http.post(f"{CHAT}?trace=a%2Fb&x", json=chat())
            assert posts(upstream)[0].path == f"{CHAT}?trace=a%2Fb&x"


def raw(content: bytes, **headers: str) -> dict[str, object]:
    return {"content": content, "headers": JSON | {name.replace("_", "-"): value for name, value in headers.items()}}


LIMIT_BYTES = 8_000_000
DAMAGED = image(data_url(encoded(picture(56, 56))[:-40]))
ZIPPED = {"content_encoding": "gzip"}
REFUSALS = {
    "not JSON": (raw(b"{"), "400 invalid_json bad_request"),
    "damaged picture": ({"json": chat(DAMAGED)}, "400 image_parse_error bad_image"),
    "prompt beyond the context": ({"json": chat("x" * 6_000_000)}, "400 context_length_exceeded never_fits_context"),
    "wrong media type": (raw(b"{}", content_type="text/plain"), "400 invalid_request bad_request"),
    "too large": (raw(b" " * (LIMIT_BYTES + 1)), "413 request_too_large body_too_large"),
    "unknown coding": (raw(b"{}", content_encoding="compress"), "415 unsupported_content_encoding bad_request"),
    "damaged coding": (raw(b"{}", **ZIPPED), "400 invalid_request bad_request"),
    "coding cut short": (raw(gzip.compress(b"{}")[:-4], **ZIPPED), "400 invalid_request bad_request"),
    "too large when decoded": (
        raw(gzip.compress(b" " * (LIMIT_BYTES + 1)), **ZIPPED),
        "413 request_too_large body_too_large",
    ),
}


class TestRefusals:
    @pytest.mark.parametrize("case", REFUSALS)
    async def test_what_the_client_can_mend(self, case):
        request, told = REFUSALS[case]
        status, code, reason = told.split()
        limits = {"max_body_bytes": LIMIT_BYTES, "max_decoded_body_bytes": LIMIT_BYTES}
        async with (
            model_server() as upstream,
            live_gateway(upstream.base_url, server=limits) as gateway,
        ):
            await gateway.until_up()
            answer = await gateway.http.post(CHAT, **request)
            assert (answer.status_code, error_of(answer)["code"]) == (int(status), code)
            assert answer.headers["x-gateway-reason"] == reason
            assert answer.headers.get("x-should-retry") == ("false" if status == "400" else None)
            await gateway.assert_ended("refused", status=int(status), reason=reason)
            assert not posts(upstream)

    async def test_a_route_that_is_closed_does_not_exist_or_wants_another_method(self):
        async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
            closed = await gateway.http.post("/invocations", json=chat())
            unknown = await gateway.http.get("/v1/nothing")
            wrong = await gateway.http.delete(CHAT)
            assert [a.status_code for a in (closed, unknown, wrong)] == [403, 404, 405]
            assert [error_of(a)["code"] for a in (closed, unknown, wrong)] == [
                "permission_denied", "not_found", "method_not_allowed",
            ]  # fmt: skip
            assert wrong.headers["allow"] == "POST"
            await gateway.until_released()
            assert gateway.ended() == {"refused": 3}

    async def test_no_seat(self):
        async with model_server() as upstream, live_gateway(upstream.base_url, server={"seats": 0}) as gateway:
            answer = await gateway.chat()
            assert (answer.status_code, error_of(answer)["code"]) == (429, "rate_limit_exceeded")
            assert (answer.headers["retry-after"], answer.headers["x-should-retry"]) == ("60", "false")
            await gateway.assert_ended("refused", status=429, reason="queue_full")

    async def test_the_overload_status_is_the_operators(self):
        sections = {"server": {"seats": 0, "overload_status": 529}}
        async with model_server() as upstream, live_gateway(upstream.base_url, **sections) as gateway:
            assert (await gateway.chat()).status_code == 529
            await gateway.assert_ended("refused", status=529, reason="queue_full")

    async def test_waited_in_vain(self, slow_emulator):
        sections = {"budget": {"sequences": 1}, "queue": {"wait_seconds": 0.2}}
        async with (
            live_gateway(slow_emulator.base_url, **sections) as gateway,
            raw_client(gateway.host, gateway.port) as inside,
        ):
            inside.post(json.dumps(chat(max_tokens=5000, ignore_eos=True)).encode())
            await until(lambda: gateway.held().get('{resource="sequences"}') == 1)
            answer = await gateway.chat()
            assert (answer.status_code, error_of(answer)["code"]) == (503, "server_is_overloaded")
            assert answer.headers["x-gateway-reason"] == "deadline_passed"
            assert int(answer.headers["retry-after"]) >= 1
            inside.hang_up()
            await gateway.until_released()
            assert gateway.ended() == {"refused": 1, "client_left": 1}

    async def test_queue_full_is_said_before_the_body_is_read(self, slow_emulator):
        sections = {"budget": {"sequences": 1}, "queue": {"requests": 1}}
        async with (
            live_gateway(slow_emulator.base_url, **sections) as gateway,
            raw_client(gateway.host, gateway.port) as inside,
            raw_client(gateway.host, gateway.port) as waiting,
            raw_client(gateway.host, gateway.port) as late,
        ):
            body = json.dumps(chat(max_tokens=5000, ignore_eos=True)).encode()
            inside.post(body)
            await until(lambda: gateway.held().get('{resource="sequences"}') == 1)
            waiting.post(body)
            await until(lambda: gateway.metrics("gateway_queue_depth") == {"": 1})
            late.send(head(1000))
            status, headers, _ = await late.answer()
            assert (status, headers["x-gateway-reason"]) == (429, "queue_full")
            inside.hang_up()
            waiting.hang_up()
            await gateway.until_released()

    async def test_no_memory_for_another_body(self):
        sections = {"budget": {"body_bytes": 1_200_000}, "queue": {"wait_seconds": 0.2}}
        async with (
            model_server(answer_never) as upstream,
            live_gateway(upstream.base_url, **sections) as gateway,
            raw_client(gateway.host, gateway.port) as one,
            raw_client(gateway.host, gateway.port) as two,
        ):
            body = json.dumps(chat("x" * 400_000)).encode()
            one.post(body)
            two.post(body)
            await until(lambda: gateway.held().get('{resource="body_bytes"}') == 2 * len(body))
            answer = await gateway.http.post(CHAT, content=body, headers=JSON)
            assert (answer.status_code, answer.headers["x-gateway-reason"]) == (429, "host_memory")
            one.hang_up()
            two.hang_up()
            await gateway.until_released()

    async def test_too_slow(self, monkeypatch):
        monkeypatch.setattr("gateway.server.receive.GRACE_SECONDS", 0.2)
        async with (
            model_server() as upstream,
            live_gateway(upstream.base_url) as gateway,
            raw_client(gateway.host, gateway.port) as client,
        ):
            client.send(head(100_000) + b"{")
            status, headers, body = await client.answer()
            assert (status, headers["connection"]) == (408, "close")
            assert json.loads(body)["error"]["code"] == "request_timeout"
            await gateway.assert_ended("refused", status=408, reason="request_timeout")

    async def test_a_fault_of_the_gateway_is_a_500_with_the_id_to_report(self, monkeypatch, caplog):
        def faulty(body):
            raise ZeroDivisionError

        monkeypatch.setitem(reading.DIALECTS, Kind.CHAT, replace(reading.DIALECTS[Kind.CHAT], parse=faulty))
        async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
            answer = await gateway.chat()
            line = await gateway.assert_ended("gateway_fault", status=500)
        assert answer.status_code == 500
        assert line["request_id"] in error_of(answer)["message"]
        assert line["request_id"] in caplog.text


async def test_metrics_log_and_headers_agree_after_a_mixed_run():
    async def by_turns(visit):
        name = json.loads(visit.body).get("user")
        failure = {"broken": "500 Internal Server Error", "busy": "503 Service Unavailable"}.get(name)
        await (visit.answer(failure, b"{}", "content-type: application/json") if failure else answer_chat(visit))

    async with model_server(by_turns) as upstream, live_gateway(upstream.base_url) as gateway:
        requests = [
            gateway.chat(PICTURE),
            gateway.chat(stream=True, headers={"authorization": "Bearer sk-secret"}),
            gateway.chat(user="broken"),
            gateway.chat(user="busy"),
            gateway.chat(image("data:image/png;base64,AAAA")),
            gateway.chat(image("http://10.0.0.5/x.png")),
            gateway.http.post(CHAT, content=b"[", headers=JSON),
            gateway.http.get("/v1/models"),
            gateway.http.get("/v1/models/none"),
            gateway.http.get("/nowhere"),
        ]
        answers = await asyncio.gather(*requests)
        await gateway.until_released()
        lines = await gateway.log(len(requests))
        page = (await gateway.http.get("/metrics")).text
        assert sum(gateway.ended().values()) == len(lines) == len(requests)
        assert gateway.ended() == {"finished": 3, "upstream_broke": 1, "upstream_refused": 1, "refused": 5}
        told = [a.headers["x-gateway-reason"] for a in answers if "x-gateway-reason" in a.headers]
        assert gateway.rejected() == {reason: told.count(reason) for reason in set(told)}
        assert gateway.metrics("gateway_image_errors") == {
            '_total{code="unsupported_image_media_type"}': 1, '_total{code="invalid_image_url"}': 1,
        }  # fmt: skip
        assert sorted(line["request_id"] for line in lines) == sorted(a.headers["x-request-id"] for a in answers)
        assert 'gateway_images_total{action="kept",format="png"} 1.0' in page
        assert "nowhere" not in page
        payload = PICTURE["image_url"]["url"].partition(",")[2]
        assert not [text for text in (payload[:40], "sk-secret") if text in gateway.log_text.decode()]


async def test_a_fault_in_the_middle_of_an_answer_cuts_it_off(monkeypatch, caplog):
    def faulty(*_):
        raise ZeroDivisionError

    monkeypatch.setattr("gateway.pipeline.settle.chunk_passed", faulty)
    async with (
        model_server() as upstream,
        live_gateway(upstream.base_url) as gateway,
        raw_client(gateway.host, gateway.port) as client,
    ):
        client.post(json.dumps(chat()).encode())
        status, _ = await client.answer_head()
        assert (status, await client.reader.read()) == (200, b"")
        await gateway.assert_ended("gateway_fault", status=500)
    assert "met a fault of the gateway" in caplog.text


async def test_a_stop_that_does_not_wait_any_longer_ends_what_is_inside(slow_emulator):
    async with contextlib.AsyncExitStack() as stack:
        house = await stack.enter_async_context(contextlib.AsyncExitStack())
        gateway = await house.enter_async_context(live_gateway(slow_emulator.base_url))
        client = await stack.enter_async_context(raw_client(gateway.host, gateway.port))
        client.post(json.dumps(chat(stream=True, max_tokens=20_000, ignore_eos=True)).encode())
        await client.answer_head()
        await house.aclose()
        (line,) = await gateway.log(1)
        assert line["outcome"] == "client_left"
        await until(lambda: slow_emulator.statistics().running == 0)
