"""The usage of streams is asked for on the gateway's own account, and no client sees anything of it."""

import asyncio
import json
from contextlib import asynccontextmanager

import httpx
import pytest

from gateway.emulator.config import EmulatorConfig
from gateway.emulator.serve import running_emulator
from tests.support.live_gateway import CHAT, MODEL, chat, image, live_gateway, until
from tests.support.model_server import ANSWER, EVENTS, answer_chat, model_server, posts
from tests.support.pictures import data_url, encoded, picture

JSON = {"content-type": "application/json"}
TOKEN, FINISH, DONE = EVENTS
UNASKED = b"".join(EVENTS)
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":7,"total_tokens":12,"completion_tokens":5}}\n\n'
ASKED = b',"stream_options":{"include_usage":true}}'
REFUSAL = json.dumps({"error": {"message": "Extra inputs are not permitted: 'stream_options'", "code": 400}}).encode()


async def streamed(visit, *chunks: bytes) -> None:
    await visit.stream_head()
    for chunk in chunks:
        await visit.chunk(chunk)
        await asyncio.sleep(0)
    await visit.write(b"0\r\n\r\n")


async def counting(visit) -> None:
    """vLLM: usage for those who ask."""
    options = json.loads(visit.body).get("stream_options") or {}
    await streamed(visit, TOKEN, FINISH, *[USAGE] * bool(options.get("include_usage")), DONE)


@asynccontextmanager
async def between(script=counting, **sections):
    async with model_server(script) as upstream, live_gateway(upstream.base_url, **sections) as gateway:
        yield gateway, upstream


def body_of(**fields) -> bytes:
    return json.dumps(chat(**fields), separators=(",", ":")).encode()


class TestAStreamWithoutTheWish:
    async def test_is_asked_for_usage_and_comes_without(self):
        async with between() as (gateway, upstream):
            answer = await gateway.http.post(CHAT, content=body_of(stream=True), headers=JSON)
            (line,) = await gateway.log(1)
            (visit,) = posts(upstream)
        assert visit.body == body_of(stream=True)[:-1] + ASKED
        assert answer.content == UNASKED
        assert (line["actual_prompt_tokens"], line["actual_output_tokens"]) == (7, 5)

    async def test_on_the_other_route_too(self):
        body = json.dumps({"model": MODEL, "prompt": "Hm?", "stream": True}).encode()
        async with between() as (gateway, upstream):
            answer = await gateway.http.post("/v1/completions", content=body, headers=JSON)
            (visit,) = posts(upstream)
        assert (visit.body, answer.content) == (body[:-1] + ASKED, UNASKED)

    async def test_beside_a_picture_that_is_changed(self):
        turned = image(data_url(encoded(picture(56, 28), "JPEG", orientation=6), "image/jpeg"))
        async with between() as (gateway, upstream):
            answer = await gateway.chat("Hm?", turned, stream=True)
            (visit,) = posts(upstream)
        assert (visit.body.endswith(ASKED), answer.content) == (True, UNASKED)
        assert answer.headers["x-gateway-images"] == "0;normalised;28x56"

    @pytest.mark.parametrize("piece_bytes", [1, 50, 10_000])
    async def test_comes_without_however_it_is_cut(self, piece_bytes):
        stream = TOKEN + FINISH + USAGE + DONE

        async def in_pieces(visit):
            await streamed(visit, *(stream[at : at + piece_bytes] for at in range(0, len(stream), piece_bytes)))

        async with between(in_pieces) as (gateway, _):
            assert (await gateway.chat(stream=True)).content == UNASKED

    async def test_has_no_length_that_it_then_falls_short_of(self):
        async def with_length(visit):
            await visit.answer("200 OK", TOKEN + FINISH + USAGE + DONE, "content-type: text/event-stream")

        async with between(with_length) as (gateway, _):
            answer = await gateway.chat(stream=True)
            await gateway.until_released()
        assert (answer.content, "content-length" in answer.headers) == (UNASKED, False)

    async def test_that_breaks_off_loses_nothing_that_was_kept_back(self):
        async def broken(visit):
            await visit.stream_head()
            await visit.chunk(TOKEN + FINISH)
            visit.reset()

        async with between(broken) as (gateway, _):
            answer = await gateway.chat(stream=True)
            await gateway.until_released()
        assert answer.content.startswith(TOKEN + FINISH + b'data: {"error":')

    @pytest.mark.parametrize("options", ["null", "{}", '{"include_usage":false}', '{"continuous_usage_stats":true}'])
    @pytest.mark.parametrize("padding", [0, 100_000], ids=["short", "long enough for a thread"])
    async def test_that_has_options_of_its_own_is_asked_in_them(self, options, padding):
        async with between() as (gateway, upstream):
            body = body_of(stream=True, stream_options=7, user="x" * padding).replace(b"7", options.encode())
            answer = await gateway.http.post(CHAT, content=body, headers=JSON)
            (visit,) = posts(upstream)
        sent, wanted = json.loads(visit.body), json.loads(body)
        assert sent.pop("stream_options")["include_usage"] is True
        assert sent == {name: value for name, value in wanted.items() if name != "stream_options"}
        assert answer.content == UNASKED


