"""`POST /gateway/try`: what a picture would cost, and what the gateway would make of it."""

import asyncio
import base64
import gzip
import io
import json
import pathlib
import re
import threading

import pytest
from PIL import Image

from gateway.domain.errors import Code, GatewayError
from gateway.domain.vision.registry import FAMILIES
from gateway.pipeline import try_picture
from tests.support.live_gateway import MODEL, live_gateway, until
from tests.support.model_server import Patient, error_of, model_server, posts
from tests.support.pictures import data_url, encoded, picture
from tests.support.raw_client import raw_client

TRY = "/gateway/try"
FILE = {"content-type": "application/octet-stream"}
DATA = pathlib.Path(__file__).parents[1] / "data" / "hard_inputs"
CASES = json.loads((DATA / "cases.json").read_text())
EMPTY = "empty_file.png"
FILES = sorted({each["file"] for each in CASES if re.fullmatch("[a-z0-9_]+\\.[a-z]+", each["file"])} - {EMPTY})


async def tried(gateway, file, headers=None, query=""):
    answer = await gateway.http.post(f"{TRY}{query}", content=file, headers=FILE | (headers or {}))
    assert answer.status_code == 200, answer.text
    return answer.json()


def by_family(said):
    return {each["family"]: each for each in said["families"]}


async def test_families_are_priced_beside_the_loop(monkeypatch):
    """There are more than fifty of them, some of which try many sizes."""
    threads = set()
    priced = try_picture._priced

    def noted(*known):
        threads.add(threading.current_thread().name.partition("_")[0])
        return priced(*known)

    monkeypatch.setattr(try_picture, "_priced", noted)
    async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
        await gateway.until_up()
        assert len((await tried(gateway, encoded(picture(56, 56))))["families"]) == len(FAMILIES)
    assert threads == {"bulk"}


