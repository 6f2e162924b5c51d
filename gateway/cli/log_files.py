"""Request logs as files: from a name, from standard input, in gzip; and how far they are read."""

import gzip
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path
from typing import IO, BinaryIO

from rich.progress import Progress

from gateway.cli.options import errors

_GZIP = b"\x1f\x8b"


def progress() -> Progress:
    """On standard error, and only where that is a terminal."""
    return Progress(console=errors, transient=True)


@contextmanager
def opened(path: Path) -> Iterator[tuple[BinaryIO, IO[bytes] | BufferedIOBase]]:
    """The file as it lies there, which tells how much of it is read, and its text."""
    if str(path) == "-":
        yield sys.stdin.buffer, sys.stdin.buffer
        return
    with path.open("rb") as raw:
        is_gzip = raw.peek(2)[:2] == _GZIP
        yield raw, gzip.GzipFile(fileobj=raw) if is_gzip else raw
