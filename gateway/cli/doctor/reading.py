"""A log from a file or standard input, in pieces: logs of long-running servers have gigabytes."""

import sys
from typing import BinaryIO

from gateway.cli.options import fail
from gateway.domain.doctor.lines import LineReader
from gateway.domain.doctor.reader import Log, LogReader

_PIECE_BYTES = 1 << 16


def read_file(name: str) -> Log:
    """`-` is standard input. What cannot be opened ends the command with exit code 2."""
    if name == "-":
        return read_log(sys.stdin.buffer)
    try:
        with open(name, "rb") as file:  # noqa: PTH123  a name as it was typed
            return read_log(file)
    except OSError as error:
        fail(f"{name}: {error.strerror or error}")


def read_log(file: BinaryIO) -> Log:
    lines, reader = LineReader(), LogReader()
    while piece := file.read(_PIECE_BYTES):
        for line in lines.feed(piece):
            reader.take(line)
    for line in lines.end():
        reader.take(line)
    return reader.log
