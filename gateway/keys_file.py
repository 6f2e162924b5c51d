"""The keys file: read whole, written whole, never with a key in it, only hashes.

keys:
- name: alice-laptop
  tenant: team-a
  sha256: 2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b
  created: 2026-12-01T12:00:00+00:00
  expires: 2027-12-01T12:00:00+00:00
"""

import fcntl
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from tempfile import NamedTemporaryFile

import yaml
from pydantic import ValidationError

from gateway.settings.keys import KeyEntry, KeysFile
from gateway.settings_sources import WORDS, SettingsError, read_yaml

_KEY_BYTES = 32
_PREFIX = "vlm-"  # so that scanners for lost secrets can know one
_MODE = 0o600


class KeysFileError(Exception):
    """The file cannot be used; the text names it and lists every mistake, a line each."""


def new_key() -> str:
    """256 random bits, as text that needs no quoting anywhere."""
    return _PREFIX + secrets.token_urlsafe(_KEY_BYTES)


def digest_of(key: str) -> str:
    return sha256(key.encode()).hexdigest()


def read_keys(path: str) -> tuple[KeyEntry, ...]:
    """Raises KeysFileError, which repeats no value of the file."""
    try:
        tree = read_yaml(Path(path).read_text(encoding="utf-8"), path)
        return KeysFile.model_validate(tree).keys
    except OSError as error:
        raise KeysFileError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise KeysFileError(f"{path}: is not UTF-8") from None
    except SettingsError as error:
        raise KeysFileError(str(error)) from None
    except ValidationError as error:
        mistakes = [(".".join(map(str, each["loc"])), each["type"], each["msg"]) for each in error.errors()]
        lines = [f"{path}: {place}: {WORDS.get(kind, text)}" for place, kind, text in mistakes]
        raise KeysFileError("\n".join(lines).replace("Value error, ", "")) from None


def write_keys(path: str, entries: Sequence[KeyEntry]) -> None:
    """In place of the file that is there, at once and for its owner alone, who stays the same. Raises KeysFileError."""
    text = yaml.safe_dump({"keys": [_plain(entry) for entry in entries]}, sort_keys=False)
    try:
        _replace(Path(path), text)
    except OSError as error:
        raise KeysFileError(f"{path}: {error.strerror}") from None


@contextmanager
def locked(path: str) -> Iterator[None]:
    """Nobody else changes the file meanwhile. Raises KeysFileError."""
    try:
        folder = os.open(Path(path).parent, os.O_RDONLY)
    except OSError as error:
        raise KeysFileError(f"{Path(path).parent}: {error.strerror}") from None
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _replace(path: Path, text: str) -> None:
    target = path.resolve()
    with NamedTemporaryFile("w", encoding="utf-8", dir=target.parent, prefix=f".{target.name}.", delete=False) as file:
        try:
            os.fchmod(file.fileno(), _MODE)
            _give_to_the_owner_of(target, file.fileno())
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
            Path(file.name).replace(target)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise


def _give_to_the_owner_of(target: Path, descriptor: int) -> None:
    """Or root, who changes the file, would take it from the gateway's own user."""
    with suppress(FileNotFoundError, PermissionError):  # only root gives files away
        before = target.stat()
        os.fchown(descriptor, before.st_uid, before.st_gid)


def _plain(entry: KeyEntry) -> dict[str, str]:
    return {name: str(value) for name, value in entry.model_dump(mode="json", exclude_none=True).items()}
