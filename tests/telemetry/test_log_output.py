"""A log that nobody reads holds up nobody, and what it loses is told."""

import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gateway.telemetry.log_output import BackgroundHandler


class Output:
    """A stream that takes nothing until it may."""

    def __init__(self):
        self.may_write = threading.Event()
        self.is_asked = threading.Event()
        self.text = ""

    def write(self, text):
        self.is_asked.set()
        self.may_write.wait(30)
        self.text += text

    def flush(self):
        pass


def record(text, *args):
    return logging.LogRecord("gateway", logging.INFO, "", 0, text, args, None)


@pytest.fixture
def output():
    return Output()


def test_lines_come_in_order(output):
    output.may_write.set()
    handler = BackgroundHandler(output)
    for number in range(3):
        handler.emit(record("line %d", number))
    handler.close()
    assert output.text == "line 0\nline 1\nline 2\n"


def test_a_blocked_output_loses_lines_and_says_so_later(output):
    handler = BackgroundHandler(output, most_lines=2)
    handler.emit(record("taken"))
    assert output.is_asked.wait(30)
    for number in range(5):
        handler.emit(record("line %d", number))
    output.may_write.set()
    while not output.text.endswith("line 1\n"):
        pass
    handler.emit(record("later"))
    handler.close()
    lost = "3 lines of this log were lost: its output did not take them"
    assert output.text.splitlines() == ["taken", "line 0", "line 1", lost, "later"]


@pytest.mark.parametrize("most_lines", [1, 9])
def test_at_the_end_a_blocked_output_is_given_up(output, monkeypatch, most_lines):
    monkeypatch.setattr("gateway.telemetry.log_output._CLOSE_SECONDS", 0.05)
    handler = BackgroundHandler(output, most_lines=most_lines)
    handler.emit(record("taken"))
    assert output.is_asked.wait(30)
    handler.emit(record("waits"))
    handler.close()
    assert output.text == ""
    output.may_write.set()


def test_a_full_disk_and_a_line_that_cannot_be_made_hurt_nobody(capsys):
    with Path("/dev/full").open("w") as full:
        handler = BackgroundHandler(full)
        handler.emit(record("one"))
        handler.emit(record("%d", "no number"))
        handler.emit(record("two"))
        handler.close()
        assert not handler._thread.is_alive()
        # What could not be written is still in its buffer, and closing would try once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), full.fileno())
    assert "TypeError" in capsys.readouterr().err


INTERRUPTED = """
import io, logging, signal
from gateway.telemetry.log_output import BackgroundHandler
handler = BackgroundHandler(io.StringIO(), most_lines=10**9)
line = logging.LogRecord("gateway", logging.INFO, "", 0, "line", (), None)
signal.signal(signal.SIGALRM, lambda *_: handler.emit(line))
signal.setitimer(signal.ITIMER_REAL, 0.0001, 0.0001)
for _ in range(20_000):
    handler.emit(line)
signal.setitimer(signal.ITIMER_REAL, 0)
"""


def test_a_signal_may_log_while_a_line_is_being_logged():
    """As two SIGTERMs in a row do. Where that is not allowed for, it hangs for ever."""
    subprocess.run([sys.executable, "-c", INTERRUPTED], check=True, timeout=60)
