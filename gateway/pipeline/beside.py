"""Work beside the event loop's own: in a thread that reads what its request holds, or several jobs at once."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

ONE_THREAD = ThreadPoolExecutor(1, thread_name_prefix="bulk")
"""For what takes long, or much memory, only with requests of very many parts: of these one at a time."""


async def in_thread(executor: Executor, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What `work` returns or raises.

    A request that is cancelled ends only after the thread: until then the thread uses the body, and whoever holds
    bytes for it must go on holding them. Work that has not begun is dropped.
    """
    job = executor.submit(work, *args, **kwargs)
    done = asyncio.wrap_future(job)
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        if not job.cancel():
            # An error that nobody takes would go to the log, as `wait` leaves it.
            await asyncio.gather(done, return_exceptions=True)
        raise


async def all_of(jobs: Sequence[Coroutine[None, None, T]]) -> list[T]:
    """All results, or the first failure; the others are cancelled then and awaited."""
    if len(jobs) == 1:
        return [await jobs[0]]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(job) for job in jobs]
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]
