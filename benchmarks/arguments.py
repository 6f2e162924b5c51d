"""What both benchmarks read from their command lines alike."""

import argparse
from collections.abc import Callable, Iterable

from benchmarks.peers import REQUIREMENTS, MissingPeerError, custom, install


def names_of(known: Iterable[str]) -> Callable[[str], list[str]]:
    """A parser of comma lists of `known` names."""
    allowed = set(known)

    def names(text: str) -> list[str]:
        given = [name for name in text.split(",") if name]
        unknown = [name for name in given if name not in allowed]
        if unknown:
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; known: {', '.join(sorted(allowed))}")
        return given

    return names


def add_peers(parser: argparse.ArgumentParser, target_help: str) -> None:
    """`--with` and `--target-cmd`: peers that have to be installed, and any other."""
    installable = "comma list of peers to install under .cache/bench/: " + ", ".join(REQUIREMENTS)
    parser.add_argument("--with", dest="install", type=names_of(REQUIREMENTS), default=[], help=installable)
    parser.add_argument(
        "--target-cmd", action="append", type=custom, default=[], metavar="NAME=COMMAND", help=target_help
    )


def install_peers(names: Iterable[str], say: Callable[[str], None]) -> None:
    """Those that can be."""
    for name in names:
        try:
            install(name)
        except MissingPeerError as error:
            say(f"skipped {name}: {error}")
