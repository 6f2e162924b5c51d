"""Shadow mode through a live gateway: everything goes on as it came, and is only told about."""

import asyncio
import gzip
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.pipeline import shadow
from tests.support.live_gateway import CHAT, MODEL, chat, image, live_gateway, until
from tests.support.model_server import (
    ANSWER,
    EVENTS,
    Patient,
    answer_chat,
    answer_never,
    answer_together,
    model_server,
    posts,
)
from tests.support.pictures import data_url, encoded, picture

JSON = {"content-type": "application/json"}
LARGE = image(data_url(encoded(picture(2000, 1500))))
BROKEN = image("data:image/png;base64,AAAA")
SMALL = image(data_url(encoded(picture(56, 56))))
NARROW = {"budget": {"sequences": 1, "kv_blocks": 1000}, "queue": {"requests": 1}}


def shadowing(stub, /, **sections):
    return live_gateway(stub.base_url, mode="shadow", **sections)


async def answered(body, script=answer_chat, headers=None, path=CHAT, method="POST", **sections):
    """What came upstream, the answer, and the log line."""
    async with model_server(script) as upstream, shadowing(upstream, **sections) as gateway:
        await gateway.until_up()
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        answer = await gateway.http.request(method, path, content=content, headers=JSON | (headers or {}))
        await gateway.until_released()
        (line,) = await gateway.log(1)
        return [visit for visit in upstream.visits if visit.path == path][-1], answer, line


class TestNothingIsChanged:
    @pytest.mark.parametrize("stream", [False, True])
    async def test_body_and_answer_pass_byte_for_byte(self, stream):
        body = b"  " + json.dumps(chat("Well?", LARGE, stream=stream, zeta=1e40)).encode() + b"\r\n"
        visit, answer, line = await answered(body, resize={"preset": "thumbnail"})
        assert visit.body == body
        assert answer.content == (b"".join(EVENTS) if stream else ANSWER)
        assert answer.headers["x-gateway-shadow"] == "admitted"
        assert "x-gateway-images" not in answer.headers
        assert answer.headers["x-gateway-shadow-images"].startswith("0;resized;2000x1500;")
        assert (line["shadow"], line["shadow_images"][:9], line["outcome"]) == ("admitted", "0;resized", "finished")
        assert "images_changed" not in line

    async def test_old_pictures_stay_and_are_told_of(self):
        turns = [{"role": role, "content": [SMALL]} for role in ("user", "user", "assistant", "user")]
        turns[2]["content"] = "Yes."
        body = {"model": MODEL, "messages": turns}
        visit, answer, line = await answered(body, history={"mode": "always", "keep": 1, "grid": 1})
        assert json.loads(visit.body) == body
        assert answer.headers["x-gateway-shadow-images"] == "0;trimmed, 1;trimmed"
        assert line["pictures"][:2] == [None, None]

    async def test_what_the_ladder_would_do_is_told(self):
        ladder = {"max_tokens": {"enter": 0.1, "leave": 0.05, "tokens": 5}}
        async with (
            model_server(answer_together(2)) as upstream,
            shadowing(upstream, pressure=ladder, **NARROW) as gateway,
        ):
            await gateway.until_up()
            first = asyncio.create_task(gateway.chat())
            await until(lambda: len(posts(upstream)) == 1)
            answer = await gateway.chat(max_tokens=900)
            await first
            assert json.loads(posts(upstream)[1].body)["max_tokens"] == 900
            assert answer.headers["x-gateway-shadow-pressure"] == "max_tokens;5"
            assert "x-gateway-pressure" not in answer.headers

    async def test_usage_is_not_asked_for(self):
        visit, _, line = await answered(chat(stream=True))
        assert b"stream_options" not in visit.body
        assert line["counted_output_tokens"] == 1


