"""`vlm-gateway check`, what can hardly be meant: each sentence with what brings it about, and silence without that."""

import json
import os
from datetime import UTC, datetime, timedelta

import pytest
import trustme
from typer.testing import CliRunner

from gateway.cli import app
from gateway.cli.check.doubts import doubts_about_names, doubts_of
from gateway.cli.check.surroundings import Surroundings, look_around
from gateway.emulator.config import EmulatorConfig
from gateway.emulator.serve import running_emulator
from gateway.keys_file import KeyEntry, digest_of, write_keys
from gateway.settings import Settings
from tests.support.authorities import HOST, expired, pair
from tests.support.live_gateway import settings_of

NOW = datetime(2026, 12, 1, tzinfo=UTC)
HERE = Surroundings(NOW)
MODEL = {"name": "m", "family": "qwen2_5_vl", "aliases": ["gpt-4o"]}
TENANT = {"name": "a", "key_sha256": ["1" * 64]}
UPSTREAM = "http://127.0.0.1:8000"


def told(around=HERE, **settings):
    return doubts_of(settings_of(UPSTREAM, **settings), around)


def key(name="bob", tenant="default", expires=None):
    return KeyEntry(name=name, tenant=tenant, sha256=digest_of(name), expires=expires)


def only(sentences, *words):
    (sentence,) = sentences
    assert all(word in sentence for word in words), sentence


class TestTheDoor:
    def test_a_plain_start_has_nothing_doubtful(self):
        assert told(server={"host": None}) == []

    def test_loopback_in_a_container_is_the_container_alone(self):
        around = HERE._replace(is_container=True)
        only(told(around, server={"host": None}), "127.0.0.1", "keys.file", "server.host: 0.0.0.0")
        only(told(around, server={"host": "localhost"}), "localhost", "container")

    def test_open_to_all_without_keys(self):
        only(told(server={"host": "0.0.0.0"}), "without keys", "vlm-gateway key create")
        proxied = {"header": "x-tenant", "networks": ["10.0.0.0/8"]}
        assert told(server={"host": "0.0.0.0"}, tenants_from=proxied) == []

    def test_everyone_may_name_tenants(self):
        only(told(tenants_from={"header": "x-tenant", "networks": ["::/0"]}), "::/0", "Name the proxies")


class TestKeys:
    def test_a_file_without_a_good_key_lets_nobody_in(self):
        only(told(keys={"file": "k"}), "nobody gets in")
        assert told(keys={"file": "k", "unknown": "default"}) == []

    def test_keys_that_end_soon_are_named(self):
        near, far = NOW + timedelta(days=13), NOW + timedelta(days=15)
        around = HERE._replace(keys=[key("near", expires=near), key("far", expires=far), key("gone", expires=NOW)])
        soon, past = told(around, keys={"file": "k"})
        only([soon], "'near' expires on 2026-12-14")
        only([past], "'gone' has expired")

    def test_a_tenant_that_only_the_file_names_is_like_default(self):
        around = HERE._replace(keys=[key("a", "typo"), key("b", "typo"), key("c", "gold")])
        only(told(around, keys={"file": "k"}, tenants=[{"name": "gold"}]), "'typo'", "`default`")

    def test_a_rule_for_strangers_where_all_are_strangers(self):
        only(told(keys={"unknown": "default"}), "no keys are configured")


class TestFiles:
    @pytest.mark.parametrize(
        ("mode", "words"), [(0o600, None), (0o640, None), (0o644, "read by everyone"), (0o620, "written by others")]
    )
    def test_who_else_may_read_or_write(self, mode, words):
        sentences = told(HERE._replace(modes={"keys.yaml": mode}))
        only(sentences, words, "chmod 600") if words else None
        assert bool(sentences) is (words is not None)

    def test_a_certificate_that_ends_soon(self):
        ends = {"a.pem": NOW + timedelta(days=13), "b.pem": NOW + timedelta(days=15), "c.pem": NOW}
        soon, past = told(HERE._replace(ends=ends))
        only([soon], "a.pem expires on 2026-12-14", "Renew it")
        only([past], "c.pem has expired")

    def test_tls_towards_servers_that_have_none(self):
        only(told(upstream={"tls": {"ca_file": "ca.pem"}}), "nothing is encrypted")


