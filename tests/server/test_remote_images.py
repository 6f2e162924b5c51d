"""Images by http(s) address through a whole gateway: fetched once, checked, counted, and sent on as data."""

import asyncio
import base64
import io
import json

import pytest
from PIL import Image
from yarl import URL

from tests.support.live_gateway import image, live_gateway, until
from tests.support.model_server import Patient, answer_chat, error_of, model_server, posts
from tests.support.raw_http import Visit, raw_http_server


def picture(kind: str = "PNG", size: tuple[int, int] = (56, 84)) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", size, (200, 30, 40)).save(file, kind)
    return file.getvalue()


FILE = picture()
DATA = f"data:image/png;base64,{base64.b64encode(FILE).decode()}"


def serving(files: dict[str, bytes], *headers: str):
    async def script(visit: Visit) -> None:
        body = files.get(visit.path)
        await visit.answer("200 OK" if body is not None else "404 Not Found", body or b"", *headers)

    return script


@pytest.fixture
async def house(stack):
    """A gateway that may ask the image host, the host, and the model server."""

    async def house(host_script, answer=answer_chat, remote=None, **sections):
        host = await stack.enter_async_context(raw_http_server(host_script))
        upstream = await stack.enter_async_context(model_server(answer))
        allowed = {"allow_networks": ["127.0.0.0/8"], "allow_ports": [URL(host.base_url).port]}
        images = sections.pop("images", {}) | {"remote": allowed | (remote or {})}
        gateway = await stack.enter_async_context(live_gateway(upstream.base_url, images=images, **sections))
        await gateway.until_up()
        return gateway, host, upstream

    return house


def urls_in(body: bytes) -> list[str]:
    parts = [part for message in json.loads(body)["messages"] for part in message["content"]]
    return [part["image_url"]["url"] for part in parts if "image_url" in part]


async def test_a_picture_is_fetched_and_goes_on_as_data(house):
    gateway, host, upstream = await house(serving({"/a.png": FILE}))
    answer = await gateway.chat("What is this?", image(f"{host.base_url}/a.png"))
    assert answer.status_code == 200
    assert urls_in(posts(upstream)[0].body) == [DATA]
    assert answer.headers["x-gateway-visual-tokens"] == "8"
    line = await gateway.assert_ended("finished", status=200)
    assert line["fetch_ms"] > 0
    assert line["pictures"][0][2:4] == [56, 84]


async def test_what_was_fetched_is_not_kept_while_the_answer_streams(house):
    patient = Patient(then=answer_chat)

    async def begin_and_wait(visit):
        await visit.stream_head()
        await visit.chunk(b'data: {"choices":[{"index":0,"delta":{"content":"Yes"}}]}\n\n')
        await patient(visit)

    gateway, host, _ = await house(serving({"/a.png": FILE}), begin_and_wait)
    asking = asyncio.create_task(gateway.chat(image(f"{host.base_url}/a.png"), stream=True))
    await until(lambda: gateway.metrics("gateway_held").get('{resource="sequences"}') == 1)
    await until(lambda: '{resource="body_bytes"}' not in gateway.metrics("gateway_held"))
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await gateway.until_released()


async def test_fetches_are_counted_by_what_became_of_them(house):
    gateway, host, _ = await house(serving({"/a.png": FILE}, "cache-control: max-age=60"))
    for path in ("/a.png", "/a.png", "/gone.png"):
        await gateway.chat(image(host.base_url + path))
    await gateway.chat(image("http://10.0.0.5/a.png"))
    counts = gateway.metrics("gateway_image_fetches_total")
    assert sorted(counts.values()) == [1, 1, 1, 1]
    assert {name.partition('result="')[2].partition('"')[0] for name in counts} == {
        *("fetched", "cached", "failed", "refused")
    }


async def test_the_same_picture_as_data_is_the_same_picture(house):
    """What is decoded once is not decoded again for having come another way."""
    gateway, host, upstream = await house(serving({"/a.png": FILE}))
    await gateway.chat(image(DATA))
    await gateway.chat(image(f"{host.base_url}/a.png"))
    first, second = (visit.body for visit in posts(upstream))
    assert urls_in(first) == urls_in(second)
    assert gateway.application._running.proxy._parts.images.statistics().hits == 1


async def test_one_that_needs_it_is_turned_and_shrunk_like_any_other(house):
    gateway, host, upstream = await house(
        serving({"/wide.bmp": picture("BMP", (2000, 1000))}), resize={"preset": "thumbnail"}
    )
    answer = await gateway.chat(image(f"{host.base_url}/wide.bmp"))
    (url,) = urls_in(posts(upstream)[0].body)
    assert url.startswith("data:image/webp;base64,")
    assert answer.headers["x-gateway-images"].startswith("0;resized;2000x1000")


async def test_a_bare_string_becomes_an_object(house):
    gateway, host, upstream = await house(serving({"/a.png": FILE}))
    await gateway.chat({"type": "image_url", "image_url": f"{host.base_url}/a.png"})
    assert urls_in(posts(upstream)[0].body) == [DATA]