class TestNothingIsRefused:
    @pytest.mark.parametrize(
        ("body", "reason"),
        [
            (b"{", "bad_request"),
            (b"\xff\xfe{}", "bad_request"),
            (b"", "bad_request"),
            (json.dumps(chat(BROKEN)).encode(), "bad_image"),
            (json.dumps(chat(image("ftp://example.com/a.png"))).encode(), "bad_image"),
            (json.dumps(chat("x" * 9_000_000)).encode(), "never_fits_context"),
        ],
        ids=["torn", "utf-16", "empty", "broken picture", "picture from nowhere", "too long"],
    )
    async def test_what_cannot_be_served_goes_on_and_is_told(self, body, reason):
        visit, answer, line = await answered(body, script=answer_anything)
        assert (visit.body, answer.content) == (body, b"anything")
        assert answer.headers["x-gateway-shadow"] == f"refused;reason={reason};status=400"
        assert (line["shadow"], line["shadow_reason"], line["status"]) == ("refused", reason, 200)
        assert "reason" not in line

    async def test_what_the_model_server_will_fetch_is_not_fetched_here_too(self):
        body = json.dumps(chat(image("https://example.com/a.png"))).encode()
        visit, answer, line = await answered(body, script=answer_anything)
        assert (visit.body, answer.headers["x-gateway-shadow"]) == (body, "undecided")
        assert "fetch_ms" not in line

    async def test_what_is_asked_about_it_beforehand_is_answered(self):
        body = chat(image("https://example.com/a.png"))
        async with model_server(answer_anything) as upstream, shadowing(upstream) as gateway:
            await gateway.until_up()
            asked = await gateway.http.post("/gateway/preflight", json=body)
        assert (asked.status_code, asked.json()["verdict"]) == (200, "refused")
        assert "shadow mode" in asked.json()["error"]["message"]

    async def test_where_nothing_would_be_fetched_that_is_told(self):
        body = json.dumps(chat(image("https://example.com/a.png"))).encode()
        visit, answer, _ = await answered(body, script=answer_anything, images={"remote": {"policy": "refuse"}})
        assert visit.body == body
        assert answer.headers["x-gateway-shadow"] == "refused;reason=bad_image;status=400"

    @pytest.mark.parametrize(
        ("headers", "told"),
        [
            ({"content-type": "text/plain"}, "refused;reason=bad_request;status=400"),
            ({"x-gateway-priority": "now"}, "refused;reason=bad_request;status=400"),
            ({"content-encoding": "compress"}, "refused;reason=bad_request;status=415"),
            ({"content-encoding": "gzip"}, "undecided"),
        ],
    )
    async def test_what_ends_at_the_door_goes_on_unread(self, headers, told):
        body = gzip.compress(json.dumps(chat()).encode())
        visit, answer, _ = await answered(body, script=answer_anything, headers=headers)
        assert visit.body == body
        assert visit.header("content-encoding") == [headers[name] for name in headers if name == "content-encoding"]
        assert answer.headers["x-gateway-shadow"] == told

    @pytest.mark.parametrize("is_chunked", [False, True])
    async def test_a_body_over_the_limit_goes_on_while_there_is_memory(self, is_chunked):
        body = json.dumps(chat("x" * 3000)).encode()

        async def pieces():
            yield body

        async with model_server() as upstream, shadowing(upstream, server={"max_body_bytes": 1000}) as gateway:
            answer = await gateway.http.post(CHAT, content=pieces() if is_chunked else body, headers=JSON)
            assert answer.content == ANSWER
            assert answer.headers["x-gateway-shadow"] == "refused;reason=body_too_large;status=413"
            assert posts(upstream)[0].body == body

    @pytest.mark.parametrize(
        ("method", "path", "status"),
        [
            ("POST", "/v1/responses/render", 403),
            ("POST", "/generative_scoring", 403),
            ("POST", "/v1/messages/render", 403),
            ("POST", "/v1/audio/transcriptions", 403),
            ("OPTIONS", CHAT, 405),
        ],
    )
    async def test_routes_that_are_closed_in_earnest_pass_unread(self, method, path, status):
        async def script(visit):
            await visit.answer("200 OK", b"" if visit.method == "OPTIONS" else b"anything")

        visit, answer, line = await answered(b"raw" if method == "POST" else b"", script, path=path, method=method)
        assert (visit.method, answer.status_code) == (method, 200)
        assert answer.headers["x-gateway-shadow"].endswith(f"status={status}")
        assert line["shadow"] == "refused"

    async def test_a_stream_that_nobody_could_read_passes_too(self):
        _, answer, line = await answered({"stream": True}, path="/v1/responses/render")
        assert answer.content == b"".join(EVENTS)
        assert line["outcome"] == "finished"

    async def test_a_fault_of_the_deciding_is_the_gateways_own_affair(self, monkeypatch, caplog):
        async def broken(*_):
            raise ZeroDivisionError

        monkeypatch.setattr(shadow, "price_where_it_fits", broken)
        _, answer, line = await answered(chat())
        assert (answer.content, answer.headers["x-gateway-shadow"]) == (ANSWER, "undecided")
        assert line["shadow"] == "undecided"
        assert "decided in shadow" in caplog.text

    async def test_an_answer_may_take_its_time(self):
        hasty = {"first_byte_timeout_seconds": 0.05, "gap_timeout_seconds": 0.05, "total_timeout_seconds": 0.1}
        _, answer, _ = await answered(chat(), answer_after_three_such_times, upstream=hasty)
        assert answer.content == ANSWER


