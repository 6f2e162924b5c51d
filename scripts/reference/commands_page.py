"""docs/reference/commands.md, from the command line's own help."""

import re
from collections.abc import Iterator
from typing import Any

import typer

from gateway.cli import app
from scripts.reference.markdown import code, fenced, page, sentence, table

_INTRO = """\
`vlm-gateway COMMAND --help` says the same. Exit code 0 is success; 2 is a command line, settings or a file that cannot
be used, with every mistake named on standard error; what 1 means stands with the command.
"""


def commands_page() -> str:
    group: Any = typer.main.get_command(app)
    with group.make_context("vlm-gateway", ["serve"], resilient_parsing=True) as context:
        commands = [_command(name, each, context) for name, each in _commands(group)]
    return page("Command line", "the help of gateway/cli", _INTRO.rstrip(), *commands)


def _commands(group: Any, start: str = "") -> Iterator[tuple[str, Any]]:
    """Each with its whole name, and behind those that have commands of their own these."""
    for name, each in group.commands.items():
        yield start + name, each
        if hasattr(each, "commands"):
            yield from _commands(each, f"{start}{name} ")


def _command(name: str, command: Any, context: Any) -> str:
    pieces = [f"## {name}", *_help(command.help)]
    records = [each.get_help_record(context) for each in command.params]
    if records:
        pieces.append(table(("option", "what it does"), [(code(option), sentence(text)) for option, text in records]))
    return "\n\n".join(pieces)


def _help(text: str) -> list[str]:
    """Paragraphs; those that are command lines stand together."""
    pieces: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        words = paragraph.strip()
        is_command = words.startswith("vlm-gateway ")
        if is_command and pieces and pieces[-1].startswith("```"):
            pieces[-1] = fenced("sh", pieces[-1].removeprefix("```sh\n").removesuffix("\n```") + "\n" + words)
        else:
            pieces.append(fenced("sh", words) if is_command else "\n".join(words.splitlines()))
    return pieces
