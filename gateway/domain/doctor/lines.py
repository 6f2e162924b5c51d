"""From the bytes of a log to the messages in it. Bytes come in pieces, cut anywhere; nothing here knows what a message
means.

A log has been through many hands before it is read: terminals colour it, `docker compose` and Kubernetes write before
each line or wrap it in JSON, Ray and the executor name their processes, PowerShell stores it as UTF-16. What cannot be
decoded is replaced, what is longer than any line of vLLM's is cut, so memory is bounded whatever comes.
"""

import codecs
import json
import re
from collections.abc import Iterator
from typing import NamedTuple

LONGEST_LINE = 1 << 16
"""In characters. vLLM's longest, its whole configuration, has some 8,000."""

_DEEPEST_WRAPPING = 4
_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_JSON_MESSAGES = ("message", "msg", "log", "event")
_JSON_LEVELS = ("levelname", "level", "severity")

_ENDS = re.compile(r"(\r\n|\r|\n)")
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-_]")
_VLLM = re.compile(
    r"\b(DEBUG|INFO|WARNING|ERROR|CRITICAL) +\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)? +"
    r"\[?[\w./-]{1,200}\.py:\d+\](?:\([^()\s]{0,200}\)\]?)? ?"
)
"""`INFO 12-13 19:54:18 worker.py:243] ` until 0.7, `INFO 04-24 16:32:59 [loader.py:458] ` since."""
_PROCESS = re.compile(r"\(([A-Za-z]\w{0,40})(?: rank=(\d+))? pid=\d+[^()]{0,60}\) ?")
_WRAPPERS = re.compile(
    r"^(?:"
    r"[\w.-]{1,80} +\| "  # docker compose
    r"|\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S{0,16}\]? (?:\| |(?:stdout|stderr) [FP] )?"  # time stamps, Kubernetes
    r"|\[rank\d+\]:? ?|\(([A-Za-z]\w{0,40})(?: rank=(\d+))? pid=\d+[^()]{0,60}\) ?"
    r")"
)


class Line(NamedTuple):
    """One message. `level` and `process` ("Worker_TP1") where the line names them. `number` counts as editors do:
    what progress bars write over one another, with a carriage return between, is one line.
    """

    number: int
    level: str | None
    process: str | None
    message: str


class LineReader:
    """Takes a log in pieces of any size and gives its messages."""

    def __init__(self) -> None:
        self._first = b""
        self._decoder: codecs.IncrementalDecoder | None = None
        self._rest = ""
        self._number = 1

    def feed(self, piece: bytes) -> Iterator[Line]:
        """The messages that end in this piece."""
        yield from self._take(self._decode(piece, is_last=False))

    def end(self) -> Iterator[Line]:
        """What stands behind the last end of a line."""
        yield from self._take(self._decode(b"", is_last=True))
        rest, self._rest = self._rest, ""
        if rest:
            yield from self._lines(rest)

    def _decode(self, piece: bytes, *, is_last: bool) -> str:
        if self._decoder is None:
            self._first += piece
            if len(self._first) < len(codecs.BOM_UTF16_LE) and not is_last:
                return ""
            encoding = "utf-16" if self._first.startswith(_UTF16_MARKS) else "utf-8-sig"
            self._decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
            piece = self._first
        return self._decoder.decode(piece, is_last)

    def _take(self, text: str) -> Iterator[Line]:
        *whole, last = _ENDS.split(text)
        for each, end in zip(whole[::2], whole[1::2], strict=True):
            yield from self._lines(self._rest + each[:LONGEST_LINE])
            self._rest = ""
            self._number += "\n" in end
        self._rest = (self._rest + last[:LONGEST_LINE])[:LONGEST_LINE]

    def _lines(self, text: str) -> Iterator[Line]:
        # The part of a UTF-16 file that was copied without its mark: every other character is none.
        yield from read_line(self._number, text[:LONGEST_LINE].replace("\0", ""))


def read_line(number: int, text: str, *, level: str | None = None, depth: int = 0) -> Iterator[Line]:
    """The messages of one line: none if it is blank, several if it is JSON whose message has several lines."""
    text = _COLOURS.sub("", text)
    prefix = _VLLM.search(text)
    may_be_json = prefix is None or text.startswith("{")
    if may_be_json and depth < _DEEPEST_WRAPPING and (inner := _unwrapped(text)) is not None:
        level_inside, message = inner
        for each in message.splitlines():
            yield from read_line(number, each, level=level_inside or level, depth=depth + 1)
        return
    process = None
    if prefix is not None:
        before, text, level = text[: prefix.start()], text[prefix.end() :], prefix[1]
        for found in _PROCESS.finditer(before):
            process = _process_name(found)
    else:
        while (wrapper := _WRAPPERS.match(text)) is not None:
            process = _process_name(wrapper) or process
            text = text[wrapper.end() :]
    if text.strip():
        yield Line(number, level, process, text.rstrip())


def _process_name(found: re.Match[str]) -> str | None:
    return found[1] if found[2] is None else f"{found[1]}_rank{found[2]}"


def _unwrapped(text: str) -> tuple[str | None, str] | None:
    """Level and message of a line of JSON."""
    start = text.find("{")
    if start < 0 or not text.rstrip().endswith("}") or '"' not in text[start : start + 3]:
        return None
    try:
        record = json.loads(text[start:])
    except (ValueError, RecursionError):
        return None
    messages = [record[key] for key in _JSON_MESSAGES if isinstance(record.get(key), str)]
    levels = [record[key] for key in _JSON_LEVELS if isinstance(record.get(key), str)]
    return (levels[0].upper() if levels else None, messages[0]) if messages else None
