"""However a request ends, everything comes back, and it is counted and logged once."""

import asyncio
import contextlib
import gzip
import json

import pytest

from gateway.pipeline import story
from gateway.wire.routes import Kind
from tests.support.live_gateway import CHAT, chat, image, live_gateway, until
from tests.support.model_server import ANSWER, EVENTS, answer_chat, error_of, model_server, posts
from tests.support.pictures import data_url, encoded, picture
from tests.support.raw_client import head, raw_client

JSON = {"content-type": "application/json"}
PICTURE = image(data_url(encoded(picture(56, 56))))


async def assert_ended(gateway, outcome, *, status, reason=None):
    """Nothing held, one request counted with `outcome`, one line logged that says the same."""
    await gateway.until_released()
    assert gateway.ended() == {outcome: 1}
    assert gateway.rejected() == ({reason: 1} if reason else {})
    (line,) = await gateway.log(1)
    assert (line["outcome"], line.get("status"), line.get("reason")) == (outcome, status, reason)
    return line


class TestAnswers:
    async def test_a_whole_answer(self):
        async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
            answer = await gateway.chat("Is it?", PICTURE)
            assert (answer.status_code, answer.content) == (200, ANSWER)
            line = await assert_ended(gateway, "finished", status=200)
        assert (line["model"], line["endpoint"], line["images"]) == ("tiny", CHAT, 1)
        assert (line["actual_prompt_tokens"], line["actual_output_tokens"]) == (40, 2)
        assert line["visual_tokens"] == 6

    async def test_a_stream(self):
        async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
            answer = await gateway.chat(stream=True)
            assert answer.content == b"".join(EVENTS)
            line = await assert_ended(gateway, "finished", status=200)
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
    "unknown coding": (raw(b"{}", content_encoding="br"), "415 unsupported_content_encoding bad_request"),
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
            await assert_ended(gateway, "refused", status=int(status), reason=reason)
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
            await assert_ended(gateway, "refused", status=429, reason="queue_full")

    async def test_the_overload_status_is_the_operators(self):
        sections = {"server": {"seats": 0, "overload_status": 529}}
        async with model_server() as upstream, live_gateway(upstream.base_url, **sections) as gateway:
            assert (await gateway.chat()).status_code == 529
            await assert_ended(gateway, "refused", status=529, reason="queue_full")

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
        async def silent(visit):
            await visit.reader.read()

        sections = {"budget": {"body_bytes": 1_200_000}, "queue": {"wait_seconds": 0.2}}
        async with (
            model_server(silent) as upstream,
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
            await assert_ended(gateway, "refused", status=408, reason="request_timeout")

    async def test_a_fault_of_the_gateway_is_a_500_with_the_id_to_report(self, monkeypatch, caplog):
        def faulty(body):
            raise ZeroDivisionError

        monkeypatch.setitem(story._PARSERS, Kind.CHAT, faulty)
        async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
            answer = await gateway.chat()
            line = await assert_ended(gateway, "gateway_fault", status=500)
        assert answer.status_code == 500
        assert line["request_id"] in error_of(answer)["message"]
        assert line["request_id"] in caplog.text


async def refuse_with(visit, status, body):
    await visit.answer(status, body, "content-type: application/json")


async def too_many_images(visit):
    await refuse_with(
        visit, "400 Bad Request", b'{"error":{"message":"At most 3 image(s) may be provided in one prompt."}}'
    )


async def out_of_order(visit):
    await refuse_with(visit, "500 Internal Server Error", b'{"error":{"message":"boom"}}')


async def busy(visit):
    await refuse_with(visit, "503 Service Unavailable", b'{"error":{"message":"The server is overloaded"}}')


async def reset_before_the_head(visit):
    visit.reset()


async def redirect(visit):
    await visit.answer("307 Temporary Redirect", b"", "location: http://10.0.0.1/")


async def silent(visit):
    await visit.reader.read()


async def cut_json(visit):
    await visit.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n" + ANSWER[:20])
    visit.reset()


async def cut_stream(visit):
    await visit.stream_head()
    await visit.chunk(EVENTS[0])
    visit.reset()


async def silent_stream(visit):
    await visit.stream_head()
    await visit.chunk(EVENTS[0])
    await visit.reader.read()


async def error_in_the_stream(visit):
    await visit.stream_head()
    await visit.chunk(EVENTS[0])
    message = "At most 2 image(s) may be provided in one prompt."
    await visit.chunk(b'data: {"error":{"message":"%s","code":400}}\n\ndata: [DONE]\n\n' % message.encode())
    await visit.write(b"0\r\n\r\n")


class TestUpstreamFails:
    @pytest.mark.parametrize(
        ("script", "status", "outcome"),
        [
            (too_many_images, 400, "upstream_refused"),
            (out_of_order, 500, "upstream_broke"),
            (busy, 503, "upstream_refused"),
        ],
    )
    async def test_its_own_errors_pass_through(self, script, status, outcome):
        async with model_server(script) as upstream, live_gateway(upstream.base_url) as gateway:
            answer = await gateway.chat()
            assert answer.status_code == status
            assert set(error_of_upstream(answer)) == {"message"}
            assert not [name for name in answer.headers if name.startswith("x-gateway")]
            assert answer.headers["x-request-id"]
            line = await assert_ended(gateway, outcome, status=status)
            assert line["upstream_status"] == status

    async def test_a_limit_that_it_names_is_learned_and_kept_to(self):
        async def three_at_most(visit):
            await (too_many_images(visit) if visit.body.count(b'"image_url":') > 3 else answer_chat(visit))

        turns = [
            turn
            for index in range(5)
            for turn in (
                {"role": "user", "content": [PICTURE, {"type": "text", "text": f"And {index}?"}]},
                {"role": "assistant", "content": "Yes."},
            )
        ] + [{"role": "user", "content": "Thanks."}]
        async with model_server(three_at_most) as upstream, live_gateway(upstream.base_url) as gateway:
            await gateway.until_up()
            assert (await gateway.chat(messages=turns)).status_code == 400
            answer = await gateway.chat(messages=turns)
            assert answer.status_code == 200
            assert answer.headers["x-gateway-images"] == "0;trimmed, 1;trimmed, 2;trimmed, 3;trimmed"

    async def test_a_limit_named_inside_a_stream_is_learned_too(self):
        async with model_server(error_in_the_stream) as upstream, live_gateway(upstream.base_url) as gateway:
            await gateway.until_up()
            answer = await gateway.chat(stream=True)
            assert answer.status_code == 200
            await assert_ended(gateway, "upstream_refused", status=200)
            refused = await gateway.chat(PICTURE, PICTURE, PICTURE)
            assert error_of(refused)["code"] == "too_many_images"

    @pytest.mark.parametrize(
        ("script", "fields", "status", "code"),
        [
            (reset_before_the_head, {}, 502, "upstream_error"),
            (redirect, {}, 502, "upstream_error"),
            (silent, {}, 504, "upstream_timeout"),
            (silent, {"stream": True}, 504, "upstream_timeout"),
        ],
    )
    async def test_before_the_head(self, script, fields, status, code):
        limits = {"total_timeout_seconds": 0.4, "first_byte_timeout_seconds": 0.3}
        async with model_server(script) as upstream, live_gateway(upstream.base_url, upstream=limits) as gateway:
            answer = await gateway.chat(**fields)
            assert (answer.status_code, error_of(answer)["code"]) == (status, code)
            await assert_ended(gateway, "upstream_broke", status=status, reason="upstream_down")

    async def test_nobody_listens(self):
        async with model_server() as upstream:
            address = upstream.base_url
        async with live_gateway(address) as gateway:
            answer = await gateway.chat()
            assert (answer.status_code, error_of(answer)["code"]) == (503, "upstream_unavailable")
            assert int(answer.headers["retry-after"]) >= 15
            await assert_ended(gateway, "upstream_broke", status=503, reason="upstream_loading")

    async def test_nobody_listens_any_more(self):
        async with contextlib.AsyncExitStack() as stack:
            upstream_stack = await stack.enter_async_context(contextlib.AsyncExitStack())
            upstream = await upstream_stack.enter_async_context(model_server())
            gateway = await stack.enter_async_context(live_gateway(upstream.base_url))
            await gateway.until_up()
            await upstream_stack.aclose()
            answer = await gateway.chat()
            assert (answer.status_code, answer.headers["x-gateway-reason"]) == (503, "upstream_down")
            assert 5 <= int(answer.headers["retry-after"]) <= 7

    async def test_json_that_breaks_off_is_cut_off_for_the_client_too(self, caplog):
        async with (
            model_server(cut_json) as upstream,
            live_gateway(upstream.base_url) as gateway,
            raw_client(gateway.host, gateway.port) as client,
        ):
            client.post(json.dumps(chat()).encode())
            status, _ = await client.answer_head()
            assert status == 200
            assert len(await client.reader.read()) < 500
            await assert_ended(gateway, "upstream_broke", status=200)
        assert "fault of the gateway" not in caplog.text

    @pytest.mark.parametrize(("script", "code"), [(cut_stream, "upstream_error"), (silent_stream, "upstream_timeout")])
    async def test_a_stream_that_breaks_off_ends_with_an_error_event(self, script, code):
        async with (
            model_server(script) as upstream,
            live_gateway(upstream.base_url, upstream={"gap_timeout_seconds": 0.3}) as gateway,
        ):
            answer = await gateway.chat(stream=True)
            first, error, done = answer.content.removesuffix(b"\n\n").split(b"\n\n")
            assert (first + b"\n\n", done) == (EVENTS[0], b"data: [DONE]")
            assert json.loads(error.removeprefix(b"data: "))["error"]["code"] == code
            await assert_ended(gateway, "upstream_broke", status=200)


def error_of_upstream(answer):
    return json.loads(answer.content)["error"]


async def test_metrics_log_and_headers_agree_after_a_mixed_run():
    async def by_turns(visit):
        name = json.loads(visit.body).get("user")
        await {"broken": out_of_order, "busy": busy}.get(name, answer_chat)(visit)

    async with model_server(by_turns) as upstream, live_gateway(upstream.base_url) as gateway:
        requests = [
            gateway.chat(PICTURE),
            gateway.chat(stream=True, headers={"authorization": "Bearer sk-secret"}),
            gateway.chat(user="broken"),
            gateway.chat(user="busy"),
            gateway.chat(image("data:image/png;base64,AAAA")),
            gateway.chat(image("http://example.org/x.png")),
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


async def test_an_encoder_budget_that_the_upstream_names_is_kept_to_from_then_on():
    async def too_large(visit):
        text = "The image item with length 400 exceeds the pre-allocated encoder cache size 100."
        await refuse_with(visit, "400 Bad Request", json.dumps({"error": {"message": text}}).encode())

    photo = image(data_url(encoded(picture(560, 560))))
    async with (
        model_server(too_large) as upstream,
        live_gateway(upstream.base_url, resize={"fit": "refuse"}) as gateway,
    ):
        await gateway.until_up()
        assert (await gateway.chat(photo)).status_code == 400
        answer = await gateway.chat(photo)
        assert answer.headers["x-gateway-reason"] == "never_fits_encoder"
        assert len(posts(upstream)) == 1


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
        await assert_ended(gateway, "gateway_fault", status=500)
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
