"""What a server tells of images apart from the text (`--enable-prompt-tokens-details`) is held against predictions."""

import pytest

from gateway.emulator.config import EmulatorConfig
from gateway.emulator.serve import running_emulator
from tests.support.live_gateway import MODEL, image, live_gateway
from tests.support.pictures import data_url, encoded, picture

PREDICTED, REPORTED = (f'_{which}_total{{model="{MODEL}"}}' for which in ("predicted", "reported"))


@pytest.fixture(scope="module")
def telling():
    with running_emulator(EmulatorConfig.fast(model=MODEL, enable_prompt_tokens_details=True)) as server:
        yield server.base_url


def photo(width, height, seed=0):
    return image(data_url(encoded(picture(width, height, seed=seed))))


def model_of(gateway):
    [backend] = gateway.application._running.backends
    return backend.models.served(MODEL)


async def answered(gateway, *parts, **fields):
    await gateway.until_up()
    assert (await gateway.chat(*parts, **fields)).status_code == 200
    await gateway.log(1)
    return gateway.metrics("gateway_image_tokens")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_right_prediction_is_the_reported_number(telling, stream):
    async with live_gateway(telling) as gateway:
        told = await answered(gateway, "Hm?", photo(1080, 1080), photo(98, 42), stream=stream)
    assert told == {PREDICTED: 1523 + 10, REPORTED: 1523 + 10}


async def test_a_wrong_one_shows(telling):
    async with live_gateway(telling, models=[{"name": MODEL, "family": "qwen3_vl"}]) as gateway:
        told = await answered(gateway, "Hm?", photo(1080, 1080))
    assert told == {PREDICTED: 1158, REPORTED: 1523}


async def test_of_texts_and_of_servers_that_do_not_tell_there_is_nothing(telling):
    async with live_gateway(telling) as gateway:
        assert await answered(gateway, "Hm?") == {}
    with running_emulator(EmulatorConfig.fast(model=MODEL)) as silent:
        async with live_gateway(silent.base_url) as gateway:
            assert await answered(gateway, "Hm?", photo(98, 42)) == {}


async def test_a_smaller_maximum_is_learned_to_the_token():
    config = EmulatorConfig.fast(model=MODEL, enable_prompt_tokens_details=True, max_pixels=802_816)
    with running_emulator(config) as server:
        async with live_gateway(server.base_url) as gateway:
            await answered(gateway, "x " * 2000, photo(1080, 1080))
            assert model_of(gateway).image_cap.most == 1026


@pytest.mark.parametrize("tells", [True, False])
async def test_texts_beside_images_of_an_unknown_family_teach_where_the_images_are_told_apart(tells):
    with running_emulator(
        EmulatorConfig.fast(model=MODEL, root="/models/mine", enable_prompt_tokens_details=tells)
    ) as server:
        async with live_gateway(server.base_url, models=[]) as gateway:
            await answered(gateway, "word " * 2000, photo(98, 42))
            assert (model_of(gateway).ratio.bytes_per_token != 3.0) is tells
