"""The gateway before a real vLLM finds out by itself whether its prices are right, and says so where they are not."""

import subprocess
import sys
import time

import httpx
import pytest

from gateway.domain.calibration import PICTURES, CalibrationState
from gateway.domain.vision.registry import family_for
from gateway.pipeline.calibration import measure, new_picture
from gateway.upstream.counting import Counter, Way
from tests.support.processes import metrics, running_gateway

pytestmark = pytest.mark.real

WAIT_SECONDS = 60
ENGINE_TOKENS = "vllm:prompt_tokens_total"


@pytest.fixture(autouse=True)
def _switched_on(monkeypatch):
    monkeypatch.setenv("GATEWAY_CALIBRATION", "tokenize")


def calibrated(gateway):
    """The one model of the gateway's status, once its server was asked."""
    give_up_at = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < give_up_at:
        [model] = httpx.get(f"{gateway.url}/gateway/state").raise_for_status().json()["upstreams"][0]["models"]
        if model["calibration"] is not None and model["calibration"]["state"] != "waiting":
            return model
        time.sleep(0.2)
    raise AssertionError(f"never calibrated:\n{gateway.log.read_text()}")


def engine_tokens(server):
    return sum(value for name, value in metrics(server.url).items() if name.startswith(ENGINE_TOKENS))


@pytest.mark.parametrize("family", ["qwen3_vl", "internvl", "llava_1_5"])
def test_a_wrong_family_is_said(real_vllm, tmp_path, family, report_line):
    wrong = {"models": [{"name": real_vllm.model, "family": family}]}
    before = engine_tokens(real_vllm)
    with running_gateway(real_vllm.url, tmp_path, wrong) as gateway:
        model = calibrated(gateway)
        text = model["calibration"]["text"]
        report_line(f"calibration, {family} configured: {text}")
        assert (model["calibration"]["state"], model["family"]) == ("disagrees", family)
        assert "1080x1080: predicted" in text
        assert "the server's counts fit qwen2_vl (Qwen2-VL, QVQ), qwen2_5_vl (Qwen2.5-VL)" in text
        assert text in gateway.log.read_text().replace('\\"', '"')
    assert engine_tokens(real_vllm) == before, "/tokenize is no work for the engine"


def test_the_right_one_agrees(real_vllm, tmp_path, report_line):
    right = {"models": [{"name": real_vllm.model, "family": "qwen2_5_vl"}]}
    with running_gateway(real_vllm.url, tmp_path, right) as gateway:
        calibration = calibrated(gateway)["calibration"]
    report_line(f"calibration, qwen2_5_vl configured: {calibration['text']}")
    assert calibration["state"] == "agrees"


def test_one_whose_files_are_found_where_its_server_loads_them_agrees(real_vllm, tmp_path, report_line):
    with running_gateway(real_vllm.url, tmp_path, {}) as gateway:
        model = calibrated(gateway)
    report_line(f"calibration, nothing configured, its folder in sight: {model['calibration']['text']}")
    assert (model["family"], model["family_source"]) == ("qwen2_5_vl", "server_folder")
    assert model["calibration"]["state"] == "agrees"


def test_an_unknown_one_is_found(real_vllm, tmp_path, report_line):
    """On another machine than its server, so that the folder that it loads is not in sight."""
    config = real_vllm.folder / "config.json"
    elsewhere = config.rename(config.with_suffix(".elsewhere"))
    try:
        with running_gateway(real_vllm.url, tmp_path, {}) as gateway:
            model = calibrated(gateway)
    finally:
        elsewhere.rename(config)
    report_line(f"calibration, nothing configured: {model['calibration']['text']}")
    assert (model["family"], model["family_source"]) == ("qwen2_vl", "calibration")


def test_check_says_it_too(real_vllm, report_line):
    command = [*(sys.executable, "-m", "gateway", "check", "--upstream", real_vllm.url), "--set"]
    said = subprocess.run(
        [*command, f"models=[{{name: {real_vllm.model}, family: qwen3_vl}}]"],
        capture_output=True,
        text=True,
        check=True,
    )
    report_line(f"check: {said.stderr.strip()}")
    assert said.stderr.startswith(f"WRONG PRICES. Calibration of {real_vllm.model}: qwen3_vl DISAGREES")


@pytest.mark.parametrize("way", Way)
async def test_both_ways_count_the_same(real_vllm, way):
    counter = Counter(real_vllm.url, None)

    async def ask(asked, size):
        return await counter.count(asked, real_vllm.model, None if size is None else await new_picture(size))

    result = await measure(ask, family_for("qwen2_5_vl", None), [way])
    await counter.close()
    assert (result.state, result.way) == (CalibrationState.AGREES, way.value)
    most = len(PICTURES) if way is Way.TOKENIZE else len(PICTURES) - 1
    assert most - 2 <= len(result.compared) <= most