async def test_pictures_that_are_left_out_are_not_fetched(house):
    gateway, host, _ = await house(serving({"/b.png": FILE}), history={"mode": "always", "keep": 1, "grid": 1})
    turns = [
        {"role": "user", "content": [image(f"{host.base_url}/gone.png")]},
        {"role": "assistant", "content": "A cat."},
        {"role": "user", "content": [image(f"{host.base_url}/b.png")]},
    ]
    answer = await gateway.http.post("/v1/chat/completions", json={"model": "tiny", "messages": turns})
    assert answer.status_code == 200
    assert [visit.path for visit in host.visits] == ["/b.png"]


@pytest.mark.parametrize(
    ("path", "code", "hint"),
    [
        ("/gone.png", "failed_to_download_image", "status 404"),
        ("/large.png", "image_too_large", "images.max_bytes"),
        ("/page.html", "unsupported_image_media_type", ""),
    ],
)
async def test_what_fails_is_told_by_its_path_and_reaches_nobody(house, path, code, hint):
    files = {"/large.png": bytes(5000), "/page.html": b"<html>login</html>"}
    gateway, host, upstream = await house(serving(files), images={"max_bytes": 4000})
    answer = await gateway.chat("Well?", image(host.base_url + path))
    error = error_of(answer)
    assert (answer.status_code, error["code"]) == (400, code)
    assert error["param"] == "messages[0].content[1].image_url.url"
    assert hint in error["message"]
    assert answer.headers["x-should-retry"] == "false"
    assert not posts(upstream)
    await gateway.assert_ended("refused", status=400, reason="bad_image")


@pytest.mark.parametrize(
    "url", ["http://169.254.169.254/latest/meta-data/", "http://[::ffff:10.0.0.1]/", "http://a:1/"]
)
async def test_addresses_inside_are_refused_without_a_packet(house, url):
    gateway, host, upstream = await house(serving({}))
    assert error_of(await gateway.chat(image(url)))["code"] == "invalid_image_url"
    assert not host.visits
    assert not posts(upstream)


async def test_where_fetching_is_off_that_is_said(house):
    gateway, host, _ = await house(serving({"/a.png": FILE}), remote={"policy": "refuse"})
    error = error_of(await gateway.chat(image(f"{host.base_url}/a.png")))
    assert (error["code"], host.visits) == ("invalid_image_url", [])
    assert "images.remote.policy" in error["message"]


async def test_all_images_of_one_request_have_so_much_time_together(house):
    gateway, host, _ = await house(Patient(), queue={"wait_seconds": 0.2})
    answer = await gateway.chat(*[image(f"{host.base_url}/{number}.png") for number in range(3)])
    assert error_of(answer)["code"] == "failed_to_download_image"
    assert "The 3 images" in answer.json()["error"]["message"]
    await gateway.until_released()


@pytest.mark.parametrize(("count", "status"), [(2, 200), (3, 413)])
async def test_all_images_of_one_request_have_so_many_bytes_together(house, count, status):
    files = {f"/{name}.png": picture() + bytes(3000) for name in "abc"[:count]}
    gateway, host, upstream = await house(serving(files), server={"max_body_bytes": 9000})
    answer = await gateway.chat(*[image(host.base_url + path) for path in files])
    assert answer.status_code == status
    assert len(posts(upstream)) == (status == 200)
    if status == 413:
        assert error_of(answer)["code"] == "request_too_large"
        assert "server.max_body_bytes" in error_of(answer)["message"]
    await gateway.until_released()


async def test_a_client_that_leaves_takes_its_fetch_along(house):
    gateway, host, upstream = await house(Patient())
    asking = asyncio.create_task(gateway.chat(image(f"{host.base_url}/a.png")))
    await until(lambda: len(host.visits) == 1)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await gateway.until_released()
    assert not posts(upstream)


async def test_who_could_not_even_wait_has_nothing_fetched(house):
    patient = Patient()
    gateway, host, _ = await house(serving({"/a.png": FILE}), patient, budget={"sequences": 1}, queue={"requests": 1})
    asking = [asyncio.create_task(gateway.chat(number)) for number in "12"]
    await until(lambda: gateway.metrics("gateway_queue_depth") != {})
    answer = await gateway.chat(image(f"{host.base_url}/a.png"))
    assert answer.status_code == 429
    assert host.visits == []
    patient.may_answer.set()
    await asyncio.gather(*asking)
    await gateway.until_released()


FORWARD = {"policy": "forward", "allow_hosts": ["127.0.0.1"]}


class TestForward:
    async def test_the_address_goes_on_once_the_picture_was_seen(self, house):
        gateway, host, upstream = await house(serving({"/a.png": FILE}), remote=FORWARD)
        url = f"{host.base_url}/a.png"
        answer = await gateway.chat(image(url), {"type": "image_url", "image_url": url})
        assert urls_in(posts(upstream)[0].body) == [url, url]
        assert answer.headers["x-gateway-visual-tokens"] == "16"
        assert len(host.visits) == 1

    async def test_one_that_is_made_anew_goes_on_as_data(self, house):
        gateway, host, upstream = await house(serving({"/a.gif": picture("GIF")}), remote=FORWARD)
        await gateway.chat(image(f"{host.base_url}/a.gif"))
        assert urls_in(posts(upstream)[0].body)[0].startswith("data:image/")

    async def test_hosts_that_are_not_named_are_refused(self, house):
        gateway, host, _ = await house(serving({"/a.png": FILE}), remote=FORWARD)
        answer = await gateway.chat(image(f"http://localhost:{URL(host.base_url).port}/a.png"))
        assert "images.remote.allow_hosts" in error_of(answer)["message"]
