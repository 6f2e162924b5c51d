"""Where pictures are decoded in tests."""

import os
import signal
from pathlib import Path

from gateway.imaging.judge import judge
from gateway.imaging.processes import WorkerProcesses


class SharedProcesses(WorkerProcesses):
    """Those of one run of tests; what one gateway closes another still uses."""

    def close(self):
        pass

    def end(self):
        super().close()


class InThisProcess:
    """In the thread that asks: a test may then put its own hands on what runs there."""

    def run(self, _byte_count, work, file, *args):
        return work(file, *args)

    def lost(self):
        return {}

    def close(self):
        pass


def the_file(file, *args):
    return file.decode(), *args


def process_id(_file):
    return os.getpid()


def fail(_file):
    raise ZeroDivisionError("as planned")


def crash(_file, *_args):
    os.kill(os.getpid(), signal.SIGSEGV)


def hang(_file, *_args):
    signal.pause()


def spin(_file, *_args):
    while True:
        pass


def take_memory(_file, byte_count):
    """How much it got, in steps of a mebibyte, at most `byte_count`."""
    taken = []
    try:
        while len(taken) << 20 < byte_count:
            taken.append(bytearray(1 << 20))
    except MemoryError:
        pass
    return len(taken) << 20


def crash_once(file, info, target):
    """The first process that sees the picture dies, the second judges it. The flag is the file that the text names."""
    flag = Path(os.environ["CRASH_ONCE"])
    if not flag.exists():
        flag.touch()
        crash(file)
    return judge(file, info, target)
