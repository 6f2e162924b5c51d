"""Worker processes: a decoder that crashes, hangs or takes too much memory ends one of them and nothing else.

On loky: its workers do not import the program's main module (a second), and a pool whose worker died is thrown away and
made anew in a fifth of a second. Pebble's does not come back when its only worker was killed, and the standard
library's cannot be ended at a deadline. One pool of one worker for each job at a time, for a death ends all jobs of its
pool.

Every decode goes through here, whatever its format. The border costs 0.7 ms of CPU for a 1 MP JPEG that takes 2 ms to
check, 3 % of a 1 MP PNG, 10 % of a 12 MP one (measured), and without it every library of every format would have to be
trusted. The file crosses as an anonymous file in memory, at half the CPU of a pipe.
"""

import contextlib
import os
import resource
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import psutil
from loky import ProcessPoolExecutor
from loky.process_executor import ShutdownExecutorError

from gateway.imaging.heap import give_back_free_memory
from gateway.wire.encoded_file import EncodedFile

T = TypeVar("T")

_SPARE_ADDRESS_BYTES = 128 << 20  # libraries that are loaded late, stacks, fragments
_ADDRESS_BYTES_PER_BYTE = 2  # of what a job was counted with: address space is not memory
_LARGE_JOB_BYTES = 32 << 20  # after it, free memory goes back to the system
_ORPHAN_LOOK_SECONDS = 1.0
_ENVIRONMENT = {"MALLOC_ARENA_MAX": "1", "VIPS_CONCURRENCY": "1"}  # one job at a time needs no more


@dataclass(frozen=True, slots=True)
class JobLimits:
    """`cpu_seconds` for one job, `wall_seconds` until it is given up for a machine that is too busy, and `jobs` after
    which a process is replaced, whatever it has leaked.
    """

    cpu_seconds: int
    wall_seconds: float
    jobs: int = 1000


class WorkerStartError(Exception):
    """No process can be started just now, or ever: the sentence says what the system says."""


class WorkerLostError(Exception):
    """The process died at the job; `is_late`: it was ended because the job took too long."""

    def __init__(self, *, is_late: bool) -> None:
        super().__init__("took too long" if is_late else "its process died")
        self.is_late = is_late


@dataclass(frozen=True, slots=True)
class ProcessStatistics:
    """Since the start: processes `started`, `died` at a job, ended as `late`, `replaced` for their age. `idle` ones
    wait now.
    """

    started: int
    died: int
    late: int
    replaced: int
    idle: int


class _Worker:
    """One process, used by one thread at a time. It starts with its first job, or when it is warmed up."""

    def __init__(self) -> None:
        self._pool = ProcessPoolExecutor(max_workers=1, initializer=_begin, initargs=(os.getpid(),), env=_ENVIRONMENT)
        self._started: Future[int] | None = None
        self.jobs = 0

    def warm_up(self) -> None:
        """Raises WorkerStartError."""
        try:
            self._started = self._pool.submit(os.getpid)
        except OSError as error:
            raise WorkerStartError(f"a process to decode images cannot be started: {error}") from error

    @property
    def is_dead(self) -> bool:
        """It died while it had nothing to do. One that is still starting is not."""
        if self._started is None or not self._started.done():
            return False
        try:
            return bool(psutil.Process(self._started.result()).status() == psutil.STATUS_ZOMBIE)
        except (psutil.NoSuchProcess, BrokenProcessPool, ShutdownExecutorError):
            return True

    def call(self, wall_seconds: float, work: Callable[..., T], *args: object) -> T:
        """Raises WorkerLostError, WorkerStartError, and what `work` raises."""
        self.jobs += 1
        try:
            if self._started is None:
                self.warm_up()
            result: T = self._pool.submit(work, *args).result(wall_seconds)
        except (BrokenProcessPool, ShutdownExecutorError) as error:
            # The system ends who has used up its time (RLIMIT_CPU); loky's sentence names the signal.
            raise WorkerLostError(is_late="SIGXCPU" in str(error)) from error
        except TimeoutError as error:
            raise WorkerLostError(is_late=True) from error
        return result

    def end(self) -> None:
        self._pool.shutdown(wait=False, kill_workers=True)


