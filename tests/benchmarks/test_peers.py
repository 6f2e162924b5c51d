from pathlib import Path

import pytest

from benchmarks import peers
from benchmarks.bench import _suits
from benchmarks.peers import PEERS, MissingPeerError, Setup, custom
from benchmarks.scenarios import SCENARIOS

SETUP = Setup(port=1234, upstream_port=5678, folder=Path("/nowhere"))


def test_a_custom_peer_has_its_places_filled_in():
    peer = custom("mine=./proxy --port {port} --to {upstream} --busy {refuse}")
    launch = peer.launch(SETUP)
    assert peer.name == "mine"
    assert launch.command == ["./proxy", "--port", "1234", "--to", "http://127.0.0.1:5678", "--busy", "0"]
    assert launch.environment["PORT"] == "1234"


@pytest.mark.parametrize("definition", ["command", "=command", "name="])
def test_a_custom_peer_needs_a_name_and_a_command(definition):
    with pytest.raises(ValueError, match="NAME=COMMAND"):
        custom(definition)


def test_a_peer_that_is_not_there_says_what_would_help(monkeypatch, tmp_path):
    monkeypatch.setattr(peers, "VENVS", peers.ROOT / ".cache" / "no-such-folder")
    with pytest.raises(MissingPeerError, match="--with vllm-router installs it"):
        PEERS["vllm-router"].launch(SETUP)


def test_the_gateway_is_told_by_its_own_settings(tmp_path):
    launch = PEERS["gateway"].launch(
        Setup(port=1, upstream_port=2, folder=tmp_path, is_refusing=True, body_budget_bytes=3)
    )
    assert list(launch.command[1:]) == ["serve", "--upstream", "http://127.0.0.1:2", "--port", "1"]
    assert launch.environment["GATEWAY_SERVER__SEATS"] == "0"
    assert launch.environment["GATEWAY_BUDGET__BODY_BYTES"] == "3"


def test_rows_appear_only_where_they_mean_something():
    assert _suits(PEERS["direct"], SCENARIOS["text"])
    assert not _suits(PEERS["direct"], SCENARIOS["refuse"])
    assert not _suits(PEERS["direct"], SCENARIOS["memory"])
    assert not _suits(PEERS["litellm"], SCENARIOS["refuse"])
    assert not _suits(PEERS["gateway-header"], SCENARIOS["text"])
    assert _suits(PEERS["gateway-header"], SCENARIOS["image_1mb"])
