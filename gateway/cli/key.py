"""`vlm-gateway key`: keys of clients are made, listed and revoked. Only their hashes are ever written."""

import logging
import logging.config
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from gateway.cli.options import fail, wide_console
from gateway.domain.tenancy import DEFAULT_CLASS
from gateway.keys_file import KeysFileError, digest_of, locked, new_key, read_keys, write_keys
from gateway.settings.keys import LONGEST_NAME, KeyEntry
from gateway.telemetry.logs import logging_config

logger = logging.getLogger(__name__)

key = typer.Typer(
    name="key",
    no_args_is_help=True,
    rich_markup_mode=None,
    help="""Make, list and revoke the keys of clients.

    The file that is named with --file, or by GATEWAY_KEYS__FILE, holds names and SHA-256 hashes, never a key. A gateway
    whose setting keys.file names it takes changes up within a second, or at SIGHUP. From then on requests without a key
    of it are refused with 401.

    For example:

      export GATEWAY_KEYS__FILE=/etc/vlm-gateway/keys.yaml

      vlm-gateway key create alice-laptop --tenant team-a --expires 90d

      vlm-gateway key list

      vlm-gateway key revoke alice-laptop
    """,
)

KeysPath = Annotated[
    str, typer.Option("--file", envvar="GATEWAY_KEYS__FILE", metavar="PATH", help="The keys file.", show_default=False)
]
KeyName = Annotated[str, typer.Argument(metavar="NAME", help="What the key is called in logs, e.g. alice-laptop.")]

_SPAN = re.compile(r"([1-9][0-9]{0,4})([hdw])")
_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


@key.command("create")
def create(
    name: KeyName,
    file: KeysPath,
    tenant: Annotated[
        str,
        typer.Option("--tenant", help="Whose it is: a tenant of the settings, or a name that only the file has."),
    ] = DEFAULT_CLASS,
    expires: Annotated[
        str | None,
        typer.Option("--expires", help="When it ends: 12h, 90d, 8w, or 2030-01-31T12:00:00Z. Default: never."),
    ] = None,
) -> None:
    """Make a key and print it, this once. Only its hash is kept, so a lost key cannot be found again.

    For example:

      vlm-gateway key create alice-laptop --tenant team-a --expires 90d --file keys.yaml
    """
    now = datetime.now(UTC).replace(microsecond=0)
    end = None if expires is None else _end(expires, now)
    if end is not None and end <= now:
        fail(f"--expires {expires}: that is past already")
    secret = new_key()
    if not (1 <= len(name) <= LONGEST_NAME and 1 <= len(tenant) <= LONGEST_NAME):
        fail(f"Names have 1 to {LONGEST_NAME} characters.")
    entry = KeyEntry(name=name, tenant=tenant, sha256=digest_of(secret), created=now, expires=end)
    try:
        with locked(file):
            entries = _entries_or_none(file)
            if any(each.name == name for each in entries):
                fail(f"{file}: there is a key {name!r} already. Take another name, or revoke that one first.")
            write_keys(file, [*entries, entry])
    except KeysFileError as error:
        fail(str(error))
    typer.echo(secret)
    _audit("created", name, tenant, file)


@key.command("list")
def list_keys(file: KeysPath) -> None:
    """List the keys: name, tenant, when they were made and when they end.

    For example:

      vlm-gateway key list --file keys.yaml
    """
    try:
        entries = read_keys(file)
    except KeysFileError as error:
        fail(str(error))
    now = datetime.now(UTC)
    table = Table(title=f"{len(entries)} keys in {file}")
    for column in ("name", "tenant", "created", "expires", "sha256 begins"):
        table.add_column(column, overflow="fold")
    for entry in entries:
        table.add_row(entry.name, entry.tenant, _time(entry.created), _expiry(entry, now), entry.sha256[:12])
    wide_console().print(table)


@key.command("revoke")
def revoke(name: KeyName, file: KeysPath) -> None:
    """Take a key out of the file: whoever still sends it is refused.

    For example:

      vlm-gateway key revoke alice-laptop --file keys.yaml
    """
    try:
        with locked(file):
            entries = read_keys(file)
            gone = [each for each in entries if each.name == name]
            if not gone:
                fail(f"{file}: there is no key {name!r}. `vlm-gateway key list` shows those that there are.")
            write_keys(file, [each for each in entries if each.name != name])
    except KeysFileError as error:
        fail(str(error))
    _audit("revoked", name, gone[0].tenant, file)


def _entries_or_none(file: str) -> tuple[KeyEntry, ...]:
    """Those of the file; none where there is no file yet. Raises KeysFileError."""
    return read_keys(file) if Path(file).exists() else ()


def _end(text: str, now: datetime) -> datetime:
    span = _SPAN.fullmatch(text)
    if span is not None:
        return now + int(span[1]) * _UNITS[span[2]]
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        fail(f"--expires {text}: write a span such as 12h, 90d or 8w, or a time such as 2030-01-31T12:00:00Z")
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def _time(time: datetime | None) -> str:
    return "" if time is None else time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _expiry(entry: KeyEntry, now: datetime) -> str:
    if entry.expires is None:
        return "never"
    return _time(entry.expires) + (" (expired)" if entry.expires <= now else "")


def _audit(event: str, name: str, tenant: str, file: str) -> None:
    """One line of JSON on standard error, as the gateway writes them; standard output has nothing but the key."""
    logging.config.dictConfig(logging_config("info", writes_at_once=True))
    told = {"event": f"key_{event}", "key_name": name, "tenant": tenant, "file": file}
    logger.info("key %s: %s of tenant %s", event, name, tenant, extra=told)