class TestNothingIsAsked:
    @pytest.mark.parametrize(
        "fields",
        [
            {"stream_options": {"include_usage": True}},
            {"stream_options": {"continuous_usage_stats": 1}},
            {"n": 2},
        ],
        ids=["who asked himself", "who says what only vLLM can judge", "who wants two answers"],
    )
    async def test_of_a_stream_for(self, fields):
        async with between() as (gateway, upstream):
            answer = await gateway.http.post(CHAT, content=body_of(stream=True, **fields), headers=JSON)
            (visit,) = posts(upstream)
        assert visit.body == body_of(stream=True, **fields)
        assert answer.content == (TOKEN + FINISH + USAGE + DONE if b"include_usage" in visit.body else UNASKED)

    async def test_for_an_answer_in_one_piece(self):
        async with between(answer_chat) as (gateway, upstream):
            answer = await gateway.http.post(CHAT, content=body_of(), headers=JSON)
            (visit,) = posts(upstream)
        assert (visit.body, answer.content) == (body_of(), ANSWER)

    async def test_where_it_is_switched_off(self):
        async with between(upstream={"inject_usage": False}) as (gateway, upstream):
            answer = await gateway.http.post(CHAT, content=body_of(stream=True), headers=JSON)
            (visit,) = posts(upstream)
        assert (visit.body, answer.content) == (body_of(stream=True), UNASKED)


class TestAServerThatDoesNotKnowTheField:
    @pytest.mark.parametrize("status", ["400 Bad Request", "422 Unprocessable Entity"])
    async def test_gets_the_request_as_it_was_and_is_not_asked_again(self, status):
        async def strict(visit):
            if b"stream_options" in visit.body:
                await visit.answer(status, REFUSAL, "content-type: application/json")
            else:
                await streamed(visit, *EVENTS)

        async with between(strict) as (gateway, upstream):
            await gateway.until_up()
            answers = [await gateway.chat(stream=True) for _ in range(2)]
            await gateway.until_released()
            asked = [b"stream_options" in visit.body for visit in posts(upstream)]
            ended = gateway.ended()
        assert [answer.content for answer in answers] == [UNASKED] * 2
        assert (asked, ended) == ([True, False, False], {"finished": 2})

    async def test_that_refuses_either_way_is_believed_the_second_time(self):
        """Errors may quote what a client wrote, so a word in one proves nothing."""

        async def unwilling(visit):
            await visit.answer("400 Bad Request", REFUSAL, "content-type: application/json")

        async with between(unwilling) as (gateway, upstream):
            answers = [await gateway.chat(stream=True) for _ in range(2)]
            await gateway.until_released()
            asked = [b"stream_options" in visit.body for visit in posts(upstream)]
        assert [(answer.status_code, answer.content) for answer in answers] == [(400, REFUSAL)] * 2
        assert asked == [True, False] * 2

    async def test_that_refuses_something_else_is_believed_at_once(self):
        other = json.dumps({"error": {"message": "temperature must be non-negative", "code": 400}}).encode()

        async def picky(visit):
            await visit.answer("400 Bad Request", other, "content-type: application/json")

        async with between(picky) as (gateway, upstream):
            answer = await gateway.chat(stream=True)
            await gateway.until_released()
            assert len(posts(upstream)) == 1
        assert (answer.status_code, answer.content) == (400, other)

    async def test_whose_refusal_breaks_off_is_a_broken_one(self):
        async def broken(visit):
            await visit.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 100\r\n\r\n")
            visit.reset()

        async with between(broken) as (gateway, upstream):
            answer = await gateway.chat(stream=True)
            await gateway.until_released()
            assert len(posts(upstream)) == 1
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_error")


@pytest.mark.parametrize("forced", [False, True], ids=["as it comes", "with usage forced into every event"])
@pytest.mark.parametrize("stream_options", [None, {"continuous_usage_stats": True}])
async def test_the_stream_is_that_of_the_server_asked_directly(forced, stream_options):
    request = chat("Hm?", stream=True, max_tokens=4, stream_options=stream_options)
    named = {"x-request-id": "same"}
    with running_emulator(EmulatorConfig.fast(model=MODEL, enable_force_include_usage=forced)) as server:
        async with httpx.AsyncClient(base_url=server.base_url) as client:
            direct = await client.post(CHAT, json=request, headers=named)
        async with live_gateway(server.base_url) as gateway:
            through = await gateway.http.post(CHAT, json=request, headers=named)
    assert _without_ids(through.text) == _without_ids(direct.text)
    assert ('"usage"' in through.text) is forced
    assert '"system_fingerprint"' in through.text


def _without_ids(stream: str) -> list[object]:
    events = [json.loads(event[6:]) for event in stream.split("\n\n") if event.startswith("data: {")]
    return [[*event.items()][4:] for event in events]


async def test_a_stream_of_several_tokens_an_event_is_held_for_all_of_them_once_that_is_known():
    """A hundred events with 400 tokens, as with speculative decoding. Blocks: prompt and first token, then growth."""
    tokens = TOKEN + 100 * FINISH.replace(b'"stop"', b"null")
    usage = USAGE.replace(b'"completion_tokens":5', b'"completion_tokens":400')
    held = {1: 1 + 8, 20: 1 + 24}

    async def speculative(visit):
        await visit.stream_head()
        await visit.chunk(tokens)
        wanted = held.pop(len(posts(upstream)), None)
        if wanted:
            await until(lambda: gateway.held()['{resource="kv_blocks"}'] == wanted, lambda: str(gateway.held()))
        await visit.chunk(usage + DONE)
        await visit.write(b"0\r\n\r\n")

    async with between(speculative, output_reservation="none") as (gateway, upstream):
        for _ in range(20):
            assert (await gateway.chat(stream=True)).content == tokens + DONE
    assert not held
