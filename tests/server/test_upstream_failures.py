"""A model server that refuses, breaks, is silent or away: what the client sees, and that all is given back."""

import contextlib
import json

import pytest

from tests.support.live_gateway import chat, image, live_gateway
from tests.support.model_server import ANSWER, EVENTS, answer_chat, answer_never, error_of, model_server, posts
from tests.support.pictures import data_url, encoded, picture
from tests.support.raw_client import raw_client

PICTURE = image(data_url(encoded(picture(56, 56))))


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
            assert set(answer.json()["error"]) == {"message"}
            assert not [name for name in answer.headers if name.startswith("x-gateway")]
            assert answer.headers["x-request-id"]
            line = await gateway.assert_ended(outcome, status=status)
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
            await gateway.assert_ended("upstream_refused", status=200)
            refused = await gateway.chat(PICTURE, PICTURE, PICTURE)
            assert error_of(refused)["code"] == "too_many_images"

    @pytest.mark.parametrize(
        ("script", "fields", "status", "code"),
        [
            (reset_before_the_head, {}, 502, "upstream_error"),
            (redirect, {}, 502, "upstream_error"),
            (answer_never, {}, 504, "upstream_timeout"),
            (answer_never, {"stream": True}, 504, "upstream_timeout"),
        ],
    )
    async def test_before_the_head(self, script, fields, status, code):
        limits = {"total_timeout_seconds": 0.4, "first_byte_timeout_seconds": 0.3}
        async with model_server(script) as upstream, live_gateway(upstream.base_url, upstream=limits) as gateway:
            answer = await gateway.chat(**fields)
            assert (answer.status_code, error_of(answer)["code"]) == (status, code)
            await gateway.assert_ended("upstream_broke", status=status, reason="upstream_down")

    async def test_nobody_listens(self):
        async with model_server() as upstream:
            address = upstream.base_url
        async with live_gateway(address) as gateway:
            answer = await gateway.chat()
            assert (answer.status_code, error_of(answer)["code"]) == (503, "upstream_unavailable")
            assert int(answer.headers["retry-after"]) >= 15
            await gateway.assert_ended("upstream_broke", status=503, reason="upstream_loading")

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
            await gateway.assert_ended("upstream_broke", status=200)
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
            await gateway.assert_ended("upstream_broke", status=200)


async def test_an_encoder_budget_that_the_upstream_names_is_kept_to_from_then_on():
    async def too_large(visit):
        text = (
            "The decoder prompt contains a(n) image item with 400 embedding tokens, which exceeds the pre-allocated "
            "encoder cache size 100. Please reduce the input size or increase the encoder cache size by setting "
            "--limit-mm-per-prompt at startup."
        )
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
