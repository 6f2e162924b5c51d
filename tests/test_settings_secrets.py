"""Secrets are found wherever they stand in the settings."""

from gateway.settings import Settings
from gateway.settings.secrets import secrets_of


def test_all_of_them_and_nothing_else():
    settings = Settings.model_validate(
        {
            "upstream": {"api_key": "one"},
            "upstreams": [{"url": "http://a", "api_key": "two"}, {"url": "http://b"}],
            "models": [{"name": "m"}],
        }
    )
    assert secrets_of(settings) == {"one", "two"}
    assert secrets_of(Settings()) == frozenset()
