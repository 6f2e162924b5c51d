"""A whole gateway calibrates itself by an emulated server, whose arithmetic of images is its own."""

import pytest

from gateway.emulator.config import EmulatorConfig
from gateway.emulator.serve import running_emulator
from gateway.wire.text_sample import SAMPLE, SHORT, question
from tests.support.live_gateway import MODEL, image, live_gateway, until
from tests.support.model_server import answer_never, model_server, posts
from tests.support.pictures import data_url, encoded, picture

STATE = "/gateway/state"
QWEN3 = [{"name": MODEL, "family": "qwen3_vl"}]


@pytest.fixture(scope="module")
def emulator():
    with running_emulator(EmulatorConfig.fast(model=MODEL, root="/models/mine", family="qwen2_5_vl")) as running:
        yield running


def photo(width, height):
    return image(data_url(encoded(picture(width, height))))


def state_of(gateway):
    """What /metrics says came of it."""
    states = gateway.metrics("gateway_calibration_state")
    return [name.rpartition('state="')[2].partition('"')[0] for name in states]


async def calibrated(gateway):
    await gateway.until_up()
    await until(lambda: state_of(gateway) not in ([], ["waiting"]), lambda: str(state_of(gateway)))
    [model] = (await gateway.http.get(STATE)).json()["upstreams"][0]["models"]
    return model


async def test_a_wrong_family_is_said_in_log_metrics_and_status_and_its_prices_become_bounds(emulator, caplog):
    async with live_gateway(emulator.base_url, calibration="tokenize", models=QWEN3) as gateway:
        model = await calibrated(gateway)
        assert (model["family"], model["family_source"]) == ("qwen3_vl", "setting")
        assert model["calibration"]["state"] == "disagrees"
        assert "qwen3_vl DISAGREES with the server on 8 of 8 pictures" in model["calibration"]["text"]
        assert gateway.metrics("gateway_calibration_disagreeing") == {f'_pictures{{model="{MODEL}"}}': 8}
        answer = await gateway.chat("Hm?", photo(64, 64))
        assert answer.headers["x-gateway-visual-tokens"] == "66"
        assert answer.headers["x-gateway-visual-bounds"] == "lower=6; upper=66; why=doubted_family"
        assert answer.json()["usage"]["prompt_tokens"] < 66
    assert "64x64: predicted 66, measured 6" in caplog.text
    assert "the server's counts fit qwen2_vl (Qwen2-VL, QVQ), qwen2_5_vl (Qwen2.5-VL)" in caplog.text


async def test_a_wrong_family_refuses_nothing_that_the_right_one_takes():
    """By Qwen3-VL a tiny picture costs 66 tokens, by the server's own family 6: 65 for all are enough."""
    config = EmulatorConfig.fast(model=MODEL, root="/models/mine", family="qwen2_5_vl", max_model_len=65)
    with running_emulator(config) as server:
        async with live_gateway(server.base_url, calibration="off", models=QWEN3) as gateway:
            await gateway.until_up()
            assert (await gateway.chat("Hm?", photo(64, 64), max_tokens=1)).status_code == 400
        async with live_gateway(server.base_url, calibration="tokenize", models=QWEN3) as gateway:
            await calibrated(gateway)
            assert (await gateway.chat("Hm?", photo(64, 64), max_tokens=1)).status_code == 200


async def test_answers_that_cost_less_than_such_bounds_are_no_sign_of_a_smaller_maximum(emulator):
    models = [{"name": MODEL, "family": "glm4v"}]
    async with live_gateway(emulator.base_url, calibration="tokenize", models=models) as gateway:
        await calibrated(gateway)
        answer = await gateway.chat("Hm?", photo(98, 42))
        await gateway.log(1)
        [backend] = gateway.application._running.backends
        assert answer.headers["x-gateway-visual-tokens"] == "1602"
        assert backend.models.served(MODEL).image_cap.most is None