async def answer_after_three_such_times(visit):
    """However busy the machine is: a limit that were in force would have passed long ago."""
    await asyncio.sleep(0.3)
    await answer_chat(visit)


async def answer_anything(visit):
    await visit.answer("200 OK", b"anything")


class TestNothingWaits:
    async def test_all_are_sent_at_once_and_told_what_they_would_have_waited_for(self):
        async with model_server(answer_together(4)) as upstream, shadowing(upstream, **NARROW) as gateway:
            await gateway.until_up()
            tasks = []
            for number in range(4):
                tasks.append(asyncio.create_task(gateway.chat()))
                await until(lambda number=number: len(posts(upstream)) > number)
            told = [(await task).headers["x-gateway-shadow"] for task in tasks]
            await gateway.until_released()
            lines = await gateway.log(4)
            assert gateway.rejected() == {}
            assert gateway.ended() == {"finished": 4}
            decisions = gateway.metrics("gateway_shadow_decisions_total")
            assert gateway.metrics("gateway_shadow_mode") == {"": 1}
        assert told[0] == "admitted"
        assert told[1].startswith("queued;wait-ms=")
        assert told[2:] == ["refused;reason=queue_full;status=429"] * 2
        assert sorted(line["shadow"] for line in lines) == ["admitted", "queued", "refused", "refused"]
        assert [line["queue_ms"] for line in lines] == [0.0] * 4
        words = {name.partition('decision="')[2].partition('"')[0]: count for name, count in decisions.items()}
        assert words == {"admitted": 1, "queued": 1, "queue_full": 2}

    async def test_who_leaves_gives_back_what_stood_for_it(self):
        async with model_server(answer_never) as upstream, shadowing(upstream, **NARROW) as gateway:
            await gateway.until_up()
            tasks = [asyncio.create_task(gateway.chat()) for _ in range(3)]
            await until(lambda: len(posts(upstream)) == 3)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await gateway.until_released()
            assert gateway.ended() == {"client_left": 3}
            gate = gateway.application._running.backends[0].gate
            assert (sum(gate.unadmitted), gate.statistics().leases) == (0, 0)

    async def test_an_upstreams_refusal_of_what_would_not_have_come_pauses_nobody(self):
        async def refuse(visit):
            await visit.answer("503 Service Unavailable", b"busy")

        patient = Patient(then=refuse)
        async with model_server(patient) as upstream, shadowing(upstream, **NARROW) as gateway:
            await gateway.until_up()
            first = asyncio.create_task(gateway.chat())
            await until(lambda: len(posts(upstream)) == 1)
            assert (await gateway.chat()).status_code == 503
            assert gateway.metrics("gateway_admission_pause_seconds") == {}
            patient.may_answer.set()
            assert (await first).status_code == 200


