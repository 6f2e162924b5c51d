"""A thread that reads a request's body, and a request that leaves meanwhile."""

import asyncio
import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from gateway.pipeline.beside import in_thread


@pytest.fixture
def executor():
    with ThreadPoolExecutor(1) as executor:
        yield executor


async def test_results_and_errors(executor):
    assert await in_thread(executor, pow, 2, 3) == 8
    with pytest.raises(ZeroDivisionError):
        await in_thread(executor, divmod, 1, 0)


async def test_whoever_leaves_ends_after_the_thread_and_what_waits_is_dropped(executor):
    begun, may_end, ran = threading.Event(), threading.Event(), []

    def work(name):
        begun.set()
        may_end.wait(10)
        ran.append(name)

    first, second = (asyncio.create_task(in_thread(executor, work, name)) for name in ("first", "second"))
    await asyncio.to_thread(begun.wait, 10)
    first.cancel()
    second.cancel()
    done, _ = await asyncio.wait([second], timeout=10)
    assert done == {second}
    assert not first.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await first
    executor.shutdown()
    assert ran == ["first"]


async def test_an_error_that_comes_after_the_request_has_left_is_no_line_in_the_log(executor, caplog):
    begun, may_end = threading.Event(), threading.Event()

    def work():
        begun.set()
        may_end.wait(10)
        raise ValueError("not JSON")

    request = asyncio.create_task(in_thread(executor, work))
    await asyncio.to_thread(begun.wait, 10)
    request.cancel()
    await asyncio.sleep(0)
    may_end.set()
    await asyncio.wait([request])
    assert request.cancelled()
    executor.shutdown()
    del request
    gc.collect()
    assert not caplog.records
