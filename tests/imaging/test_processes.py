"""Real worker processes, with work that ends them."""

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pybase64
import pytest

from gateway.imaging.processes import JobLimits, WorkerLostError, WorkerProcesses, WorkerStartError, bounded
from gateway.wire.encoded_file import EncodedFile
from tests.support import isolation

FILE = EncodedFile(memoryview(pybase64.b64encode(b"a picture")), "param")
LIMITS = JobLimits(cpu_seconds=20, wall_seconds=30)


@pytest.fixture
def start():
    started = []

    def start(limits=LIMITS):
        started.append(WorkerProcesses(limits))
        return started[-1]

    yield start
    for processes in started:
        processes.close()


@pytest.fixture
def processes(start):
    return start()


def is_running(process_id):
    try:
        state = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


def eventually(is_so, within_seconds=10.0):
    give_up_at = time.monotonic() + within_seconds
    while not is_so():
        assert time.monotonic() < give_up_at
        time.sleep(0.01)


def test_work_is_done_elsewhere_on_the_file_as_it_is(processes):
    assert processes.run(1000, isolation.the_file, FILE, 7) == (b"a picture", 7)
    assert processes.run(1000, isolation.process_id, FILE) != os.getpid()


def test_a_large_file_crosses_whole(processes):
    content = os.urandom(9_000_000)
    file = EncodedFile(pybase64.b64encode(content))
    assert processes.run(1000, isolation.the_file, file) == (content,)


def test_one_process_serves_one_after_the_other_and_two_who_ask_at_once_have_two(processes):
    first = {processes.run(0, isolation.process_id, FILE) for _ in range(5)}
    assert len(first) == 1
    both_there = threading.Barrier(2, timeout=20)

    def ask():
        worker = processes._take()
        both_there.wait()
        processes._give_back(worker)
        return worker

    with ThreadPoolExecutor(2) as threads:
        asked = [threads.submit(ask) for _ in range(2)]
        assert len({id(each.result(20)) for each in asked}) == 2
    assert processes.statistics().idle == 2


def test_what_the_work_raises_comes_back_and_the_process_stays(processes):
    before = processes.run(0, isolation.process_id, FILE)
    with pytest.raises(ZeroDivisionError, match="as planned"):
        processes.run(0, isolation.fail, FILE)
    assert processes.run(0, isolation.process_id, FILE) == before


def test_a_crash_ends_one_process_and_the_next_is_there_at_once(processes):
    before = processes.run(0, isolation.process_id, FILE)
    with pytest.raises(WorkerLostError) as caught:
        processes.run(0, isolation.crash, FILE)
    assert not caught.value.is_late
    assert processes.run(0, isolation.process_id, FILE) != before
    assert (processes.statistics().died, processes.lost()) == (1, {"died": 1, "late": 0})


def test_a_process_that_is_killed_between_two_jobs_costs_the_next_one_nothing(processes):
    killed = processes.run(0, isolation.process_id, FILE)
    os.kill(killed, signal.SIGKILL)
    eventually(lambda: not is_running(killed))
    assert processes.run(0, isolation.the_file, FILE) == (b"a picture",)
    assert processes.lost() == {"died": 0, "late": 0}


def test_one_that_hangs_is_ended_at_its_deadline(start):
    processes = start(JobLimits(cpu_seconds=20, wall_seconds=5))
    hanging = processes.run(0, isolation.process_id, FILE)
    short = start(JobLimits(cpu_seconds=20, wall_seconds=0.5))
    with pytest.raises(WorkerLostError) as caught:
        short.run(0, isolation.hang, FILE)
    assert caught.value.is_late
    assert short.lost() == {"died": 0, "late": 1}
    assert is_running(hanging)


def test_one_that_spins_is_ended_by_the_system_when_its_time_is_used_up(start):
    processes = start(JobLimits(cpu_seconds=1, wall_seconds=60))
    with pytest.raises(WorkerLostError) as caught:
        processes.run(0, isolation.spin, FILE)
    assert caught.value.is_late
    assert processes.lost() == {"died": 0, "late": 1}


def test_time_is_for_each_job_anew(start):
    processes = start(JobLimits(cpu_seconds=1, wall_seconds=60))
    assert len({processes.run(0, isolation.process_id, FILE) for _ in range(3)}) == 1


def test_a_job_has_so_much_memory_and_the_next_has_its_own(processes):
    counted = 64 << 20
    got = processes.run(counted, isolation.take_memory, FILE, 4 << 30)
    assert counted <= got <= 6 * counted
    assert processes.run(8 * counted, isolation.take_memory, FILE, 8 * counted) == 8 * counted


def test_a_process_is_replaced_after_so_many_jobs(start):
    processes = start(JobLimits(cpu_seconds=20, wall_seconds=30, jobs=2))
    ids = [processes.run(0, isolation.process_id, FILE) for _ in range(5)]
    assert [ids.index(each) for each in ids] == [0, 0, 2, 2, 4]
    assert processes.statistics().replaced == 2
    eventually(lambda: not is_running(ids[0]))