class TestWhatItSays:
    async def test_a_picture_that_goes_on_as_it_is(self):
        file = encoded(picture(560, 420))
        async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
            await gateway.until_up()
            said = await tried(gateway, file)
            assert said["found"] == {
                "format": "png",
                "size": "560x420",
                "stored_size": "560x420",
                "file_bytes": len(file),
                "frames": 1,
                "why": [],
            }
            assert said["verdict"]["verdict"] == "admitted"
            assert said["estimate"]["model"]["name"] == MODEL
            assert said["estimate"]["tokens"]["visual"] == 302
            assert said["sent"] == {
                "media_type": "image/png",
                "size": "560x420",
                "file_bytes": len(file),
                "why": [],
                "data": None,
            }
            assert by_family(said).keys() == FAMILIES.keys()
            assert by_family(said)["qwen2_5_vl"] == {
                "family": "qwen2_5_vl",
                "prompt_tokens": 302,
                "model_size": "560x420",
                "sent_tokens": 302,
                "sent_size": "560x420",
                "trouble": None,
            }
            assert not posts(upstream)
            await gateway.until_released()
            assert gateway.metrics("gateway_images_total") == {}
            line = await gateway.assert_ended("finished", status=200)
            assert (line["endpoint"], "upstream_status" in line) == (TRY, False)

    async def test_what_is_made_of_it_is_what_a_model_would_get(self):
        file = encoded(picture(1600, 1200), "JPEG", orientation=6)
        async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
            await gateway.until_up()
            said = await tried(gateway, file, {"x-gateway-resize": "thumbnail"})
            body = {
                "model": MODEL,
                "messages": [
                    {
                        "role": "user",
                        "content": [{"type": "image_url", "image_url": {"url": data_url(file, "image/jpeg")}}],
                    }
                ],
            }
            sent = await gateway.http.post("/v1/chat/completions", json=body, headers={"x-gateway-resize": "thumbnail"})
            assert sent.is_success
            [visit] = posts(upstream)
        url = json.loads(visit.body)["messages"][0]["content"][0]["image_url"]["url"]
        assert url == f"data:{said['sent']['media_type']};base64,{said['sent']['data']}"
        assert (said["found"]["size"], said["found"]["stored_size"]) == ("1200x1600", "1600x1200")
        made = Image.open(io.BytesIO(base64.b64decode(said["sent"]["data"])))
        assert f"{made.width}x{made.height}" == said["sent"]["size"] == by_family(said)["qwen2_5_vl"]["sent_size"]
        assert said["sent"]["why"] == ["preset", "orientation"]
        assert by_family(said)["qwen2_5_vl"]["sent_tokens"] < by_family(said)["qwen2_5_vl"]["prompt_tokens"] / 5

    async def test_a_model_of_several_by_its_name(self):
        models = [{"name": MODEL, "family": "qwen2_5_vl"}, {"name": "a & b", "family": "qwen3_vl"}]
        async with (
            model_server(models=[MODEL, "a & b"]) as upstream,
            live_gateway(upstream.base_url, models=models) as gateway,
        ):
            await gateway.until_up()
            said = await tried(gateway, encoded(picture(320, 320)), query="?model=a%20%26%20b")
            assert (said["estimate"]["model"]["name"], said["estimate"]["model"]["family"]) == ("a & b", "qwen3_vl")
            said = await tried(gateway, encoded(picture(320, 320)), query="?model=%ff%22&model=tiny")
            assert said["estimate"]["model"]["family_source"] == "assumed"

    async def test_one_that_has_to_wait_and_that_never_fits(self):
        patient = Patient()
        async with (
            model_server(patient) as upstream,
            live_gateway(upstream.base_url, budget={"kv_blocks": 70}) as gateway,
        ):
            await gateway.until_up()
            running = asyncio.create_task(gateway.chat("x", max_tokens=800))
            await until(lambda: gateway.metrics("gateway_held").get('{resource="sequences"}') == 1)
            said = await tried(gateway, encoded(picture(560, 420)))
            assert said["verdict"]["verdict"] == "waiting"
            patient.may_answer.set()
            await running
            said = await tried(gateway, encoded(picture(1400, 1400)), {"x-gateway-resize": "off"})
            assert (said["verdict"]["verdict"], said["verdict"]["error"]["code"]) == (
                "refused",
                "request_exceeds_budget",
            )
            assert said["verdict"]["fits_with"]["resize"]
            assert said["sent"]["data"] is None
            await gateway.until_released()

    async def test_one_that_some_families_do_not_take(self):
        sections = {"resize": {"max_tokens_per_image": 3}}
        async with model_server() as upstream, live_gateway(upstream.base_url, **sections) as gateway:
            await gateway.until_up()
            said = await tried(gateway, encoded(picture(320, 320)))
        assert said["verdict"]["error"]["code"] == "image_too_large"
        assert (said["sent"], said["estimate"], said["trouble"]) == (None, None, None)
        one = by_family(said)["qwen3_vl"]
        assert (one["prompt_tokens"], one["sent_tokens"]) == (102, None)
        assert "max_tokens_per_image allows 3" in one["trouble"]

    async def test_one_that_no_family_takes(self):
        sections = {"images": {"max_aspect_ratio": 500}}
        async with model_server() as upstream, live_gateway(upstream.base_url, **sections) as gateway:
            await gateway.until_up()
            said = await tried(gateway, encoded(picture(9000, 30)))
        assert said["verdict"]["error"]["code"] == "invalid_image_dimensions"
        refusing = {each["family"]: each["trouble"] for each in said["families"] if each["trouble"]}
        assert {"qwen2_vl", "qwen2_5_vl", "qwen3_vl"} <= set(refusing)
        assert "aspect ratio" in refusing["qwen2_5_vl"]
        for each in said["families"]:
            assert (each["prompt_tokens"] is None) == (each["family"] in refusing)

    async def test_while_no_model_server_is_there(self):
        async with live_gateway("http://127.0.0.1:9") as gateway:
            said = await tried(gateway, encoded(picture(60, 60)))
        assert said["verdict"]["error"]["reason"] == "upstream_loading"
        assert said["sent"]["file_bytes"] == said["found"]["file_bytes"]

    async def test_in_shadow_mode(self):
        sections = {"mode": "shadow", "images": {"max_bytes": 5000}}
        async with model_server() as upstream, live_gateway(upstream.base_url, **sections) as gateway:
            await gateway.until_up()
            file = encoded(picture(60, 60))
            assert (await tried(gateway, gzip.compress(file), {"content-encoding": "gzip"}))["sent"]
            answer = await gateway.http.post(TRY, content=bytes(5001), headers=FILE)
            assert answer.status_code == 413
            assert (await gateway.http.put(TRY)).status_code == 405

    async def test_no_preview_where_nothing_can_be_decoded_now(self, monkeypatch):
        busy = GatewayError(Code.SERVER_IS_OVERLOADED, "All are busy.")

        async def refuse(*_):
            raise busy

        async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
            await gateway.until_up()
            monkeypatch.setattr(gateway.application._running.proxy._parts.images, "prepare", refuse)
            said = await tried(gateway, encoded(picture(60, 60)))
        assert (said["sent"], said["trouble"], said["verdict"]["verdict"]) == (None, "All are busy.", "admitted")

    async def test_a_large_file_is_not_encoded_in_the_event_loop(self):
        file = encoded(picture(300, 300), "BMP")
        async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
            await gateway.until_up()
            said = await tried(gateway, file)
            assert said["found"]["file_bytes"] == len(file) > 200_000
            await gateway.until_released()


