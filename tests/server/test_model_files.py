"""A live gateway finds what its models cost in their own files, beside its work."""

import json
import socket

import pytest

from tests.support.hub_server import TOKEN, hub_server
from tests.support.live_gateway import CHAT, image, live_gateway, until
from tests.support.model_server import model_server
from tests.support.pictures import data_url, encoded, picture

REPOSITORY = "org/model-VL"
FILES = {
    "config.json": {"architectures": ["Qwen2_5_VLForConditionalGeneration"]},
    "preprocessor_config.json": {"patch_size": 14, "merge_size": 2, "min_pixels": 3136, "max_pixels": 401_408},
}
LARGE = image(data_url(encoded(picture(1120, 1120), "JPEG"), "image/jpeg"))


def written(folder):
    folder.mkdir(parents=True)
    for name, content in FILES.items():
        (folder / name).write_text(json.dumps(content))
    return folder


def model_of(gateway, name="vision"):
    return gateway.application._running.backends[0].models.served(name)


async def priced(gateway):
    answer = await gateway.chat(LARGE, model="vision")
    assert answer.status_code == 200
    return int(answer.headers["x-gateway-visual-tokens"]), answer.headers.get("x-gateway-visual-bounds")


async def test_the_cache_of_the_volume_that_both_share(tmp_path):
    base = tmp_path / "models--org--model-VL"
    written(base / "snapshots" / "abc")
    (base / "refs").mkdir()
    (base / "refs" / "main").write_text("abc")
    sections = {"models": [], "hub": {"cache_folder": str(tmp_path)}}
    async with (
        model_server(models=["vision"], roots={"vision": REPOSITORY}) as upstream,
        live_gateway(upstream.base_url, **sections) as gateway,
    ):
        await until(lambda: not model_of(gateway).is_assumed)
        assert model_of(gateway).family_source == "cache"
        assert await priced(gateway) == (22 * 22 + 2, None)


async def test_the_folder_that_the_server_loads_where_it_can_be_read(tmp_path):
    root = str(written(tmp_path / "own"))
    async with (
        model_server(models=["vision"], roots={"vision": root}) as upstream,
        live_gateway(upstream.base_url, models=[]) as gateway,
    ):
        await until(lambda: not model_of(gateway).is_assumed)
        assert model_of(gateway).family_source == "server_folder"
        assert await priced(gateway) == (22 * 22 + 2, None)


async def test_the_hub_if_it_may_be_asked(monkeypatch):
    with hub_server({REPOSITORY: FILES}, private=frozenset({REPOSITORY})) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        async with model_server(models=["vision"], roots={"vision": REPOSITORY}) as upstream:
            async with live_gateway(upstream.base_url, models=[]) as gateway:
                await gateway.until_up()
                await priced(gateway)
                assert hub.asked == [], "it is off by default"
            wanted = {"hub": {"download": True, "token": TOKEN}, "models": []}
            async with live_gateway(upstream.base_url, **wanted) as gateway:
                await until(lambda: not model_of(gateway).is_assumed)
                assert model_of(gateway).family_source == "hub"
                assert await priced(gateway) == (22 * 22 + 2, None)
        assert hub.files() == ["config.json", "preprocessor_config.json"]


async def test_a_hub_that_does_not_answer_delays_nothing(monkeypatch, caplog):
    """A port that takes connections and says nothing."""
    async with model_server(models=["vision"], roots={"vision": REPOSITORY}) as upstream:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
            async with live_gateway(upstream.base_url, models=[], hub={"download": True}) as gateway:
                await gateway.until_up()
                _, bounds = await priced(gateway)
                assert bounds.endswith("why=unknown_family")


async def test_the_servers_options_are_mirrored():
    models = [{"name": "vision", "family": "qwen2_5_vl", "mm_processor_kwargs": {"max_pixels": 200_704}}]
    async with model_server(models=["vision"]) as upstream, live_gateway(upstream.base_url, models=models) as gateway:
        await gateway.until_up()
        assert await priced(gateway) == (16 * 16 + 2, None)


@pytest.mark.parametrize("route", [CHAT, "/tokenize"])
async def test_a_requests_own_options_are_never_ignored(route):
    """They would change what was counted, so they are refused, with or without vLLM's --trust-request-mm-kwargs."""
    sections = {"tokens": {"answer": "estimate"}}
    async with model_server() as upstream, live_gateway(upstream.base_url, **sections) as gateway:
        await gateway.until_up()
        message = {"role": "user", "content": [LARGE]}
        body = {"model": "tiny", "messages": [message], "mm_processor_kwargs": {"max_pixels": 1}}
        refusal = await gateway.http.post(route, json=body)
        assert (refusal.status_code, refusal.json()["error"]["param"]) == (400, "mm_processor_kwargs")
