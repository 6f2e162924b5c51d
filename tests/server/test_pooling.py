"""The pooling routes end to end, before an emulated pooling server: priced as it counts, resized, refused by path."""

import asyncio
from collections.abc import Iterator

import pytest

from gateway.emulator.config import EmulatorConfig
from gateway.emulator.serve import RunningEmulator, running_emulator
from tests.support.clock import FakeClock
from tests.support.live_gateway import MODEL, image, live_gateway
from tests.support.model_server import model_server, posts
from tests.support.pictures import data_url, encoded, picture

LARGE = data_url(encoded(picture(560, 560)))
SMALL = data_url(encoded(picture(280, 140)))
BAD = "data:image/png;base64,aGVsbG8="


@pytest.fixture(scope="module")
def pooling() -> Iterator[RunningEmulator]:
    with running_emulator(EmulatorConfig.fast(runner="pooling", image_limit=2)) as running:
        yield running


def asked(*urls: str) -> list[dict]:
    return [{"role": "user", "content": ["Hi.", *[image(url) for url in urls]]}]


async def test_usage_of_a_ranking_stands_before_the_pictures_that_it_repeats(pooling):
    """They may be larger than all that is kept of an answer's end."""
    photo = data_url(encoded(picture(280, 280, seed=3)))
    body = {"model": MODEL, "query": "a", "documents": [parts(photo)]}
    async with live_gateway(pooling.base_url) as gateway:
        answer = await gateway.http.post("/rerank", json=body)
        [line] = await gateway.log(1)
    assert len(answer.content) > 20_000
    assert line["actual_prompt_tokens"] == answer.json()["usage"]["prompt_tokens"]
    assert "is_estimate" not in line


def parts(*urls: str) -> dict:
    return {"content": [image(url) for url in urls]}


BODIES = {
    "embeddings of messages": ("/v1/embeddings", {"messages": asked(SMALL)}, 52),
    "embeddings of conversations": ("/v1/embeddings", {"messages": [asked(SMALL), asked(LARGE, SMALL)]}, 52 + 402 + 52),
    "embeddings of input": ("/v1/embeddings", {"input": asked(SMALL, LARGE)}, 52 + 402),
    "embeddings of input in lists": ("/v1/embeddings", {"input": [asked(SMALL), asked()]}, 52),
    "pooling": ("/pooling", {"messages": asked(SMALL), "task": "embed"}, 52),
    "classify": ("/classify", {"messages": asked(SMALL)}, 52),
    "embed images": ("/v2/embed", {"images": [SMALL, LARGE]}, 52 + 402),
    "embed inputs": ("/v2/embed", {"inputs": [parts(SMALL), parts(LARGE, SMALL)]}, 52 + 402 + 52),
    "score": ("/score", {"text_1": "a", "text_2": [parts(SMALL), "b"]}, 52),
    "score of v1": ("/v1/score", {"queries": [parts(SMALL)], "items": parts(LARGE)}, 52 + 402),
    "rerank": ("/rerank", {"query": "a", "documents": [parts(SMALL), parts(LARGE)]}, 52 + 402),
    "rerank of v1": ("/v1/rerank", {"query": parts(SMALL), "documents": ["a"]}, 52),
    "rerank of v2": ("/v2/rerank", {"query": "a", "documents": parts(SMALL)}, 52),
}


@pytest.mark.parametrize("name", BODIES)
async def test_pictures_are_priced_as_the_server_counts_them(pooling, name):
    path, body, visual_tokens = BODIES[name]
    async with live_gateway(pooling.base_url) as gateway:
        await gateway.until_up()
        answer = await gateway.http.post(path, json={"model": MODEL, **body})
        assert answer.status_code == 200, answer.text
        assert answer.headers["x-gateway-visual-tokens"] == str(visual_tokens)
        line = await gateway.assert_ended("finished", status=200)
        assert (line["endpoint"], line["visual_tokens"]) == (path, visual_tokens)
        [series] = gateway.metrics("gateway_requests_total")
        assert f'endpoint="{path}"' in series


