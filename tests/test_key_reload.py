"""The keys file in use: what is read of it when, and what is told of it."""

import logging
import os

import pytest

from gateway.access import tenancy_of
from gateway.key_reload import KeysInUse
from gateway.keys_file import KeysFileError, digest_of, write_keys
from gateway.settings import Settings
from gateway.settings.keys import KeyEntry

NOON = 1_900_000_000.0


def entry(name, tenant="default", **fields):
    return KeyEntry(name=name, tenant=tenant, sha256=digest_of(f"sk-{name}"), **fields)


@pytest.fixture
def path(tmp_path):
    path = str(tmp_path / "keys.yaml")
    write_keys(path, [entry("a")])
    return path


class InUse:
    """Keys of a file, asked for at second 0 of a clock whose day is `NOON`."""

    def __init__(self, path, **sections):
        settings = Settings.model_validate({"keys": {"file": path}} | sections)
        self.tenancy = tenancy_of(settings)
        self.keys = KeysInUse(settings, self.tenancy, lambda: 0.0, lambda: NOON, look_seconds=0.01)

    def lets_in(self, name, now=0.0):
        return not self.tenancy.tenant_of(f"sk-{name}".encode(), now).is_refused


async def test_what_is_there_at_the_start_is_in_use(path):
    in_use = InUse(path)
    assert not in_use.lets_in("a")
    await in_use.keys.load()
    assert in_use.lets_in("a")
    assert not in_use.lets_in("b")


async def test_without_a_file_there_is_nothing_to_look_after():
    settings = Settings()
    keys = KeysInUse(settings, tenancy_of(settings), lambda: 0.0)
    await keys.load()
    await keys.start()
    keys.ask()
    await keys.close()
    assert keys.reloads == {"done": 0, "failed": 0}


async def test_times_of_day_are_kept_on_the_clock_of_the_requests(path):
    write_keys(path, [entry("a", expires="2030-03-17T17:47:40Z")])
    in_use = InUse(path)
    await in_use.keys.load()
    assert in_use.lets_in("a", 59.0)
    assert not in_use.lets_in("a", 61.0)


async def test_it_is_read_anew_only_when_it_is_another_or_when_asked(path, caplog):
    caplog.set_level(logging.INFO)
    in_use = InUse(path)
    await in_use.keys.load()
    await in_use.keys.look(path)
    assert in_use.keys.reloads["done"] == 0
    in_use.keys.ask()
    await in_use.keys.look(path)
    assert in_use.keys.reloads["done"] == 1
    assert "nothing changed" in caplog.text
    write_keys(path, [entry("a", "team"), entry("b")])
    await in_use.keys.look(path)
    assert in_use.keys.reloads["done"] == 2
    assert in_use.lets_in("b")
    assert "created b; changed a" in caplog.text


async def test_a_file_that_is_gone_or_bad_leaves_all_as_it_is_and_is_told_once(path, caplog):
    in_use = InUse(path)
    await in_use.keys.load()
    os.unlink(path)  # noqa: PTH108
    await in_use.keys.look(path)
    await in_use.keys.look(path)
    assert in_use.keys.reloads == {"done": 0, "failed": 1}
    assert in_use.keys.is_stale
    assert "No such file" in caplog.text
    assert in_use.lets_in("a")
    write_keys(path, [entry("b")])
    await in_use.keys.look(path)
    assert not in_use.keys.is_stale
    assert not in_use.lets_in("a")


async def test_a_file_that_is_being_written_anew_lets_nobody_out_and_one_that_says_so_everybody(path, caplog):
    in_use = InUse(path)
    await in_use.keys.load()
    for content, is_in in (("", True), ("keys: []", False), ("", False)):
        with open(path, "w") as file:  # noqa: PTH123, ASYNC230 - in place, as an editor or a shell may
            file.write(content)
        await in_use.keys.look(path)
        assert in_use.lets_in("a") is is_in
    assert "is empty" in caplog.text
    assert in_use.keys.reloads["failed"] == 1


async def test_a_key_that_stands_in_the_settings_too_is_a_mistake(path):
    tenants = [{"name": "gold", "key_sha256": [digest_of("sk-a")]}]
    with pytest.raises(KeysFileError, match=r"also in the settings \(tenants\[\].key_sha256\): a; keep one"):
        await InUse(path, tenants=tenants).keys.load()


async def test_a_fault_while_it_is_read_does_not_end_the_watch(path, caplog, monkeypatch):
    in_use = InUse(path)
    await in_use.keys.load()
    real, looks = in_use.keys.look, []

    async def look(path):
        looks.append(path)
        if len(looks) == 1:
            raise RuntimeError("planted")
        await real(path)
        if len(looks) == 2:
            raise StopWatchingError

    class StopWatchingError(BaseException):
        pass

    monkeypatch.setattr(in_use.keys, "look", look)
    in_use.keys.ask()
    with pytest.raises(StopWatchingError):
        await in_use.keys._watch(path)
    assert "could not be read anew" in caplog.text
    assert in_use.keys.reloads["done"] == 1


async def test_it_is_looked_after_until_it_is_closed(path):
    in_use = InUse(path)
    await in_use.keys.load()
    await in_use.keys.start()
    await in_use.keys.close()
    await in_use.keys.close()
    os.utime(path, (1, 1))
    assert in_use.keys.reloads["done"] == 0


async def test_a_file_that_may_be_read_again_is_read_though_nobody_wrote_it(path, monkeypatch):
    in_use = InUse(path)
    await in_use.keys.load()
    write_keys(path, [entry("b")])
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr("gateway.keys_file.Path.read_text", _not_allowed)
        await in_use.keys.look(path)
    assert in_use.keys.is_stale
    os.chmod(path, 0o640)  # noqa: PTH101 - as the one at fault would
    await in_use.keys.look(path)
    assert not in_use.keys.is_stale
    assert in_use.lets_in("b")


def _not_allowed(*_arguments, **_named):
    raise PermissionError(13, "Permission denied")
