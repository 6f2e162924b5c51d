"""Through every door the same happens to a picture: it is found, made smaller, counted as the server counts it."""

import base64
from contextlib import asynccontextmanager

import pytest
from PIL import Image
from yarl import URL

from gateway.emulator.config import EmulatorConfig
from gateway.emulator.serve import running_emulator
from tests.conformance import byte_model
from tests.conformance.doors import DOORS, MODEL, Fate, Picture
from tests.support.live_gateway import live_gateway
from tests.support.pictures import encoded
from tests.support.raw_http import raw_http_server

FILE = encoded(Image.new("RGB", (1600, 1200), (200, 30, 40)))
# The thumbnail preset makes 588 x 420 of it: 21 x 15 units of 28 pixels, and two markers.
SEEN_TOKENS = 21 * 15 + 2


@pytest.fixture(scope="module")
def emulators():
    """By what they do with a prompt."""
    with (
        running_emulator(EmulatorConfig.fast(model=MODEL, image_limit=4)) as generating,
        running_emulator(EmulatorConfig.fast(model=MODEL, image_limit=4, runner="pooling")) as pooling,
    ):
        yield {"generate": generating, "pooling": pooling}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("byte-model")
    byte_model.write(path)
    return path


@asynccontextmanager
async def house(emulator, folder, **sections):
    """A gateway that makes pictures small, and a host of one picture that it may ask."""

    async def serve(visit):
        await visit.answer("200 OK", FILE, "content-type: image/png")

    async with raw_http_server(serve) as host:
        remote = {"allow_networks": ["127.0.0.0/8"], "allow_ports": [URL(host.base_url).port]}
        model = {"name": MODEL, "family": "qwen2_5_vl", "folder": str(folder)}
        images, resize = {"remote": remote}, {"preset": "thumbnail"}
        async with live_gateway(emulator.base_url, models=[model], images=images, resize=resize, **sections) as gateway:
            await gateway.until_up()
            yield gateway, Picture(base64.b64encode(FILE).decode(), f"{host.base_url}/a.png")


async def fate_of(gateway, door, body):
    """What became of the one image in the body, and whether its cost was told right."""
    answer = await gateway.http.post(door.path, json=body)
    if answer.status_code == 400:
        return Fate.REFUSED
    assert answer.status_code == 200, answer.text
    if door.counted is not None:
        assert int(answer.headers["x-gateway-prompt-tokens"]) == door.counted(answer.json())
    if answer.headers["x-gateway-visual-tokens"] == "0":
        assert "x-gateway-images" not in answer.headers
        return Fate.NOT_SEEN
    assert answer.headers["x-gateway-visual-tokens"] == str(SEEN_TOKENS)
    assert answer.headers["x-gateway-images"].startswith("0;resized;1600x1200;588x420;")
    return Fate.SERVED


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.path)
async def test_what_becomes_of_an_image_is_what_the_matrix_says(emulators, folder, door):
    async with house(emulators[door.runner], folder) as (gateway, picture):
        found = {
            cell: await fate_of(gateway, door, door.roles[cell[1]]([door.text("a"), door.sources[cell[0]](picture)]))
            for cell in door.cells()
        }
        assert found == {cell: door.fate(*cell) for cell in door.cells()}
        await gateway.until_released()
        assert set(gateway.ended()) <= {"finished", "refused"}


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.path)
async def test_text_alone_goes_on_as_it_came(emulators, folder, door):
    async with house(emulators[door.runner], folder) as (gateway, _):
        for make in door.roles.values():
            answer = await gateway.http.post(door.path, json=make([door.text("Hello, wörld.")]))
            assert answer.status_code == 200, answer.text
            if door.counted is not None:
                assert int(answer.headers["x-gateway-prompt-tokens"]) == door.counted(answer.json())
