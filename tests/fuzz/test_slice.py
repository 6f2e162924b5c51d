"""A short slice of `make fuzz`, and that it would find something."""

from collections import Counter

import pytest

from tests.fuzz import run
from tests.fuzz.rooms import PLANTED, ROOMS
from tests.fuzz.run import Findings, input_of, worker_processes

INPUTS = 1500
SEED = 2026


@pytest.fixture
def processes():
    started = worker_processes()
    yield started
    started.close()


@pytest.mark.parametrize("room", ROOMS)
def test_whatever_comes_ends_in_a_known_way(room, processes, report_line):
    found = run.run(processes, room, SEED, range(INPUTS))
    assert found.faults == []
    assert found.ends.total() == INPUTS
    assert found.ends["ok"] > INPUTS / 20, "damage that nothing survives tests little"
    assert len(found.ends) > 3
    assert found.grown_bytes < 64 << 20
    report_line(f"fuzz, {room}: {INPUTS} inputs, {dict(found.ends.most_common(4))}")


def test_the_same_seed_gives_the_same_inputs_and_another_gives_others():
    assert [input_of("images", 1, number) for number in range(20)] == [input_of("images", 1, n) for n in range(20)]
    assert input_of("images", 1, 0) != input_of("images", 2, 0)


def test_an_exception_and_a_death_are_found_by_their_numbers(processes):
    numbers = range(60)
    inputs = {number: input_of(PLANTED, SEED, number)[0] for number in numbers}
    faults, deaths = ([number for number, kind in inputs.items() if kind == planted] for planted in (0, 1))
    assert faults
    assert deaths
    found = run.run(processes, PLANTED, SEED, numbers)
    told = dict(found.faults)
    assert sorted(told) == sorted([*faults, *deaths])
    assert all("ZeroDivisionError" in told[number] for number in faults)
    assert all("ended its process" in told[number] for number in deaths)
    assert found.ends == {"ok": len(numbers) - len(told), "lost": len(deaths)}


def test_findings_add_up():
    found = Findings()
    found.add(Findings(Counter({"ok": 2}), [(3, "x")], (0.5, 3), 10))
    found.add(Findings(Counter({"ok": 1}), [], (0.1, 4), 5))
    assert (found.ends["ok"], found.faults, found.slowest, found.grown_bytes) == (3, [(3, "x")], (0.5, 3), 10)
