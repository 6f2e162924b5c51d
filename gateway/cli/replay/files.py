"""The log as a file: read as it streams by, written as it is made."""

import gzip
import zlib
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import msgspec

from gateway.cli.log_files import opened, progress
from gateway.cli.options import errors, fail
from gateway.replay.lines import Line, LineReader, Unusable
from gateway.replay.synthetic import START, Traffic, generate

_LINES_AT_ONCE = 2000


@dataclass(frozen=True, slots=True)
class Log:
    """Usable lines in the order in which the requests asked for their places, and what could not be used."""

    name: str
    lines: list[Line]
    unusable: Unusable


def read_log(path: Path) -> Log:
    """Ends the command with exit code 2 where there is no such file or nothing in it can be used."""
    reader = LineReader()
    try:
        with opened(path) as (raw, texts), progress() as bar:
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


def write_log(path: Path, traffic: Traffic) -> None:
    """Synthetic traffic, in gzip where the name ends so."""
    encoder = msgspec.json.Encoder()
    open_file = gzip.open if path.suffix == ".gz" else open
    requests = 0
    try:
        with open_file(path, "wb") as out, progress() as bar:
            task = bar.add_task("making traffic", total=traffic.seconds)
            for record in generate(traffic):
                out.write(encoder.encode(record) + b"\n")
                requests += 1
                if requests % _LINES_AT_ONCE == 0:
                    bar.update(task, completed=(record.arrived or START) - START)
    except OSError as error:
        fail(f"--generate {path}: {error.strerror or error}")
    errors.print(f"{path}: {requests:,} requests of {traffic.seconds / 3600:g} h, seed {traffic.seed}", markup=False)
