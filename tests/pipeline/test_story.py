"""Steps of the story that need more than a model server that says yes: exact counts, names, the step from the queue."""

import asyncio
import base64
import json
import threading
from types import SimpleNamespace

import pytest

from gateway.domain.pace import REQUEST_TOKENS
from gateway.emulator.config import EmulatorConfig
from gateway.emulator.serve import running_emulator
from gateway.imaging.workers import ImageWorkers
from gateway.ledger.gate import Gate
from gateway.pipeline import planning, story
from gateway.pipeline.exchange import Exchange
from gateway.server.proxy import Proxy
from tests.conformance import byte_model
from tests.support.live_gateway import CHAT, MODEL, chat, image, live_gateway, until
from tests.support.model_server import ANSWER, answer_chat, model_server, posts
from tests.support.pictures import data_url, encoded, picture

JSON = {"content-type": "application/json"}
PHOTO = image(data_url(encoded(picture(56, 56))))


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    """A model whose tokenizer and template are at hand."""
    folder = tmp_path_factory.mktemp("model")
    byte_model.write(folder)
    return {"name": MODEL, "folder": str(folder)}


@pytest.fixture(scope="module")
def emulator():
    with running_emulator(EmulatorConfig.fast(image_limit=2)) as running:
        yield running


@pytest.mark.parametrize("text", ["Hm?", "é" * 10_000], ids=["short", "long enough for a thread"])
async def test_the_prompt_is_counted_to_the_token(emulator, counted, text):
    photo = image(data_url(encoded(picture(300, 200))))
    async with live_gateway(emulator.base_url, models=[counted]) as gateway:
        answer = await gateway.chat(text, photo, max_tokens=3)
    assert int(answer.headers["x-gateway-prompt-tokens"]) == answer.json()["usage"]["prompt_tokens"]


async def test_markers_of_trimmed_images_are_counted_too(emulator, counted):
    turn = {"role": "user", "content": [image(data_url(encoded(picture(60, 60))))]}
    messages = [turn, {"role": "assistant", "content": "A."}] * 3 + [{"role": "user", "content": "So?"}]
    sections = {"models": [counted], "images": {"max_forwarded": 2}, "history": {"grid": 1}}
    async with live_gateway(emulator.base_url, **sections) as gateway:
        answer = await gateway.chat(messages=messages, max_tokens=3)
    assert answer.headers["x-gateway-images"] == "0;trimmed"
    assert int(answer.headers["x-gateway-prompt-tokens"]) == answer.json()["usage"]["prompt_tokens"]


@pytest.mark.parametrize("field", [b'"x":"\xff"', b'"x":1e999', b'"x":' + b"9" * 5000, b'"x\xff":1'])
async def test_a_field_that_only_vllm_reads_is_for_vllm_to_judge(counted, field):
    async def answer_anything(visit):
        await visit.answer("200 OK", ANSWER, "content-type: application/json")

    body = json.dumps(chat()).encode()[:-1] + b"," + field + b"}"
    async with model_server(answer_anything) as upstream, live_gateway(upstream.base_url, models=[counted]) as gateway:
        assert (await gateway.http.post(CHAT, content=body, headers=JSON)).status_code == 200
        assert posts(upstream)[0].body == body


async def test_a_guess_at_what_images_cost_refuses_nothing():
    """The family of a name that nobody knows is a guess. Its text is not: that could still hang the engine's queue."""
    dear = image(data_url(encoded(picture(1000, 1000), "JPEG"), "image/jpeg"))
    async with model_server() as upstream, live_gateway(upstream.base_url, budget={"kv_blocks": 10}) as gateway:
        await gateway.until_up()
        assert (await gateway.chat("What?", dear, model="unheard-of")).status_code == 200
        assert json.loads(posts(upstream)[-1].body)["messages"][0]["content"][1] == dear
        refused = await gateway.chat("x" * 600_000, model="unheard-of")
        assert refused.json()["error"]["code"] == "request_exceeds_budget"
        await gateway.until_released()
        outcomes = gateway.metrics("gateway_requests_total")
    assert outcomes == {
        f'{{endpoint="{CHAT}",model="other",outcome="finished"}}': 1,
        f'{{endpoint="{CHAT}",model="other",outcome="refused"}}': 1,
    }


async def test_a_guess_at_images_teaches_nothing_of_the_text():
    async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
        unknown = gateway.application._running.proxy._parts.backends[0].models.served("unheard-of")
        await gateway.chat("x" * 500, image(data_url(encoded(picture(28, 28)))), model="unheard-of")
        await gateway.until_released()
        assert unknown.ratio.bytes_per_token == 3.0
        await gateway.chat("x" * 500, model="unheard-of")
        await gateway.until_released()
        assert unknown.ratio.bytes_per_token > 3.0