class WorkerProcesses:
    """As many processes as threads ask for one at once. Blocking: `run` belongs in a thread."""

    def __init__(self, limits: JobLimits) -> None:
        self._limits = limits
        self._idle: deque[_Worker] = deque()
        self._busy: set[_Worker] = set()
        self._lock = threading.Lock()
        self._started = self._died = self._late = self._replaced = 0
        self._is_closed = False

    def run(self, byte_count: int, work: Callable[..., T], file: EncodedFile, *args: object) -> T:
        """`work(file, *args)` in a process that may take `byte_count` bytes for it.

        Raises WorkerLostError (another process is then on its way, and the file may be why) and WorkerStartError.
        """
        worker = self._take()
        try:
            with _in_memory(file.payload) as path:
                call = (byte_count, self._limits.cpu_seconds, work, path, file.param, *args)
                result: T = worker.call(self._limits.wall_seconds, bounded, *call)
        except WorkerLostError as lost:
            self._count(lost)
            self._replace(worker)
            raise
        except BaseException:
            self._give_back(worker)
            raise
        if worker.jobs >= self._limits.jobs:
            self._replaced += 1
            self._replace(worker)
        else:
            self._give_back(worker)
        return result

    def statistics(self) -> ProcessStatistics:
        return ProcessStatistics(self._started, self._died, self._late, self._replaced, len(self._idle))

    def lost(self) -> dict[str, float]:
        """Processes that ended at a job, by cause."""
        return {"died": self._died, "late": self._late}

    def close(self) -> None:
        """Ends all of them, those at a job too."""
        with self._lock:
            self._is_closed = True
            workers = [*self._idle, *self._busy]
            self._idle.clear()
        for worker in workers:
            worker.end()

    def _take(self) -> _Worker:
        with self._lock:
            if self._is_closed:
                raise WorkerLostError(is_late=False)
            worker = self._idle_one() or self._new()
            self._busy.add(worker)
            return worker

    def _idle_one(self) -> _Worker | None:
        """One that lives."""
        while self._idle:
            worker = self._idle.pop()
            if not worker.is_dead:
                return worker
            worker.end()
        return None

    def _new(self) -> _Worker:
        self._started += 1
        return _Worker()

    def _give_back(self, worker: _Worker) -> None:
        with self._lock:
            self._busy.discard(worker)
            if not self._is_closed:
                self._idle.append(worker)
                return
        worker.end()

    def _replace(self, worker: _Worker) -> None:
        """The next job does not wait for the start of another, unless that does not succeed now."""
        worker.end()
        with self._lock:
            self._busy.discard(worker)
            if self._is_closed:
                return
            another = self._new()
        with contextlib.suppress(WorkerStartError):
            another.warm_up()
        self._give_back(another)

    def _count(self, lost: WorkerLostError) -> None:
        with self._lock:
            if lost.is_late:
                self._late += 1
            else:
                self._died += 1


@contextlib.contextmanager
def _in_memory(payload: memoryview | bytes) -> Iterator[str]:
    """The path by which another process of this user reads the bytes."""
    fd = os.memfd_create("image", os.MFD_CLOEXEC)
    try:
        left = memoryview(payload)
        while left:
            left = left[os.write(fd, left) :]
        yield f"/proc/{os.getpid()}/fd/{fd}"
    finally:
        os.close(fd)


def bounded(
    byte_count: int, cpu_seconds: int, work: Callable[..., T], path: str, param: str | None, *args: object
) -> T:
    """In the worker: `work` on the file at `path`, with so much memory and time and no more.

    Beyond its memory an allocation fails (MemoryError); beyond its time the process is ended.
    """
    payload = Path(path).read_bytes()
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (_most(_address_bytes(byte_count), hard), hard))
    _bound_time(cpu_seconds)
    try:
        return work(EncodedFile(payload, param), *args)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
        _unbind_time()
        if byte_count > _LARGE_JOB_BYTES:
            give_back_free_memory()


def _address_bytes(byte_count: int) -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    return pages * resource.getpagesize() + _ADDRESS_BYTES_PER_BYTE * byte_count + _SPARE_ADDRESS_BYTES


def _bound_time(cpu_seconds: int) -> None:
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (_most(int(time.process_time()) + 1 + cpu_seconds, hard), hard))


def _unbind_time() -> None:
    """Else what it does between two jobs would end it one day."""
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (hard, hard))


def _most(wanted: int, hard: int) -> int:
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)


def _begin(parent: int) -> None:
    """In the worker, at its start."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the gateway, which ends its workers itself
    with Path(os.devnull).open("wb") as nowhere:  # libraries write about every damaged file, as often as clients like
        os.dup2(nowhere.fileno(), sys.stderr.fileno())
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core would hold a client's picture
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    __import__("gateway.imaging.judge")


def _end_with(parent: int) -> None:
    """A gateway that was killed leaves nobody behind."""
    while os.getppid() == parent:
        time.sleep(_ORPHAN_LOOK_SECONDS)
    os._exit(0)