def test_closing_ends_all_of_them_those_at_a_job_too(start):
    processes = start()
    idle = processes.run(0, isolation.process_id, FILE)
    processes.close()
    eventually(lambda: not is_running(idle))
    busy = start()
    with ThreadPoolExecutor(1) as threads:
        hanging = threads.submit(busy.run, 0, isolation.hang, FILE)
        eventually(lambda: busy.statistics().started == 1)
        busy.close()
        with pytest.raises(WorkerLostError):
            hanging.result(20)
    assert busy.statistics().idle == 0


ORPHANS = """
import os, sys, signal
from gateway.imaging.processes import JobLimits, WorkerProcesses
from tests.imaging.test_processes import FILE
from tests.support import isolation
processes = WorkerProcesses(JobLimits(20, 30))
print(processes.run(0, isolation.process_id, FILE), flush=True)
signal.pause()
"""


def test_a_gateway_that_is_killed_leaves_nobody_behind():
    with subprocess.Popen([sys.executable, "-c", ORPHANS], stdout=subprocess.PIPE, text=True) as gateway:
        assert gateway.stdout is not None
        worker = int(gateway.stdout.readline())
        assert is_running(worker)
        gateway.kill()
    eventually(lambda: not is_running(worker))


WITHOUT_TOOLS = """
import os
os.environ["PATH"] = "/nowhere"
import time
from gateway.imaging.processes import JobLimits, WorkerLostError, WorkerProcesses
from tests.imaging.test_processes import FILE, eventually, is_running
from tests.support import isolation
processes = WorkerProcesses(JobLimits(20, 0.5, jobs=2))
ids = [processes.run(0, isolation.process_id, FILE) for _ in range(3)]
try:
    processes.run(0, isolation.hang, FILE)
except WorkerLostError as lost:
    print("late" if lost.is_late else "died")
processes.close()
eventually(lambda: not any(map(is_running, ids)))
print("all gone")
"""


def test_processes_are_ended_without_any_tool_of_the_system():
    done = subprocess.run([sys.executable, "-c", WITHOUT_TOOLS], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "late\nall gone\n"
    assert done.stderr == ""


def test_where_no_process_can_be_started_that_is_said(processes, monkeypatch):
    def refuse(*_args, **_kwargs):
        raise BlockingIOError("Resource temporarily unavailable")

    monkeypatch.setattr("loky.backend.popen_loky_posix.Popen._launch", refuse)
    with pytest.raises(WorkerStartError, match="temporarily unavailable"):
        processes.run(0, isolation.process_id, FILE)
    monkeypatch.undo()
    assert processes.run(0, isolation.process_id, FILE) != os.getpid()


def test_one_that_dies_while_no_other_can_be_started_is_followed_by_one_that_can(processes, monkeypatch):
    processes.run(0, isolation.process_id, FILE)

    def refuse(*_args, **_kwargs):
        raise BlockingIOError("Resource temporarily unavailable")

    monkeypatch.setattr("loky.backend.popen_loky_posix.Popen._launch", refuse)
    with pytest.raises(WorkerLostError):
        processes.run(0, isolation.crash, FILE)
    monkeypatch.undo()
    assert processes.run(0, isolation.process_id, FILE) != os.getpid()


def test_ctrl_c_is_not_for_the_workers(processes):
    worker = processes.run(0, isolation.process_id, FILE)
    os.kill(worker, signal.SIGINT)
    assert processes.run(0, isolation.process_id, FILE) == worker


class TestInTheWorker:
    """The same code in this process, where its coverage is seen."""

    @pytest.fixture(autouse=True)
    def limits(self):
        before = resource.getrlimit(resource.RLIMIT_CPU)
        yield
        resource.setrlimit(resource.RLIMIT_CPU, before)

    @pytest.fixture
    def path(self, tmp_path):
        path = tmp_path / "file"
        path.write_bytes(bytes(FILE.payload))
        return str(path)

    @pytest.mark.parametrize("byte_count", [1000, 40 << 20])
    def test_limits_stand_while_it_works(self, path, byte_count):
        seen = {}

        def look(file, more):
            seen["memory"] = resource.getrlimit(resource.RLIMIT_AS)[0]
            seen["time"] = resource.getrlimit(resource.RLIMIT_CPU)[0]
            return file.decode(), file.param, more

        assert bounded(byte_count, 10_000, look, path, "p", 5) == (b"a picture", "p", 5)
        assert seen["memory"] > byte_count
        assert 10_000 < seen["time"] < 20_000
        for limit in (resource.RLIMIT_AS, resource.RLIMIT_CPU):
            assert resource.getrlimit(limit)[0] == resource.RLIM_INFINITY