async def test_an_image_beyond_the_encoder_budget_is_shrunk_or_refused():
    photo = image(data_url(encoded(picture(560, 560))))
    for fit, status in (("shrink", 200), ("refuse", 400)):
        sections = {"budget": {"encoder_tokens": 100}, "resize": {"fit": fit}}
        async with model_server() as upstream, live_gateway(upstream.base_url, **sections) as gateway:
            await gateway.until_up()
            answer = await gateway.chat(photo)
            assert answer.status_code == status, answer.text
            await gateway.until_released()


async def test_several_damaged_images_end_with_one_error(monkeypatch):
    damaged = [image(data_url(encoded(picture(56, 56, seed=seed))[:-40])) for seed in range(3)]
    async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
        answer = await gateway.chat(*damaged)
        assert answer.json()["error"]["code"] == "image_parse_error"
        await until(lambda: not gateway.held())
        assert not posts(upstream)


@pytest.fixture
def hashed(monkeypatch):
    """Sizes of the images that were hashed."""
    sizes = []
    digest = ImageWorkers.digest

    async def note(workers, file):
        sizes.append(file.file_bytes)
        return await digest(workers, file)

    monkeypatch.setattr(ImageWorkers, "digest", note)
    return sizes


async def test_what_never_fits_is_not_hashed(hashed):
    async with model_server() as upstream, live_gateway(upstream.base_url, budget={"kv_blocks": 10}) as gateway:
        await gateway.until_up()
        assert (await gateway.chat("x" * 600_000, PHOTO)).status_code == 400
        assert not hashed


async def test_what_cannot_even_wait_is_not_hashed(hashed, monkeypatch):
    """The queue filled up while the body came in, so the door had nothing against it."""
    may_answer = asyncio.Event()

    async def patiently(visit):
        await may_answer.wait()
        await answer_chat(visit)

    monkeypatch.setattr(Proxy, "_refuse_at_the_door", lambda *_: None)
    sections = {"budget": {"sequences": 1}, "queue": {"requests": 1}}
    async with model_server(patiently) as upstream, live_gateway(upstream.base_url, **sections) as gateway:
        served = asyncio.create_task(gateway.chat("First."))
        await until(lambda: gateway.held().get('{resource="sequences"}') == 1)
        waiting = asyncio.create_task(gateway.chat("Second."))
        await until(lambda: gateway.metrics("gateway_queue_depth") == {"": 1})
        refused = await gateway.chat("Third.", PHOTO)
        assert (refused.status_code, refused.headers["x-gateway-reason"]) == (429, "queue_full")
        assert not hashed
        may_answer.set()
        assert [(await answer).status_code for answer in (served, waiting)] == [200, 200]
        assert (await gateway.chat("Fourth.", PHOTO)).status_code == 200
        assert len(hashed) == 1


async def test_more_images_than_are_begun_at_once(hashed):
    photos = [image(data_url(encoded(picture(28, 28, seed=seed % 7)))) for seed in range(150)]
    async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
        assert (await gateway.chat(*photos)).status_code == 200
        await gateway.until_released()
        assert len(hashed) == 150
        assert gateway.application._running.proxy._parts.images.statistics().misses == 7


async def test_a_large_url_with_line_breaks_is_read_beside_the_loop_and_sent_without_them(monkeypatch):
    threads = []
    read = planning.read_spelled

    def note(*args):
        threads.append(threading.current_thread())
        return read(*args)

    monkeypatch.setattr(planning, "read_spelled", note)
    file = encoded(picture(400, 400))
    assert len(file) > 100_000
    broken = "data:image/png;base64," + base64.encodebytes(file).decode()
    async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
        assert (await gateway.chat(image(broken))).status_code == 200
        assert json.loads(posts(upstream)[0].body)["messages"][0]["content"] == [image(data_url(file))]
    assert threads[0] is not threading.main_thread()


@pytest.mark.parametrize(
    ("fields", "blocks"),
    [
        ({}, {"quantile": 33, "max": 2_048, "none": 1}),
        ({"max_tokens": 64}, {"quantile": 5, "max": 5, "none": 1}),
    ],
    ids=["up to the context", "up to 64"],
)
@pytest.mark.parametrize("rule", ["quantile", "max", "none"])
async def test_an_answer_reserves_what_the_rule_says(rule, fields, blocks):
    """The prompt is of 14 tokens, and a block has 16."""
    held = []

    async def look(visit):
        held.append(gateway.held()['{resource="kv_blocks"}'])
        await answer_chat(visit)

    async with (
        model_server(look) as upstream,
        live_gateway(upstream.base_url, output_reservation=rule, budget={"kv_blocks": 9_000}) as gateway,
    ):
        await gateway.until_up()
        await gateway.chat("Hm?", **fields)
    assert held == [blocks[rule]]


