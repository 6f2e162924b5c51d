"""Where ordinary log lines go: to standard error, by a thread of its own.

Whoever reads the log may stop to read. A handler that writes by itself would then hold up the event loop, and with it
every request, at the first warning that no longer fits the pipe.
"""

import logging
import queue
import sys
import threading
from typing import TextIO

_MOST_LINES = 4096
_CLOSE_SECONDS = 2.0


class BackgroundHandler(logging.Handler):
    """Lines are made where they are logged, and written elsewhere. What a blocked output cannot take is lost, beyond
    `most_lines` that wait; the next line that fits says how many. `stream` None: standard error.
    """

    def __init__(self, stream: TextIO | None = None, most_lines: int = _MOST_LINES) -> None:
        super().__init__()
        self._stream = stream or sys.stderr
        # A signal may come while a line is put here, and its handler logs too: only this kind of queue allows for that.
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._most_lines = most_lines
        self._lost = 0
        self._thread = threading.Thread(target=self._work, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        if self._lines.qsize() >= self._most_lines:
            self._lost += 1
            return
        try:
            if self._lost:
                lost, self._lost = self._lost, 0
                self._lines.put(self.format(_told(lost)))
            self._lines.put(self.format(record))
        except Exception:  # noqa: BLE001  as every handler of the standard library: a line must hurt nobody
            self.handleError(record)

    def close(self) -> None:
        """Writes what waits; a blocked output is given up after two seconds."""
        self._lines.put(None)
        super().close()
        self._thread.join(_CLOSE_SECONDS)

    def _work(self) -> None:
        while (line := self._lines.get()) is not None:
            try:
                self._stream.write(line + "\n")
                self._stream.flush()
            except (OSError, ValueError):
                continue  # a full disk may have room again; a stream that is closed has none


def _told(lost: int) -> logging.LogRecord:
    text = "%d lines of this log were lost: its output did not take them"
    return logging.LogRecord(__name__, logging.WARNING, __file__, 0, text, (lost,), None)
