"""What both benchmarks read from their command lines alike."""

import argparse
from collections.abc import Callable, Iterable


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