async def test_the_right_family_is_said_to_agree(emulator):
    async with live_gateway(emulator.base_url, calibration="tokenize") as gateway:
        model = await calibrated(gateway)
    assert model["calibration"] == {
        "state": "agrees",
        "text": "qwen2_5_vl agrees with the server on all of 8 pictures",
    }


async def test_an_unknown_family_is_found_and_priced_exactly(emulator):
    async with live_gateway(emulator.base_url, calibration="tokenize", models=[]) as gateway:
        model = await calibrated(gateway)
        assert (model["family"], model["family_source"]) == ("qwen2_vl", "calibration")
        answer = await gateway.chat("Hm?", photo(1920, 1080))
        assert answer.headers["x-gateway-visual-tokens"] == "2693"


async def test_a_limit_of_pixels_that_the_gateway_was_not_told_of_is_said():
    config = EmulatorConfig.fast(model=MODEL, root="/models/mine", family="qwen2_5_vl", max_pixels=802_816)
    with running_emulator(config) as server:
        async with live_gateway(server.base_url, calibration="tokenize") as gateway:
            model = await calibrated(gateway)
            answer = await gateway.chat("Hm?", photo(1920, 1080))
    assert "on 1 of 8 pictures (1080x1080: predicted 1523, measured 1026)" in model["calibration"]["text"]
    assert answer.headers["x-gateway-visual-bounds"] == "lower=363; upper=1091; why=doubted_family"


def asked(upstream):
    """All but the texts by which the length of tokens is told (text_sample.py)."""
    texts = [question(MODEL, text) for text in (SHORT, SAMPLE)]
    return [visit for visit in posts(upstream) if visit.body not in texts]


async def test_a_server_without_tokenize_is_asked_for_answers_of_one_token_where_that_is_allowed():
    async def only_chats(visit):
        if visit.path == "/tokenize":
            await visit.answer("404 Not Found", b'{"detail":"Not Found"}')
        else:
            usage = b'{"usage":{"prompt_tokens":%d,"completion_tokens":1}}' % (20 + 576 * (b"image_url" in visit.body))
            await visit.answer("200 OK", usage, "content-type: application/json")

    models = [{"name": MODEL, "family": "llava_1_5"}]
    async with model_server(only_chats, is_idle=True) as upstream:
        async with live_gateway(upstream.base_url, calibration="completions", models=models) as gateway:
            assert (await calibrated(gateway))["calibration"]["state"] == "agrees"
            assert [visit.path for visit in asked(upstream)] == ["/tokenize", *["/v1/chat/completions"] * 2]
            await gateway.until_released()
        async with live_gateway(upstream.base_url, calibration="tokenize", models=models) as gateway:
            model = await calibrated(gateway)
            assert model["calibration"]["text"].startswith("not calibrated: /tokenize answered 404")


async def test_a_silent_tokenize_delays_neither_readiness_nor_requests_nor_the_end():
    async def silent(visit):
        if visit.path == "/tokenize":
            await answer_never(visit)
        else:
            await visit.answer("200 OK", b'{"usage":{"prompt_tokens":9,"completion_tokens":1}}')

    async with (
        model_server(silent, is_idle=True) as upstream,
        live_gateway(upstream.base_url, calibration="tokenize") as gateway,
    ):
        await gateway.until_up()
        await until(lambda: len(asked(upstream)) == 1)
        assert (await gateway.http.get("/readyz")).status_code == 200
        assert (await gateway.chat("Hm?")).status_code == 200
        gateway.application.drain()
        await until(lambda: not gateway.held())
        gateway.application.call_off_drain()
        assert not gateway.application.is_drained()


@pytest.mark.parametrize("sections", [{"calibration": "off"}, {"calibration": False}])
async def test_switched_off_nothing_is_asked_and_nothing_is_told(sections):
    async with model_server(is_idle=True) as upstream, live_gateway(upstream.base_url, **sections) as gateway:
        await gateway.until_up()
        await gateway.chat("Hm?")
        assert len(posts(upstream)) == 1
        assert state_of(gateway) == []
