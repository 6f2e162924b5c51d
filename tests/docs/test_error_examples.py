"""Each error of the reference, brought about at a running gateway, is the one that is shown."""

import asyncio
import re
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pybase64
import pytest

from gateway.domain.errors import Code, GatewayError
from gateway.emulator.config import EmulatorConfig
from gateway.emulator.serve import running_emulator
from gateway.server.http_protocol import _late
from gateway.wire.errors import error_body, error_headers
from scripts.reference.error_examples import EXAMPLES
from tests.support.live_gateway import CHAT, chat, image, live_gateway, until
from tests.support.model_server import Patient, answer_never, model_server, posts
from tests.support.pictures import data_url, encoded, picture
from tests.support.raw_client import head, raw_client
from tests.support.raw_http import raw_http_server

HARD = Path(__file__).parents[1] / "data" / "hard_inputs"
PHOTO = image(data_url(encoded(picture(64, 64))))


def hard_image(name):
    return image("data:image/png;base64," + pybase64.b64encode((HARD / name).read_bytes()).decode())


CHATS = {
    Code.INVALID_CONTENT_PART: {"type": "file", "file": {}},
    Code.MEDIA_NOT_ALLOWED: {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA"}},
    Code.INVALID_BASE64_IMAGE: image("data:image/png;base64,iVBORw0KGgo_"),
    Code.UNSUPPORTED_IMAGE_MEDIA_TYPE: hard_image("pdf_file.pdf"),
    Code.EMPTY_IMAGE_FILE: image("data:image/png;base64,=="),
    Code.IMAGE_PARSE_ERROR: hard_image("png_bad_crc_ihdr.png"),
    Code.IMAGE_TOO_LARGE: hard_image("png_bomb_30000.png"),
    Code.INVALID_IMAGE_DIMENSIONS: hard_image("png_201to1.png"),
    Code.UNKNOWN_IMAGE_UUID: {"type": "image_url", "image_url": None, "uuid": "page-7"},
    Code.INVALID_IMAGE_URL: image("ftp://pictures.example.com/a.png"),
}
"""Wrong in one part of their content."""

REQUESTS = {
    Code.INVALID_JSON: ("POST", CHAT, {"content": b'{"model": '}),
    Code.INVALID_REQUEST: ("POST", CHAT, {"json": {"messages": []}}),
    Code.REQUEST_EXCEEDS_BUDGET: ("POST", CHAT, {"json": chat("What?", n=8)}),
    Code.PERMISSION_DENIED: ("POST", "/v1/responses/render", {"json": {}}),
    Code.INVALID_API_KEY: ("POST", CHAT, {"json": chat(), "headers": {"authorization": "Bearer sk-wrong"}}),
    Code.MODEL_NOT_FOUND: ("GET", "/v1/models/gpt-4o", {}),
    Code.NOT_FOUND: ("POST", "/chat/completions", {"json": {}}),
    Code.METHOD_NOT_ALLOWED: ("GET", CHAT, {}),
    Code.UNSUPPORTED_CONTENT_ENCODING: ("POST", CHAT, {"content": b"", "headers": {"content-encoding": "compress"}}),
    Code.TOO_MANY_IMAGES: ("POST", CHAT, {"json": chat("What?", PHOTO, PHOTO)}),
}
"""Wrong by themselves."""

_SETTINGS = {
    Code.INVALID_API_KEY: {"tenants": [{"name": "team-a", "key_sha256": ["0" * 64]}]},
    Code.UNSUPPORTED_IMAGE_MEDIA_TYPE: {"images": {"formats": ["jpeg", "png", "webp"]}},
    Code.REQUEST_EXCEEDS_BUDGET: {"budget": {"sequences": 4}},
    Code.TOO_MANY_IMAGES: {"images": {"max_per_turn": 1}},
}
JSON = {"content-type": "application/json"}


def compare(code, status, headers, body):
    """With the example; ids and jittered times may differ."""
    error = EXAMPLES[code]
    expected = error_body(error)
    assert without_id(body.decode()) == without_id(expected.decode())
    assert status == error.status
    for name, value in error_headers(error, expected, jitter=0.0):
        assert headers[name.decode()] == value.decode() or name in {b"content-length", b"retry-after"}
    told = {"retry-after", "retry-after-ms", "x-should-retry"}
    assert told & set(headers) == told & {name.decode() for name, _ in error_headers(error, expected, jitter=0.0)}


def without_id(text):
    return re.sub("gw-[0-9a-f]+", "gw-", text)


def compare_answer(code, answer):
    compare(code, answer.status_code, answer.headers, answer.content)


@asynccontextmanager
async def gateway_for(code=None, **sections):
    async with model_server() as upstream, live_gateway(upstream.base_url, **sections, **_SETTINGS.get(code, {})) as it:
        await it.until_up()
        yield it


@pytest.mark.parametrize("code", CHATS)
async def test_wrong_content(code):
    async with gateway_for(code) as gateway:
        compare_answer(code, await gateway.chat("What?", CHATS[code]))


@pytest.mark.parametrize("code", REQUESTS)
async def test_wrong_requests(code):
    method, path, fields = REQUESTS[code]
    async with gateway_for(code) as gateway:
        headers = JSON | fields.get("headers", {})
        compare_answer(code, await gateway.http.request(method, path, **fields | {"headers": headers}))


async def test_images_that_cannot_be_had():
    async def serve(visit):
        await visit.answer("404 Not Found")

    async with raw_http_server(serve) as host:
        port = int(host.base_url.rpartition(":")[2])
        remote = {"allow_ports": [port], "allow_networks": ["127.0.0.0/8"]}
        async with gateway_for(images={"remote": remote}) as gateway:
            answer = await gateway.chat("What?", image(f"{host.base_url}/a.png"))
            compare_answer(Code.FAILED_TO_DOWNLOAD_IMAGE, answer)


async def test_a_prompt_longer_than_the_context():
    model = "Qwen/Qwen2.5-VL-7B-Instruct"
    photos = [image(data_url(encoded(picture(1680, 1260, seed=seed)))) for seed in (1, 2)]
    with running_emulator(EmulatorConfig.fast(model=model, max_model_len=4096)) as emulator:
        async with live_gateway(emulator.base_url, models=[]) as gateway:
            await gateway.until_up()
            answer = await gateway.chat("Which is sharper?", *photos, model=model)
            compare_answer(Code.CONTEXT_LENGTH_EXCEEDED, answer)


async def test_what_is_too_much_for_the_door():
    async with gateway_for() as gateway, raw_client(gateway.host, gateway.port) as client:
        client.send(head(40_000_000))
        compare(Code.REQUEST_TOO_LARGE, *await client.answer())
    async with gateway_for() as gateway, raw_client(gateway.host, gateway.port) as client:
        client.send(head(2, "x-long: " + "a" * 70_000))
        compare(Code.HEADERS_TOO_LARGE, *await client.answer())


def test_headers_that_come_too_slowly():
    """Half a minute is not waited for here; tests/server/test_http_protocol.py has the clock."""
    shown, said = EXAMPLES[Code.REQUEST_TIMEOUT], _late()
    assert (said.code, said.message, said.param) == (shown.code, shown.message, shown.param)


async def test_no_place_now():
    patient = Patient()
    sections = {"budget": {"sequences": 1}, "queue": {"requests": 1, "wait_seconds": 20}}
    async with model_server(patient) as upstream, live_gateway(upstream.base_url, **sections) as gateway:
        await gateway.until_up()
        inside = [asyncio.create_task(gateway.chat())]
        await until(lambda: len(posts(upstream)) == 1)
        inside.append(asyncio.create_task(gateway.chat()))
        await until(lambda: gateway.metrics("gateway_queue_depth") == {"": 1})
        compare_answer(Code.RATE_LIMIT_EXCEEDED, await gateway.chat())
        patient.may_answer.set()
        await asyncio.gather(*inside)


async def test_waited_in_vain():
    patient = Patient()
    sections = {"budget": {"sequences": 1}, "queue": {"wait_seconds": 0.05}}
    async with model_server(patient) as upstream, live_gateway(upstream.base_url, **sections) as gateway:
        await gateway.until_up()
        first = asyncio.create_task(gateway.chat())
        await until(lambda: len(posts(upstream)) == 1)
        compare_answer(Code.SERVER_IS_OVERLOADED, await gateway.chat())
        patient.may_answer.set()
        await first


async def test_a_model_server_that_breaks_off_is_silent_or_away():
    async def hang_up(visit):
        visit.writer.close()

    async with model_server(hang_up) as upstream, live_gateway(upstream.base_url) as gateway:
        compare_answer(Code.UPSTREAM_ERROR, await gateway.chat())
    brief = {"first_byte_timeout_seconds": 0.1}
    async with model_server(answer_never) as upstream, live_gateway(upstream.base_url, upstream=brief) as gateway:
        compare_answer(Code.UPSTREAM_TIMEOUT, await gateway.chat(stream=True))
    async with live_gateway("http://127.0.0.1:9") as gateway:
        compare_answer(Code.UPSTREAM_UNAVAILABLE, await gateway.chat())


async def test_a_fault_of_the_gateway(monkeypatch):
    def fail(*_):
        raise RuntimeError("planted")

    monkeypatch.setattr("gateway.pipeline.story.route", fail)
    async with gateway_for() as gateway:
        compare_answer(Code.INTERNAL_ERROR, await gateway.chat())


def test_none_is_forgotten():
    elsewhere = {
        Code.FAILED_TO_DOWNLOAD_IMAGE, Code.CONTEXT_LENGTH_EXCEEDED, Code.REQUEST_TOO_LARGE, Code.HEADERS_TOO_LARGE,
        Code.REQUEST_TIMEOUT, Code.RATE_LIMIT_EXCEEDED, Code.SERVER_IS_OVERLOADED, Code.UPSTREAM_ERROR,
        Code.UPSTREAM_TIMEOUT, Code.UPSTREAM_UNAVAILABLE, Code.INTERNAL_ERROR,
    }  # fmt: skip
    assert CHATS.keys() | REQUESTS.keys() | elsewhere == EXAMPLES.keys()


def test_another_message_would_be_noticed():
    other = httpx.Response(404, content=error_body(GatewayError(Code.NOT_FOUND, "Nothing.")))
    with pytest.raises(AssertionError):
        compare_answer(Code.NOT_FOUND, other)
