"""The keys file: written whole and for its owner alone, read with all its mistakes at once and no value of it told."""

import stat
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gateway.keys_file import KeysFileError, digest_of, locked, new_key, read_keys, write_keys
from gateway.settings.keys import KeyEntry

ONE = KeyEntry(
    name="one",
    tenant="team-a",
    sha256=digest_of("sk-one"),
    created=datetime(2026, 12, 1, 12, tzinfo=UTC),
    expires=datetime(2027, 12, 1, 12, tzinfo=UTC),
)
TWO = KeyEntry(name="two", sha256=digest_of("sk-two"))


def test_what_is_written_is_read_again(tmp_path):
    path = str(tmp_path / "keys.yaml")
    write_keys(path, [ONE, TWO])
    assert read_keys(path) == (ONE, TWO)


def test_only_its_owner_may_read_it_and_nothing_else_is_left(tmp_path):
    path = tmp_path / "keys.yaml"
    path.write_text("keys: []")
    path.chmod(0o644)
    write_keys(str(path), [ONE])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["keys.yaml"]


def test_its_owner_stays_where_root_changes_it(tmp_path, monkeypatch):
    path, given = tmp_path / "keys.yaml", []
    monkeypatch.setattr("gateway.keys_file.os.fchown", lambda _, *owner: given.append(owner))
    write_keys(str(path), [ONE])
    assert given == []
    write_keys(str(path), [TWO])
    assert given == [(path.stat().st_uid, path.stat().st_gid)]


def test_who_may_not_give_files_away_owns_it(tmp_path, monkeypatch):
    def only_root(*_):
        raise PermissionError

    path = tmp_path / "keys.yaml"
    path.write_text("keys: []")
    monkeypatch.setattr("gateway.keys_file.os.fchown", only_root)
    write_keys(str(path), [ONE])
    assert read_keys(str(path)) == (ONE,)


def test_a_link_stays_one(tmp_path):
    real, link = tmp_path / "real.yaml", tmp_path / "keys.yaml"
    real.write_text("keys: []")
    link.symlink_to(real)
    write_keys(str(link), [ONE])
    assert link.is_symlink()
    assert read_keys(str(real)) == (ONE,)


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "keys.yaml"
    path.write_text("keys: []")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(KeysFileError, match="No space left on device"):
        write_keys(str(path), [ONE])
    assert path.read_text() == "keys: []"
    assert [each.name for each in tmp_path.iterdir()] == ["keys.yaml"]


def test_all_mistakes_are_told_at_once_and_no_value(tmp_path):
    path = tmp_path / "keys.yaml"
    path.write_text(
        "keys:\n"
        "- {name: a, sha256: secret}\n"
        f"- {{name: a, sha256: {digest_of('k')}, expires: 2030-01-01T00:00:00}}\n"
        f"- {{name: b, sha256: {digest_of('k').upper()}, key: secret}}\n"
        "- 5\n"
    )
    with pytest.raises(KeysFileError) as error:
        read_keys(str(path))
    told = str(error.value)
    for mistake in (
        "keys.1.name: is there twice",
        "keys.2.sha256: is there twice",
        "keys.0.sha256: must be 64 hex digits",
        "keys.1.expires: must be a time with its zone, such as 2030-01-31T12:00:00Z",
        "keys.2.key: there is no such setting",
        "keys.3: must hold names and values",
    ):
        assert f"{path}: {mistake}" in told
    assert "secret" not in told


@pytest.mark.parametrize(
    ("content", "mistake"),
    [
        (b"\xff", "is not UTF-8"),
        (b"a: [", "not YAML"),
        (b"- a", "must hold sections"),
        (None, "No such file"),
        (b"keys: 5", "must be a list"),
    ],
)
def test_what_is_no_keys_file_is_said_to_be_none(tmp_path, content, mistake):
    path = tmp_path / "keys.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(KeysFileError, match=mistake):
        read_keys(str(path))


def test_an_empty_file_has_no_keys(tmp_path):
    path = tmp_path / "keys.yaml"
    path.touch()
    assert read_keys(str(path)) == ()


def test_where_there_is_no_folder_nothing_is_locked(tmp_path):
    with pytest.raises(KeysFileError, match="No such file"), locked(str(tmp_path / "none" / "keys.yaml")):
        pass


def test_keys_are_long_and_no_two_are_alike():
    keys = {new_key() for _ in range(100)}
    assert len(keys) == 100
    assert all(key.startswith("vlm-") and len(key) == 47 for key in keys)


def test_those_who_write_at_the_same_time_lose_nothing(tmp_path):
    path = str(tmp_path / "keys.yaml")
    write_keys(path, [])

    def add(number):
        with locked(path):
            write_keys(path, [*read_keys(path), KeyEntry(name=str(number), sha256=digest_of(str(number)))])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(24)))
    assert {entry.name for entry in read_keys(path)} == {str(number) for number in range(24)}
