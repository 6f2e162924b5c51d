"""Request logs read line by line: none is kept, and what is no line of one is counted and named."""

import gzip
import zlib
from collections.abc import Sequence
from io import BufferedIOBase
from pathlib import Path
from typing import IO, BinaryIO

import msgspec
from rich.progress import Progress, TaskID

from gateway.cli.log_files import opened, progress
from gateway.cli.options import fail
from gateway.cli.usage.sums import Sums, UsageLine
from gateway.replay.lines import Unusable

# A line with the most images has 100 KB.
_LONGEST_LINE_BYTES = 1 << 20
_LINES_AT_ONCE = 2000
_NO_REQUEST = "no line of this gateway's request log"

_decoder = msgspec.json.Decoder(UsageLine)


def read_logs(paths: Sequence[Path], sums: Sums) -> dict[str, Unusable]:
    """What could not be used, by file. Ends the command with exit code 2 where one cannot be opened."""
    unusable: dict[str, Unusable] = {}
    with progress() as bar:
        for path in paths:
            note = unusable.setdefault(str(path), Unusable())
            try:
                with opened(path) as (raw, text):
                    size = None if str(path) == "-" else path.stat().st_size
                    _read(raw, text, sums, note, bar, bar.add_task(f"reading {path.name}", total=size))
            except OSError as error:
                fail(f"{path}: {error.strerror or error}")
    return {name: each for name, each in unusable.items() if each.counts}


def _read(
    raw: BinaryIO, text: IO[bytes] | BufferedIOBase, sums: Sums, note: Unusable, bar: Progress, task: TaskID
) -> None:
    number, is_inside = 0, False
    try:
        while line := text.readline(_LONGEST_LINE_BYTES):
            begins, is_inside = not is_inside, not line.endswith(b"\n")
            number += begins
            if begins:
                _take(line, number, sums, note)
            if number % _LINES_AT_ONCE == 0 and raw.seekable():
                bar.update(task, completed=raw.tell())
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        note.note(f"the rest of the file is no gzip ({error})", number + 1)


def _take(line: bytes, number: int, sums: Sums, note: Unusable) -> None:
    if len(line) == _LONGEST_LINE_BYTES and not line.endswith(b"\n"):
        note.note(f"longer than {_LONGEST_LINE_BYTES >> 20} MiB", number)
        return
    if line.isspace():
        return
    try:
        sums.take(_decoder.decode(line))
    except msgspec.ValidationError as error:
        missing = "missing required field" in str(error)
        note.note(_NO_REQUEST if missing else f"a field that is none of the request log's ({error})", number)
    except (msgspec.DecodeError, RecursionError):
        note.note("not JSON", number)
