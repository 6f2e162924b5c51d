"""Freed memory goes back to the operating system, in a process of its own."""

import subprocess
import sys

import pytest

from gateway.imaging import heap

FREED = """
import re
from pathlib import Path
from gateway.imaging.heap import give_back_free_memory

def resident():
    return int(re.search(r"RssAnon:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) << 10

blocks = [b"x" * size for size in range(100_000, 101_000)]
last = b"x" * 100_000  # a heap only shrinks at its end by itself
del blocks
before = resident()
give_back_free_memory()
print(before - resident())
"""


REUSED = """
import resource
from gateway.imaging.heap import keep_freed_memory

def faults_of_eight_megabytes():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(100):
        [bytearray(1 << 20) for _ in range(8)]
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) // 100

without = faults_of_eight_megabytes()
keep_freed_memory()
faults_of_eight_megabytes()
print(without, faults_of_eight_megabytes())
"""


@pytest.mark.skipif(heap._set_option is None, reason="the C library has no such call")
def test_freed_buffers_are_used_again_without_a_page_fault():
    out = subprocess.run([sys.executable, "-c", REUSED], check=True, capture_output=True, text=True, timeout=30)

    without, kept = map(int, out.stdout.split())
    assert without > 100
    assert kept == 0
    heap.keep_freed_memory()  # here too


@pytest.mark.skipif(heap._trim is None, reason="the C library has no such call")
def test_freed_blocks_are_given_back():
    out = subprocess.run([sys.executable, "-c", FREED], check=True, capture_output=True, text=True, timeout=30)

    assert int(out.stdout) > 50_000_000
    heap.give_back_free_memory()  # here too


def test_a_library_without_such_a_call_is_left_alone(monkeypatch):
    monkeypatch.setattr(heap, "_trim", None)
    monkeypatch.setattr(heap, "_set_option", None)

    heap.keep_freed_memory()
    heap.give_back_free_memory()
