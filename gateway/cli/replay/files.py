"""The log as a file: read as it streams by, written as it is made."""

import gzip
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedIOBase
from itertools import islice
from pathlib import Path
from typing import IO, BinaryIO

import msgspec
from rich.progress import Progress

from gateway.cli.options import errors, fail
from gateway.replay.lines import Line, LineReader, Unusable
from gateway.replay.synthetic import START, Traffic, generate

_LINES_AT_ONCE = 2000
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Log:
    """Usable lines in the order in which the requests asked for their places, and what could not be used."""

    name: str
    lines: list[Line]
    unusable: Unusable


def progress() -> Progress:
    """On standard error, and only where that is a terminal."""
    return Progress(console=errors, transient=True)


def read_log(path: Path) -> Log:
    """Ends the command with exit code 2 where there is no such file or nothing in it can be used."""
    reader = LineReader()
    try:
        with _opened(path) as (raw, texts), progress() as bar:
            task = bar.add_task("reading", total=None if str(path) == "-" else path.stat().st_size)
            for texts_at_once in iter(lambda: list(islice(texts, _LINES_AT_ONCE)), []):
                reader.feed(texts_at_once)
                bar.update(task, completed=raw.tell() if raw.seekable() else None)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        reader.unusable.note(f"the rest of the file is no gzip ({error})", reader.line_count)
    except OSError as error:
        fail(f"{path}: {error.strerror or error}")
    if not reader.lines:
        fail(f"{path}: {reader.line_count} lines, and none of them is of a request log that replay can read.")
    return Log(path.name, reader.in_order(), reader.unusable)


@contextmanager
def _opened(path: Path) -> Iterator[tuple[BinaryIO, IO[bytes] | BufferedIOBase]]:
    """The file as it lies there, which tells how much of it is read, and its text."""
    if str(path) == "-":
        yield sys.stdin.buffer, sys.stdin.buffer
        return
    with path.open("rb") as raw:
        is_gzip = raw.peek(2)[:2] == _GZIP
        yield raw, gzip.GzipFile(fileobj=raw) if is_gzip else raw


def write_log(path: Path, traffic: Traffic) -> None:
    """Synthetic traffic, in gzip where the name ends so."""
    encoder = msgspec.json.Encoder()
    opened = gzip.open if path.suffix == ".gz" else open
    requests = 0
    try:
        with opened(path, "wb") as out, progress() as bar:
            task = bar.add_task("making traffic", total=traffic.seconds)
            for record in generate(traffic):
                out.write(encoder.encode(record) + b"\n")
                requests += 1
                if requests % _LINES_AT_ONCE == 0:
                    bar.update(task, completed=(record.arrived or START) - START)
    except OSError as error:
        fail(f"--generate {path}: {error.strerror or error}")
    errors.print(f"{path}: {requests:,} requests of {traffic.seconds / 3600:g} h, seed {traffic.seed}", markup=False)
