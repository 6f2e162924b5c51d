"""Options that several commands share, and how settings mistakes are told."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console

from gateway.access import contradictions_about_keys
from gateway.certificates import CertificateError
from gateway.key_reload import keys_of_file
from gateway.keys_file import KeysFileError
from gateway.models.configure import ModelSettingsError
from gateway.policies import limits_that_do_not_fit, rungs_that_do_nothing
from gateway.settings import Settings
from gateway.settings_sources import Loaded, SettingsError, load

ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="YAML file with settings; see `vlm-gateway check` for all names.")
]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="One setting, e.g. --set queue.requests=64. May be repeated."),
]

UpstreamAddresses = Annotated[
    list[str] | None,
    typer.Option(
        "--upstream", metavar="URL", help="Address of a vLLM server, e.g. http://127.0.0.1:8000. May be repeated."
    ),
]

PIPE_WIDTH = 144  # without a terminal tables would be folded into 80 columns

errors = Console(stderr=True, highlight=False, soft_wrap=True)


def wide_console() -> Console:
    """Standard output, for tables; sized for reading where it is no terminal."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)


def fail(message: str, exit_code: int = 2) -> NoReturn:
    """Say what is wrong and leave."""
    errors.print(message, markup=False)
    raise typer.Exit(exit_code)


@contextmanager
def mistakes_told() -> Iterator[None]:
    """Mistakes of the settings that only show when files are read end the command with exit code 2."""
    try:
        yield
    except ModelSettingsError as mistakes:
        fail(f"The models cannot be read:\n{mistakes}")
    except CertificateError as mistake:
        fail(f"A certificate cannot be used: {mistake}")


def upstream_flags(addresses: list[str] | None) -> dict[str, str | None]:
    """The settings that one address stands for, or several."""
    if not addresses:
        return {}
    if len(addresses) == 1:
        return {"upstream.url": addresses[0]}
    return {"upstreams": json.dumps([{"url": address} for address in addresses])}


def refuse_bad_keys(settings: Settings) -> None:
    """Mistakes of the keys file end the command with exit code 2."""
    try:
        keys_of_file(settings)
    except KeysFileError as error:
        fail(f"The keys cannot be read:\n{error}")


def read_settings(config: Path | None, assignments: list[str] | None, flags: dict[str, str | None]) -> Loaded:
    """Settings from every source; `flags` with None were not given. Mistakes end the command with exit code 2."""
    given = {name: value for name, value in flags.items() if value is not None}
    for assignment in assignments or ():
        name, equals, value = assignment.partition("=")
        if not equals:
            fail(f"--set {assignment}: write NAME=VALUE, e.g. --set queue.requests=64")
        given[name] = value
    try:
        text = config.read_text(encoding="utf-8") if config else None
    except (OSError, UnicodeDecodeError) as error:
        fail(f"--config {config}: {error}")
    try:
        loaded = load(file_text=text, file_name=str(config), environment=os.environ, flags=given)
    except SettingsError as error:
        fail(f"The settings have mistakes:\n{error}\n`vlm-gateway check` lists every setting and its default.")
    conflicts = limits_that_do_not_fit(loaded.settings) + rungs_that_do_nothing(loaded.settings)
    if conflicts := conflicts + contradictions_about_keys(loaded.settings):
        fail("The settings contradict each other:\n" + "\n".join(conflicts))
    return loaded
