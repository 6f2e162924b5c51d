import os
import resource

import pytest

from gateway.ledger.cgroup import Cgroup
from gateway.ledger.host_memory import GIB, memory_limit_bytes, quarter_share, usable_cores


@pytest.fixture
def cgroup(tmp_path):
    return Cgroup(tmp_path / "cgroup", tmp_path / "membership")


def limit(cgroup, **files):
    cgroup.root.mkdir()
    for name, text in files.items():
        (cgroup.root / name.replace("_", ".")).write_text(text)


def test_the_machine_bounds_where_no_cgroup_file_exists(cgroup):
    assert memory_limit_bytes(cgroup) == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def test_a_cgroup_limit_below_the_machine_counts(cgroup):
    limit(cgroup, memory_max="268435456\n")
    assert memory_limit_bytes(cgroup) == 268_435_456


def test_an_address_space_limit_counts(cgroup, monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (123_456_789, resource.RLIM_INFINITY))
    assert memory_limit_bytes(cgroup) == 123_456_789


def test_a_budget_is_a_quarter_but_never_above_four_gib():
    assert quarter_share(8 * GIB) == 2 * GIB
    assert quarter_share(1000 * GIB) == 4 * GIB


def test_cores_are_those_of_the_affinity_within_the_quota(cgroup, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert usable_cores(cgroup) == 8
    limit(cgroup, cpu_max="250000 100000\n")
    assert usable_cores(cgroup) == 3
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    assert usable_cores(cgroup) == 2
