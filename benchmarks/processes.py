"""Starting, pinning, measuring and stopping the processes of a benchmark. Linux only: it reads /proc.

A process counts with its children and their threads, because a proxy may fork workers. CPU time comes from schedstat
(nanoseconds that a thread ran), not from clock ticks, which are too coarse for a run of three seconds. What a child
that has already ended used is not seen.
"""

import contextlib
import http.client
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO, Self

STOP_SECONDS = 8.0
POLL_SECONDS = 0.1


def cores() -> tuple[int, int]:
    """The core of the proxy under test, and that of stub and load generator (the same one on a single-core machine)."""
    usable = sorted(os.sched_getaffinity(0))
    return usable[0], usable[-1]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def tree(pid: int) -> list[int]:
    """`pid` and all its descendants that live now."""
    found, todo = [], [pid]
    while todo:
        current = todo.pop()
        found.append(current)
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{current}/task").iterdir():
                todo += [int(child) for child in (thread / "children").read_text().split()]
    return found


def cpu_ns(pid: int) -> int:
    """CPU time of the tree of `pid` so far."""
    total = 0
    for member in tree(pid):
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{member}/task").iterdir():
                total += int((thread / "schedstat").read_text().split()[0])
    return total


def _status_bytes(pid: int, field: str) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024
    return 0


def resident_bytes(pid: int) -> int:
    """Resident memory of the tree now."""
    return sum(_status_bytes(member, "VmRSS") for member in tree(pid))


def peak_bytes(pid: int) -> int:
    """Sum of the peaks of the tree since `reset_peak`."""
    return sum(_status_bytes(member, "VmHWM") for member in tree(pid))


def reset_peak(pid: int) -> None:
    for member in tree(pid):
        with contextlib.suppress(OSError):
            Path(f"/proc/{member}/clear_refs").write_text("5")


@contextlib.contextmanager
def on_core(core: int) -> Iterator[None]:
    """What is started inside inherits the core; this process itself is put back."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def answers(port: int, path: str) -> bool:
    """True if a GET is answered with less than 500."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", path)
        return connection.getresponse().status < 500
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


class Child:
    """A process that was started here. Leaving the context ends it and everything in its session."""

    def __init__(
        self,
        command: Sequence[str],
        core: int,
        *,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        log: IO[bytes] | None = None,
        stdout: int | None = None,
    ) -> None:
        # Should this process be killed outright, the kernel ends the child.
        guard = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        with on_core(core):
            self._process = subprocess.Popen(
                [*guard, *command],
                env={**os.environ, **(environment or {})},
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=stdout if stdout is not None else (log or subprocess.DEVNULL),
                stderr=log or subprocess.DEVNULL,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def wait_ready(self, port: int, path: str, seconds: float) -> bool:
        """True once `path` is answered; False if the process ends or the time is over."""
        deadline = time.monotonic() + seconds
        while self.is_running and time.monotonic() < deadline:
            if answers(port, path):
                return True
            time.sleep(POLL_SECONDS)
        return False

    def output(self, timeout_seconds: float) -> bytes:
        """Wait for the end and return what was printed. Raises subprocess.TimeoutExpired, RuntimeError on failure."""
        printed, _ = self._process.communicate(timeout=timeout_seconds)
        if self._process.returncode:
            raise RuntimeError(f"{self._process.args!r} ended with {self._process.returncode}")
        return bytes(printed)

    def stop(self) -> None:
        """End the process, politely first, and then whatever it has left behind in its session."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_SECONDS)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


@contextlib.contextmanager
def stopping() -> Iterator[ExitStack]:
    """A stack for children that is unwound on every end, signals to this process included."""

    def leave(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        with ExitStack() as stack:
            yield stack
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
