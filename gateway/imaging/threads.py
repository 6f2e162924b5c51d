"""Threads for work that may be left behind: nobody waits for them, neither a shutdown nor the end of the process.

Those of `concurrent.futures` are joined when the interpreter ends, so that one long decode would hold up every restart.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from queue import SimpleQueue
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class DaemonThreads(Executor):
    """So many threads, first come, first served."""

    def __init__(self, threads: int, name: str) -> None:
        self._threads = threads
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        for number in range(threads):
            threading.Thread(target=_work, args=(self._jobs,), name=f"{name}_{number}", daemon=True).start()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        self._jobs.put(partial(_settle, future, partial(fn, *args, **kwargs)))
        return future

    def close(self) -> None:
        """Lets the threads go when they have done what they were given; never waits for that."""
        for _ in range(self._threads):
            self._jobs.put(None)


def _work(jobs: SimpleQueue[Callable[[], None] | None]) -> None:
    while job := jobs.get():
        job()
        del job  # an idle thread holds no picture


def _settle(future: Future[T], call: Callable[[], T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(call())
    except BaseException as error:  # noqa: BLE001 - whoever waits is told, whatever it is
        future.set_exception(error)
        del future  # the error knows this frame, which would keep it alive