@pytest.mark.parametrize("name", BODIES)
async def test_pictures_are_resized_in_their_place(name):
    path, body, _ = BODIES[name]
    async with model_server() as upstream, live_gateway(upstream.base_url, resize={"preset": "thumbnail"}) as gateway:
        await gateway.http.post(path, json={"model": MODEL, **body})
        (visit,) = posts(upstream)
    assert visit.path == path
    assert SMALL.encode() in visit.body or SMALL not in str(body)
    assert LARGE.encode() not in visit.body


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/embeddings", {"messages": asked(BAD)}, "messages[0].content[1].image_url.url"),
        ("/v1/embeddings", {"input": [asked(), asked(SMALL, BAD)]}, "input[1][0].content[2].image_url.url"),
        ("/pooling", {"messages": asked(BAD)}, "messages[0].content[1].image_url.url"),
        ("/classify", {"messages": asked(BAD)}, "messages[0].content[1].image_url.url"),
        ("/v2/embed", {"images": [SMALL, BAD]}, "images[1]"),
        ("/v2/embed", {"inputs": [parts(SMALL, BAD)]}, "inputs[0].content[1].image_url.url"),
        ("/score", {"text_1": "a", "text_2": ["b", parts(BAD)]}, "text_2[1].content[0].image_url.url"),
        ("/rerank", {"query": parts(BAD), "documents": ["b"]}, "query.content[0].image_url.url"),
    ],
)
async def test_a_damaged_picture_is_refused_by_its_path(pooling, path, body, param):
    async with live_gateway(pooling.base_url) as gateway:
        refusal = await gateway.http.post(path, json={"model": MODEL, **body})
        error = refusal.json()["error"]
        assert (refusal.status_code, error["param"]) == (400, param)


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/embeddings", {"messages": asked(*[SMALL] * 3)}, "messages"),
        ("/v1/embeddings", {"input": [asked(SMALL), asked(*[SMALL] * 3)]}, "input"),
        ("/v2/embed", {"inputs": [parts(*[SMALL] * 3)]}, "inputs"),
        ("/rerank", {"query": "a", "documents": [parts(*[SMALL] * 3)]}, "documents"),
    ],
)
async def test_the_limit_of_images_holds_for_each_prompt_and_none_is_left_out(pooling, path, body, param):
    async with live_gateway(pooling.base_url, images={"max_forwarded": 2}) as gateway:
        refusal = await gateway.http.post(path, json={"model": MODEL, **body})
        error = refusal.json()["error"]
        assert (refusal.status_code, error["code"], error["param"]) == (400, "too_many_images", param)
        assert "3 images and the limit is 2" in error["message"]
        four = [asked(SMALL, LARGE), asked(LARGE, SMALL)]
        assert (await gateway.http.post("/v1/embeddings", json={"messages": four})).status_code == 200


async def test_what_a_query_shows_may_come_once_for_each_document(pooling):
    async with live_gateway(pooling.base_url) as gateway:
        await gateway.until_up()
        body = {"model": MODEL, "query": parts(SMALL), "documents": ["a", "b", "c"]}
        answer = await gateway.http.post("/rerank", json=body)
        assert answer.headers["x-gateway-visual-tokens"] == str(3 * 52)
        assert answer.headers["x-gateway-visual-bounds"].startswith("lower=52; upper=156")


async def test_nothing_of_a_pooled_conversation_is_history():
    talk = [
        *asked(SMALL, LARGE, SMALL),
        {"role": "assistant", "content": "I see."},
        {"role": "user", "content": "And?"},
    ]
    history = {"mode": "always", "keep": 1, "grid": 1}
    async with model_server() as upstream, live_gateway(upstream.base_url, history=history) as gateway:
        await gateway.http.post("/v1/embeddings", json={"model": MODEL, "messages": talk})
        (visit,) = posts(upstream)
    assert visit.body.count(SMALL.encode()) == 2


async def test_tokenize_goes_on_with_its_pictures_looked_at(pooling):
    async with live_gateway(pooling.base_url) as gateway:
        await gateway.until_up()
        answer = await gateway.http.post("/tokenize", json={"model": MODEL, "messages": asked(SMALL)})
        assert (answer.status_code, answer.headers["x-gateway-visual-tokens"]) == (200, "52")
        assert answer.json()["count"] > 52
        refusal = await gateway.http.post("/tokenize", json={"model": MODEL, "messages": asked(BAD)})
        assert refusal.json()["error"]["param"] == "messages[0].content[1].image_url.url"
        await gateway.until_released()


async def test_padded_prompts_are_as_long_as_the_context(pooling):
    async with live_gateway(pooling.base_url) as gateway:
        await gateway.until_up()
        body = {"model": MODEL, "input": ["a", "b"], "padding": "max_length"}
        answer = await gateway.http.post("/v1/embeddings", json=body)
        assert answer.headers["x-gateway-prompt-tokens"] == str(2 * 32_768)


async def test_a_count_holds_the_thread_that_reads_pictures_and_nothing_of_the_engine():
    has_come, may_go = asyncio.Event(), asyncio.Event()

    async def script(visit):
        if SMALL.encode() in visit.body:
            has_come.set()
            await may_go.wait()
        await visit.answer("200 OK", b"{}", "content-type: application/json")

    async with model_server(script) as upstream, live_gateway(upstream.base_url, clock=FakeClock()) as gateway:
        await gateway.until_up()
        asking = asyncio.create_task(gateway.http.post("/tokenize", json={"model": MODEL, "messages": asked(SMALL)}))
        await asyncio.wait_for(has_come.wait(), 30)
        held = gateway.metrics("gateway_held")
        may_go.set()
        assert (await asking).status_code == 200
        await gateway.until_released()
    assert held['{resource="preprocess_pixels"}'] == 280 * 140
    assert not [name for name in held if "kv_blocks" in name or "sequences" in name]