@pytest.mark.parametrize(
    ("answered", "reserved"), [(100, 100), (32_768 - 40, 512)], ids=["ended", "cut by the context"]
)
async def test_an_answer_that_fills_the_context_says_nothing_of_how_long_answers_are(answered, reserved):
    whole = json.loads(ANSWER)
    whole["usage"] = {"prompt_tokens": 40, "completion_tokens": answered, "total_tokens": 40 + answered}

    async def answer_so(visit):
        await visit.answer("200 OK", json.dumps(whole).encode(), "content-type: application/json")

    async with model_server(answer_so) as upstream, live_gateway(upstream.base_url) as gateway:
        await gateway.until_up()
        for _ in range(31):
            await gateway.chat()
        lines = await gateway.log(31)
    assert (lines[0]["output_tokens"], lines[-1]["output_tokens"]) == (512, reserved)


async def test_usage_tells_that_the_server_was_started_with_a_smaller_maximum_for_images():
    """What a large picture costs there is not known until one was seen; then it is what that cost. vLLM tells it
    nowhere.
    """
    large, small = (image(data_url(encoded(picture(side, side), "JPEG"), "image/jpeg")) for side in (3000, 500))

    async def answer_with_usage(visit):
        usage = {"prompt_tokens": 1_000, "completion_tokens": 2, "total_tokens": 1_002}
        await visit.answer("200 OK", json.dumps(json.loads(ANSWER) | {"usage": usage}).encode())

    async with model_server(answer_with_usage) as upstream, live_gateway(upstream.base_url) as gateway:
        await gateway.until_up()

        async def visual_tokens(picture):
            answer = await gateway.chat(picture)
            await gateway.until_released()
            return int(answer.headers["x-gateway-visual-tokens"])

        before, afterwards = await visual_tokens(large), await visual_tokens(large)
        assert before == 107 * 107 + 2
        assert 900 < afterwards < 1_000
        assert await visual_tokens(small) == 326


async def test_images_that_are_prepared_again_for_another_server_took_both_times():
    async def prepare(*_args):
        ticks.pop(0)

    ticks = [10.0, "at work", 11.5, 20.0, "at work", 20.25]
    policies = SimpleNamespace(transform_seconds=60.0)
    images = SimpleNamespace(prepare=prepare)
    parts = SimpleNamespace(clock=lambda: ticks.pop(0), images=images, policies=policies)
    ref = SimpleNamespace(param="", ordinal=0)
    source = SimpleNamespace(url=SimpleNamespace(file=None), ref=ref, digest=None, named=None)
    plan = planning.Plan((source,), (SimpleNamespace(info=None, target=None),))
    exchange = Exchange("1", "POST", CHAT, b"", (), 0.0)
    for _ in range(2):
        assert await story.transform(parts, exchange, plan) == {}
    assert exchange.transform_seconds == 1.75


@pytest.mark.parametrize("deadline_ms", [None, 3_000])
async def test_a_request_is_due_by_its_level_and_its_own_deadline(monkeypatch, deadline_ms):
    tickets, newcomers = [], []
    real = story.ticket_of
    monkeypatch.setattr(story, "ticket_of", lambda *args: tickets.append(real(*args)) or tickets[-1])
    monkeypatch.setattr(Gate, "has_waiters", True)
    monkeypatch.setattr(Gate, "refuse_if_full", lambda _gate, newcomer: newcomers.append(newcomer))
    slo = {"first_token_seconds": 4.0, "total_seconds": 15.0}
    async with model_server() as upstream, live_gateway(upstream.base_url, slo=slo) as gateway:
        headers = JSON if deadline_ms is None else JSON | {"x-gateway-deadline-ms": str(deadline_ms)}
        assert (await gateway.http.post(CHAT, json=chat(), headers=headers)).status_code == 200
        await gateway.until_released()
    (ticket,) = tickets
    assert ticket.answer_by - ticket.first_token_by == pytest.approx(11.0 if deadline_ms is None else 12.0)
    assert ticket.prefill_tokens > REQUEST_TOKENS
    # The door promises nothing that would come too late.
    (newcomer,) = newcomers
    assert (newcomer.first_token_by, newcomer.answer_by) == (ticket.first_token_by, ticket.answer_by)