class TestWhatStaysRefused:
    @pytest.mark.parametrize(
        ("method", "path", "status"),
        [("POST", "/sleep", 403), ("POST", "/v1/unknown", 404), ("PUT", "/gateway/preflight", 405)],
    )
    async def test_operators_routes_and_unknown_ones(self, method, path, status):
        async with model_server() as upstream, shadowing(upstream) as gateway:
            answer = await gateway.http.request(method, path)
            assert (answer.status_code, posts(upstream)) == (status, [])
            assert "x-gateway-shadow" not in answer.headers

    async def test_a_body_that_there_is_no_memory_for(self):
        async with model_server() as upstream, shadowing(upstream, budget={"body_bytes": 4000}) as gateway:
            answer = await gateway.http.post(CHAT, json=chat("x" * 3000))
            assert (answer.status_code, answer.headers["x-gateway-reason"]) == (413, "body_too_large")

    async def test_more_than_there_are_seats(self):
        async with model_server() as upstream, shadowing(upstream, server={"seats": 0}) as gateway:
            assert (await gateway.chat()).status_code == 429

    async def test_who_comes_while_the_gateway_leaves(self):
        at_once = {"drain_grace_seconds": 0}
        async with model_server() as upstream, shadowing(upstream, server=at_once) as gateway:
            gateway.application.drain()
            answer = await gateway.chat()
            assert (answer.status_code, answer.headers["x-gateway-reason"]) == (503, "draining")

    async def test_an_upstream_that_is_away(self):
        async with shadowing_nobody() as gateway:
            answer = await gateway.chat()
            assert answer.status_code == 503
            (line,) = await gateway.log(1)
            assert (line["shadow"], line["reason"]) == ("admitted", "upstream_loading")

    async def test_preflight_tells_as_in_earnest(self):
        async with model_server() as upstream, shadowing(upstream, server={"max_body_bytes": 1000}) as gateway:
            await gateway.until_up()
            assert (await gateway.http.post("/gateway/preflight", json=chat())).json()["verdict"] == "admitted"
            answer = await gateway.http.post("/gateway/preflight", json=chat("x" * 2000))
            assert answer.status_code == 413
            headers = {"content-type": "application/json", "content-encoding": "gzip"}
            body = gzip.compress(json.dumps(chat()).encode())
            answer = await gateway.http.post("/gateway/preflight", content=body, headers=headers)
            assert answer.json()["verdict"] == "admitted"


def shadowing_nobody():
    return live_gateway("http://127.0.0.1:9", mode="shadow")


async def test_tokens_are_counted_by_the_server_unless_a_client_asks(emulator):
    async with live_gateway(emulator.base_url, mode="shadow", tokens={"answer": "estimate"}) as gateway:
        await gateway.until_up()
        answer = await gateway.http.post("/tokenize", json={"model": MODEL, "prompt": "Once upon"})
        assert answer.headers["x-gateway-shadow"] == "admitted"


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    body=st.binary(max_size=400)
    | st.text(max_size=200).map(str.encode)
    | st.dictionaries(st.text(max_size=9), st.text(max_size=30)).map(
        lambda fields: json.dumps(chat() | fields).encode()
    )
)
def test_any_body_goes_on_as_it_is(body):
    async def pass_on():
        async with model_server(answer_anything) as upstream, shadowing(upstream) as gateway:
            answer = await gateway.http.post(CHAT, content=body, headers=JSON)
            assert answer.content == b"anything"
            assert posts(upstream)[0].body == body
            await gateway.until_released()

    asyncio.run(pass_on())
