"""Where models' files are looked for, as the settings say it."""

import pytest

from gateway.model_files import places_of
from gateway.settings.hub import HubSettings
from gateway.settings_sources import SettingsError, load


def test_by_default_the_hub_is_not_asked(tmp_path):
    settings = load().settings
    with places_of(settings, {"HF_HUB_CACHE": str(tmp_path)}) as places:
        assert (places.cache_folder, places.download) == (tmp_path, None)


def test_the_settings_go_before_the_librarys_own_environment(tmp_path):
    settings = load(flags={"hub.cache_folder": str(tmp_path), "hub.download": "true", "hub.token": "hf_mine"}).settings
    with places_of(settings, {"HF_HUB_CACHE": "/nowhere", "HF_ENDPOINT": "http://mirror"}) as places:
        assert places.cache_folder == tmp_path
        hub = places.download.__self__
        assert (hub._token, hub._endpoint) == ("hf_mine", "http://mirror")
    with places_of(load(flags={"hub.download": "true"}).settings, {"HF_ENDPOINT": ""}) as places:
        assert (places.download.__self__._token, places.download.__self__._endpoint) == (None, None)


def test_a_token_may_lie_in_a_secret_file():
    loaded = load(
        file_text="hub: {token: weak, token_file: /run/secrets/hf}", file_name="g.yaml", read_secret=lambda _: "hf_s"
    )
    assert loaded.settings.hub.token.get_secret_value() == "hf_s"
    assert loaded.origins["hub.token"] == "secret file /run/secrets/hf"
    assert "hf_s" not in repr(loaded.settings)
    strong = load(environment={"GATEWAY_HUB__TOKEN": "hf_e", "GATEWAY_HUB__TOKEN_FILE": "/run/secrets/hf"})
    assert strong.settings.hub.token.get_secret_value() == "hf_e"


def test_asking_the_hub_needs_the_extra(monkeypatch):
    monkeypatch.setattr("gateway.settings.hub.is_installed", lambda _name: False)
    assert HubSettings().download is False
    with pytest.raises(SettingsError, match=r"hub \(flag\): `download` needs the extra `hub`: pip install"):
        load(flags={"hub.download": "true"})