class TestModelsAndRoutes:
    def test_an_alias_opens_no_model_to_a_tenant(self):
        allowed = [TENANT | {"models": ["gpt-4o"]}]
        only(told(models=[MODEL], tenants=allowed), "'gpt-4o', which is an alias", "Name its model, 'm'")

    def test_names_are_held_against_what_servers_list(self):
        settings = settings_of(UPSTREAM, models=[MODEL], tenants=[TENANT | {"models": ["m", "n"]}])
        only(doubts_about_names(settings, {"m"}), "'n', which no server lists")
        hidden, missing = doubts_about_names(settings, {"m", "gpt-4o"})
        only([hidden], "'gpt-4o' is listed by a server too", "'m'")
        only([missing], "'n'")

    def test_open_routes_are_said_again(self):
        assert told(routes={"open": ["/invocations"]}) == []
        only(told(routes={"open": ["/sleep"]}), "/sleep", "unread")
        several = {"a": "http://a:1", "b": "http://b:1"}
        _, first = doubts_of(settings_of(several, routes={"open": ["/sleep"]}), HERE)
        only([first], "first of the upstreams")


class TestLookingAround:
    @pytest.mark.parametrize("side", ["server", "upstream"])
    def test_certificates_and_modes(self, side, tmp_path):
        authority, end = trustme.CA(), datetime(2099, 1, 2, tzinfo=UTC)
        own = pair(tmp_path, authority.issue_cert(HOST, not_after=end.replace(tzinfo=None)))
        os.chmod(own.key, 0o640)  # noqa: PTH101
        around = look_around(settings_of(UPSTREAM, **{side: {"tls": own.as_settings()}}), {})
        assert (around.ends, around.modes) == ({str(own.certificate): end}, {str(own.key): 0o640})

    def test_an_expired_certificate_has_ended(self, tmp_path):
        own = pair(tmp_path, expired(trustme.CA()))
        (end,) = look_around(settings_of(UPSTREAM, server={"tls": own.as_settings()}), {}).ends.values()
        assert end < NOW

    @pytest.mark.parametrize("text", ["no certificate", ""])
    def test_what_is_no_certificate_is_for_others_to_complain_about(self, tmp_path, text):
        own = pair(tmp_path, trustme.CA().issue_cert(HOST))
        own.certificate.write_text(text)
        assert look_around(settings_of(UPSTREAM, server={"tls": own.as_settings()}), {}).ends == {}

    def test_a_handshake_without_an_end_is_given_up(self, tmp_path, monkeypatch):
        monkeypatch.setitem(look_around.__globals__, "_MOST_ROUNDS", 1)
        own = pair(tmp_path, trustme.CA().issue_cert(HOST))
        assert look_around(settings_of(UPSTREAM, server={"tls": own.as_settings()}), {}).ends == {}

    def test_those_of_several_servers(self, tmp_path):
        own = pair(tmp_path, trustme.CA().issue_cert(HOST))
        upstreams = [{"name": "a", "url": "https://a:1", "tls": own.as_settings()}, {"name": "b", "url": "https://b:1"}]
        assert list(look_around(Settings.model_validate({"upstreams": upstreams}), {}).ends) == [str(own.certificate)]

    def test_a_pod_is_a_container(self):
        assert look_around(settings_of(UPSTREAM), {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}).is_container


def test_check_tells_them_beside_where_it_listens(tmp_path):
    keys = str(tmp_path / "keys.yaml")
    write_keys(keys, [key()])
    os.chmod(keys, 0o644)  # noqa: PTH101
    tenants = "[{name: gold, models: [elsewhere]}]"
    with running_emulator(EmulatorConfig.fast(model="m")) as emulator:
        flags = ("--upstream", emulator.base_url, "--set", f"keys.file={keys}", "--set", f"tenants={tenants}")
        result = CliRunner().invoke(app, ["check", *flags, "--json"])
    said = json.loads(result.stdout.splitlines()[-1])
    readable, unlisted = said["doubts"]
    only([readable], keys, "read by everyone")
    only([unlisted], "'gold' may use 'elsewhere'")
    assert said["listening"]["host"] == "0.0.0.0"
    assert "Listens on 0.0.0.0: keys are configured" in result.stdout
    assert f"Hardly meant:\n- {readable}" in result.stdout
