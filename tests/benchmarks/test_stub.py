import json

import httpx
import pytest

from benchmarks.bodies import TEXT, text_request
from benchmarks.stub import Stub

HEADERS = {"content-type": "application/json"}


@pytest.fixture
async def server():
    server = Stub()
    port = await server.listen()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        yield client, server.books
    await server.close()


async def chat(client, body):
    return await client.post("/v1/chat/completions", content=body, headers=HEADERS)


def events_of(answer):
    return [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]


async def test_a_request_without_stream_is_answered_with_usage(server):
    client, books = server
    answer = await chat(client, text_request(max_tokens=7))
    assert answer.json()["usage"]["completion_tokens"] == 7
    assert books.requests == 1
    assert books.body_bytes == len(text_request(max_tokens=7))


@pytest.mark.parametrize("pause_micros", [0, 1])
async def test_a_stream_has_as_many_events_as_asked_for_and_each_tells_when_it_left(server, pause_micros):
    client, books = server
    answer = await chat(client, text_request(stream=True, max_tokens=5, seed=pause_micros))
    *events, done = events_of(answer)
    stamped = [event for event in events if "@" in event]
    assert done == "[DONE]"
    assert len(stamped) == books.events == 5
    assert all(json.loads(event)["object"] == "chat.completion.chunk" for event in events)


async def test_usage_ends_a_stream_only_when_asked_for(server):
    client, _ = server
    without = await chat(client, text_request(stream=True, max_tokens=1))
    with_usage = await chat(client, text_request(stream=True, max_tokens=1, stream_options={"include_usage": True}))
    assert "usage" not in without.text
    assert json.loads(events_of(with_usage)[-2])["usage"]["completion_tokens"] == 1


async def test_a_late_answer_comes_after_its_pause(server):
    client, _ = server
    assert (await chat(client, text_request(seed=1000))).status_code == 200


@pytest.mark.parametrize("knobs_first", [True, False])
async def test_knobs_are_found_at_both_ends_of_a_large_body(server, knobs_first):
    client, _ = server
    messages = {"messages": [{"role": "user", "content": "x" * 300_000}]}
    knobs = {"stream": True, "max_tokens": 3}
    body = json.dumps({**knobs, **messages} if knobs_first else {**messages, **knobs}).encode()
    assert (await chat(client, body)).text.count("@") == 2 * 3


async def test_a_gateway_finds_what_it_needs_to_start(server):
    client, _ = server
    assert (await client.get("/health")).status_code == 200
    assert (await client.get("/version")).json() == {"version": "0.32.0"}
    assert (await client.get("/v1/models")).json()["data"][0]["max_model_len"] > len(TEXT)
    assert 'num_gpu_blocks="' in (await client.get("/metrics")).text
    assert (await client.get("/stats")).json()["requests"] == 0
    assert (await client.get("/elsewhere")).status_code == 404


async def test_what_is_not_http_ends_the_connection(server):
    client, _ = server
    with pytest.raises(httpx.HTTPError):
        await client.request("NONSENSE", "/health")
