"""`vlm-gateway check` asks an idle server what pictures cost, as the gateway would."""

import importlib
import json

import pytest
from typer.testing import CliRunner

from gateway.cli import app
from gateway.emulator.config import EmulatorConfig
from gateway.emulator.serve import running_emulator
from gateway.upstream.state import UpstreamModel, UpstreamState

MODEL = "mine"


@pytest.fixture(scope="module")
def upstream():
    with running_emulator(EmulatorConfig.fast(model=MODEL, root="/models/mine", family="qwen2_5_vl")) as emulator:
        yield emulator.base_url


def found(url, *options, way="tokenize"):
    flags = [word for option in options for word in ("--set", option)]
    result = CliRunner().invoke(
        app, ["check", "--upstream", url, *flags, "--json"], env={"GATEWAY_CALIBRATION": way, "COLUMNS": "300"}
    )
    [server] = json.loads(result.stdout.splitlines()[-1])["upstreams"]
    return server, result


def test_a_family_that_agrees_is_said_with_every_picture(upstream):
    server, result = found(upstream, "models=[{name: mine, family: qwen2_5_vl}]")
    calibration = server["calibration"][MODEL]
    assert (result.exit_code, calibration["state"], calibration["way"]) == (0, "agrees", "tokenize")
    assert calibration["pictures"][0] == {"size": "64x64", "predicted": [6, 6], "measured": 6}
    assert "Calibration of mine: qwen2_5_vl agrees with the server on all of 8 pictures." in result.stdout
    assert result.stderr == ""


def test_a_wrong_one_is_said_loudly_with_the_sizes(upstream):
    server, result = found(upstream, "models=[{name: mine, family: qwen3_vl}]")
    assert (result.exit_code, server["calibration"][MODEL]["state"]) == (0, "disagrees")
    assert server["calibration"][MODEL]["candidates"][:2] == ["qwen2_vl (Qwen2-VL, QVQ)", "qwen2_5_vl (Qwen2.5-VL)"]
    assert "WRONG PRICES. Calibration of mine: qwen3_vl DISAGREES with the server on 8 of 8 pictures" in result.stderr
    assert "1080x1080: predicted 1158, measured 1523" in result.stdout
    assert server["models"][0]["price"] == "bounds"
    assert "mine: its server counts its images otherwise than qwen3_vl does" in result.stdout


def test_an_unknown_one_is_found(upstream):
    server, result = found(upstream)
    [model] = server["models"]
    assert (model["family"], model["family_source"]) == ("qwen2_vl", "calibration")
    assert "Calibration of mine: its family was found by 8 pictures" in result.stdout
    assert "its family is assumed" not in result.stdout


def test_switched_off_it_asks_nothing(upstream):
    server, result = found(upstream, way="off")
    assert (server["calibration"], server["models"][0]["family_source"]) == ({}, "assumed")
    assert "Calibration of" not in result.stdout


def test_a_server_that_is_not_known_to_be_idle_is_not_asked(monkeypatch, upstream):
    async def busy(_url, **_):
        return UpstreamState(is_up=True, models=(UpstreamModel(MODEL, 4096),), trouble=None)

    monkeypatch.setattr(importlib.import_module("gateway.cli.check"), "discover", busy)
    server, _ = found(upstream)
    assert server["calibration"][MODEL]["state"] == "waiting"
    assert "do not show that it is idle" in server["calibration"][MODEL]["text"]
