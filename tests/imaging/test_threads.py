"""Work in threads that may be left behind."""

import subprocess
import sys
import threading

import pytest

from gateway.imaging.threads import DaemonThreads

LEFT_BEHIND = """
import asyncio, threading
from gateway.imaging.workers import ImageWorkers
from gateway.imaging import workers
from tests.support.isolation import InThisProcess
from tests.imaging.test_workers import PLAIN, SMALL, Budget, prepare

entered = threading.Event()

def endless(*_):
    entered.set()
    threading.Event().wait()

async def main():
    workers.judge = endless
    images = ImageWorkers(threads=1, isolation=InThisProcess(), decode_budget=Budget(), cache_bytes=0)
    requests = [asyncio.create_task(prepare(images, PLAIN, target)) for target in (SMALL, None)]
    await asyncio.to_thread(entered.wait)
    await images.close()
    print([type(end).__name__ for end in await asyncio.gather(*requests, return_exceptions=True)])

asyncio.run(main())
"""


@pytest.fixture
def threads():
    pool = DaemonThreads(2, "some")
    yield pool
    pool.close()


def test_results_and_errors_come_back(threads):
    assert threads.submit(divmod, 7, 2).result(10) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        threads.submit(divmod, 7, 0).result(10)
    assert threads.submit(lambda: threading.current_thread().name).result(10).startswith("some_")


def test_what_was_cancelled_while_it_waited_is_not_done():
    pool, opened = DaemonThreads(1, "one"), threading.Event()
    first = pool.submit(opened.wait, 10)
    second, third = pool.submit(pytest.fail), pool.submit(int, "3")
    assert second.cancel()
    opened.set()

    assert (first.result(10), third.result(10)) == (True, 3)
    pool.close()


def test_threads_go_after_closing_when_all_is_done():
    pool = DaemonThreads(1, "leaving")
    last = pool.submit(threading.current_thread)
    pool.close()
    last.result(10).join(10)

    assert not last.result().is_alive()


def test_neither_close_nor_the_process_waits_for_a_decode_that_runs():
    out = subprocess.run([sys.executable, "-c", LEFT_BEHIND], check=False, capture_output=True, text=True, timeout=30)

    assert (out.returncode, out.stderr) == (0, "")
    assert out.stdout == "['CancelledError', 'CancelledError']\n"
