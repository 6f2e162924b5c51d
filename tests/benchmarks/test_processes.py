import contextlib
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import processes
from benchmarks.processes import Child

SPIN_SECONDS = 0.2
SPIN = f"""
import os, sys, time
if sys.argv[1:] == ["fork"] and os.fork():
    pass
else:
    while time.process_time() < {SPIN_SECONDS}: pass
    print("done", flush=True)
sys.stdin.read()
"""
GROW = """
import sys
block = bytearray(64 << 20)
del block
print("done", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def python(program, *arguments):
    """A Python process that has printed its first line and waits until its input ends."""
    with subprocess.Popen(
        [sys.executable, "-c", program, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        process.stdout.readline()
        yield process
        process.stdin.close()


def is_alive(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False


def test_cpu_time_is_that_of_the_process():
    with python(SPIN) as busy:
        assert processes.cpu_ns(busy.pid) >= SPIN_SECONDS * 1e9


def test_cpu_time_of_a_child_counts_for_its_parent():
    with python(SPIN, "fork") as parent:
        assert len(processes.tree(parent.pid)) == 2
        assert processes.cpu_ns(parent.pid) >= SPIN_SECONDS * 1e9


def test_a_peak_that_has_passed_is_seen_until_it_is_reset():
    with python(GROW) as process:
        assert processes.peak_bytes(process.pid) - processes.resident_bytes(process.pid) > 50 << 20
        processes.reset_peak(process.pid)
        assert processes.peak_bytes(process.pid) - processes.resident_bytes(process.pid) < 10 << 20


def test_a_process_that_is_gone_costs_nothing():
    with python("print()") as process:
        pass
    assert processes.cpu_ns(process.pid) == 0
    assert processes.resident_bytes(process.pid) == 0


def test_a_child_has_its_core_and_the_caller_keeps_its_own():
    before = os.sched_getaffinity(0)
    core = processes.cores()[1]
    with Child(
        [sys.executable, "-c", "import os; print(os.sched_getaffinity(0))"], core, stdout=subprocess.PIPE
    ) as child:
        assert child.output(timeout_seconds=30).strip() == repr({core}).encode()
    assert os.sched_getaffinity(0) == before


def test_a_child_that_fails_says_so():
    with (
        Child([sys.executable, "-c", "raise SystemExit(3)"], processes.cores()[0], stdout=subprocess.PIPE) as child,
        pytest.raises(RuntimeError, match="ended with 3"),
    ):
        child.output(timeout_seconds=30)


def test_a_child_that_ends_is_never_ready():
    with Child([sys.executable, "-c", ""], processes.cores()[0]) as child:
        assert not child.wait_ready(processes.free_port(), "/", seconds=30)


def test_stopping_a_child_ends_what_it_started_and_what_ignores_the_polite_signal(monkeypatch):
    monkeypatch.setattr(processes, "STOP_SECONDS", 0.2)
    stubborn = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.fork()
print("done", flush=True)
time.sleep(60)
"""
    read, write = os.pipe()
    with Child([sys.executable, "-c", stubborn], processes.cores()[0], stdout=write) as child:
        os.close(write)
        with os.fdopen(read) as printed:
            printed.readline()
            printed.readline()
        members = [os.pidfd_open(member) for member in processes.tree(child.pid)]
    assert len(members) == 2
    assert all(select.select([member], [], [], 30)[0] for member in members)  # readable: it has ended


def test_a_signal_unwinds_what_was_started():
    started = []

    def start_and_be_told_to_end():
        with processes.stopping() as stack:
            sleeper = [sys.executable, "-c", "import time; time.sleep(60)"]
            started.append(stack.enter_context(Child(sleeper, processes.cores()[0])))
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(SystemExit):
        start_and_be_told_to_end()
    assert not is_alive(started[0].pid)
