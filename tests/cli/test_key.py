"""`vlm-gateway key`: made, listed, revoked; the key is printed once and only its hash is kept."""

import json
import re
import stat
from datetime import UTC, datetime

import pytest
from typer.testing import CliRunner

from gateway.cli import app
from gateway.keys_file import digest_of, read_keys


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("GATEWAY_KEYS__FILE", str(tmp_path / "keys.yaml"))
    return lambda *words: CliRunner().invoke(app, ["key", *words])


@pytest.fixture
def path(tmp_path):
    return tmp_path / "keys.yaml"


def test_a_key_is_printed_once_and_only_its_hash_is_kept(run, path):
    result = run("create", "alice", "--tenant", "team-a", "--expires", "90d")
    assert result.exit_code == 0, result.output
    secret = result.stdout.strip()
    assert re.fullmatch(r"vlm-[\w-]{43}", secret)
    (entry,) = read_keys(str(path))
    assert (entry.name, entry.tenant, entry.sha256) == ("alice", "team-a", digest_of(secret))
    assert (entry.expires - entry.created).days == 90
    assert secret not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    audit = json.loads(result.stderr)
    assert (audit["event"], audit["key_name"], audit["tenant"]) == ("key_created", "alice", "team-a")
    assert secret not in result.stderr


def test_the_list_tells_names_times_and_what_has_expired(run, path):
    run("create", "alice", "--tenant", "team-a", "--expires", "2999-01-31T12:00:00+01:00")
    run("create", "bob")
    path.write_text(path.read_text().replace("2999-01-31", "2001-01-31"))
    listed = run("list")
    assert listed.exit_code == 0
    assert "2 keys" in listed.stdout
    alice, bob = (next(line for line in listed.stdout.splitlines() if name in line) for name in ("alice", "bob"))
    assert "team-a" in alice
    assert "2001-01-31 11:00:00Z (expired)" in alice
    assert "default" in bob
    assert "never" in bob


def test_a_revoked_key_is_gone_and_the_others_stay(run, path):
    run("create", "alice")
    run("create", "bob")
    result = run("revoke", "alice")
    assert result.exit_code == 0
    assert [entry.name for entry in read_keys(str(path))] == ["bob"]
    assert json.loads(result.stderr)["event"] == "key_revoked"


@pytest.mark.parametrize("span", ["12h", "3w", "2999-01-31T12:00:00"])
def test_an_end_is_a_span_or_a_time(run, path, span):
    assert run("create", "alice", "--expires", span).exit_code == 0
    (entry,) = read_keys(str(path))
    assert entry.expires > datetime.now(UTC)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["create", "alice", "--expires", "soon"], "write a span such as 12h, 90d or 8w"),
        (["create", "alice", "--expires", "2001-01-31T12:00:00Z"], "past already"),
        (["create", "a" * 65], "Names have 1 to 64 characters"),
        (["create", "there"], "there is a key 'there' already"),
        (["revoke", "nobody"], "there is no key 'nobody'"),
        (["create", "x", "--file", "/nowhere/keys.yaml"], "No such file"),
        (["list", "--file", "/nowhere/keys.yaml"], "No such file"),
        (["revoke", "x", "--file", "/nowhere/keys.yaml"], "No such file"),
    ],
)
def test_mistakes_are_told_and_change_nothing(run, path, words, told):
    run("create", "there")
    before = path.read_text()
    result = run(*words)
    assert result.exit_code == 2
    assert told in result.output
    assert path.read_text() == before


@pytest.mark.parametrize("command", ["create", "list", "revoke"])
def test_each_command_teaches_itself(run, command):
    for words in ([], [command]):
        text = run(*words, "--help").output
        assert "For example:" in text
        assert f"vlm-gateway key {command}" in text