class TestWhatIsRefused:
    @pytest.mark.parametrize("name", FILES)
    async def test_hostile_files_are_told_from_sound_ones_as_in_a_request(self, name):
        file = (DATA / name).read_bytes()
        async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
            await gateway.until_up()
            answer = await gateway.http.post(TRY, content=file, headers=FILE)
            url = data_url(file, "image/png")
            asked = await gateway.chat({"type": "image_url", "image_url": {"url": url}})
            await gateway.until_released()
        assert answer.status_code == asked.status_code
        if answer.status_code != 200:
            wanted, found = error_of(asked), error_of(answer)
            assert (found["code"], found["message"], found["param"]) == (wanted["code"], wanted["message"], "body")

    async def test_a_damaged_one_holds_nothing_and_is_counted(self):
        async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
            await gateway.until_up()
            answer = await gateway.http.post(TRY, content=(DATA / "jpeg_trunc_half.jpg").read_bytes(), headers=FILE)
            assert (answer.status_code, error_of(answer)["code"]) == (400, "image_parse_error")
            assert answer.headers["x-should-retry"] == "false"
            line = await gateway.assert_ended("refused", status=400, reason="bad_image")
            assert line["endpoint"] == TRY

    @pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
    async def test_what_forms_of_other_sites_can_send(self, kind):
        async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
            answer = await gateway.http.post(TRY, content=encoded(picture(9, 9)), headers={"content-type": kind})
            assert (answer.status_code, error_of(answer)["param"]) == (400, "content-type")

    @pytest.mark.parametrize("kind", ["image/png", "IMAGE/JPEG; q=1", "application/octet-stream"])
    async def test_the_bytes_decide_what_it_is(self, kind):
        async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
            await gateway.until_up()
            said = await tried(gateway, encoded(picture(60, 60)), {"content-type": kind})
            assert said["found"]["format"] == "png"

    async def test_a_word_that_is_no_preset(self):
        async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
            headers = FILE | {"x-gateway-resize": "huge"}
            answer = await gateway.http.post(TRY, content=encoded(picture(60, 60)), headers=headers)
            assert (answer.status_code, error_of(answer)["param"]) == (400, "x-gateway-resize")

    async def test_more_than_an_image_may_have(self):
        async with model_server() as upstream, live_gateway(upstream.base_url, images={"max_bytes": 5000}) as gateway:
            answer = await gateway.http.post(TRY, content=bytes(5001), headers=FILE)
            assert (answer.status_code, error_of(answer)["code"]) == (413, "request_too_large")
            answer = await gateway.http.post(TRY, content=b"", headers=FILE)
            assert (answer.status_code, error_of(answer)["code"]) == (400, "empty_image_file")
            async with raw_client(gateway.host, gateway.port) as client:
                lines = ["POST /gateway/try HTTP/1.1", "host: localhost", "content-type: image/png"]
                client.send("\r\n".join([*lines, "transfer-encoding: chunked", "", ""]).encode())
                client.send(b"1389\r\n" + bytes(5001) + b"\r\n0\r\n\r\n")
                assert (await client.answer())[0] == 413
            await gateway.until_released()

    async def test_who_comes_while_the_gateway_leaves_or_is_full(self):
        async with (
            model_server() as upstream,
            live_gateway(upstream.base_url, server={"seats": 0, "drain_grace_seconds": 0}) as gateway,
        ):
            assert (await gateway.http.post(TRY, content=b"x", headers=FILE)).status_code == 429
            gateway.application.drain()
            assert (await gateway.http.post(TRY, content=b"x", headers=FILE)).headers["x-gateway-reason"] == "draining"

    async def test_one_who_leaves_meanwhile_leaves_nothing_behind(self, monkeypatch):
        never, began = asyncio.Event(), asyncio.Event()

        async def wait(*_):
            began.set()
            await never.wait()

        async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
            await gateway.until_up()
            monkeypatch.setattr(gateway.application._running.proxy._parts.images, "prepare", wait)
            file = encoded(picture(60, 60))
            async with raw_client(gateway.host, gateway.port) as client:
                lines = [
                    f"POST {TRY} HTTP/1.1",
                    "host: localhost",
                    *(f"{name}: {value}" for name, value in FILE.items()),
                ]
                client.send("\r\n".join([*lines, f"content-length: {len(file)}", "", ""]).encode() + file)
                await began.wait()
                # Its bytes, and those of the request that it stands for.
                assert gateway.metrics("gateway_held")['{resource="body_bytes"}'] > len(file) * 7 / 3
            await gateway.assert_ended("client_left", status=499)
