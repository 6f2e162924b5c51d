"""A tree of control groups as files: what binds is the tightest group on the way up."""

from pathlib import Path

import pytest

from gateway.ledger.cgroup import Cgroup

GROUP = "0::/kubepods.slice/pod7/container\n"


@pytest.fixture
def tree(tmp_path):
    """Writes `files` (path: text) below the mount, and the membership file."""

    def write(membership: str, files: dict[str, str]) -> Cgroup:
        for path, text in files.items():
            file = tmp_path / "cgroup" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        (tmp_path / "membership").write_text(membership)
        return Cgroup(tmp_path / "cgroup", tmp_path / "membership")

    return write


@pytest.mark.parametrize(
    ("group", "binding"),
    [
        ({"kubepods.slice/pod7/container/memory.max": "1000"}, 1000),
        ({"kubepods.slice/pod7/memory.max": "1000", "kubepods.slice/pod7/container/memory.max": "max"}, 1000),
        ({"kubepods.slice/memory.max": "3000", "kubepods.slice/pod7/container/memory.max": "2000\n"}, 2000),
        ({"memory.max": "1000", "kubepods.slice/pod7/container/memory.max": "2000"}, 1000),
        ({"unified/kubepods.slice/memory.max": "1000"}, 1000),
        ({"kubepods.slice/pod8/memory.max": "1000"}, None),
        ({"kubepods.slice/memory.max": "max"}, None),
        ({}, None),
    ],
)
def test_the_tightest_memory_limit_on_the_way_up_binds(tree, group, binding):
    assert tree(GROUP, group).memory_bytes() == binding


def test_version_1_has_a_path_for_each_controller(tree):
    cgroup = tree(
        "5:cpu,cpuacct:/docker/7\n4:memory:/docker/8\n1:name=systemd:/a:b\n",
        {
            "memory/docker/8/memory.limit_in_bytes": "5000",
            "memory/memory.limit_in_bytes": "9223372036854771712",
            "memory/docker/7/memory.limit_in_bytes": "1",
            "cpu/docker/7/cpu.cfs_quota_us": "150000",
            "cpu/docker/7/cpu.cfs_period_us": "100000",
            "cpu/cpu.cfs_quota_us": "-1",
            "cpu/cpu.cfs_period_us": "100000",
        },
    )
    assert cgroup.memory_bytes() == 5000
    assert cgroup.cores() == 2


@pytest.mark.parametrize("membership", ["", "0::/on/the/host\n", "0::/../../outside\n", "4:memory:/docker/9\n"])
def test_where_the_paths_are_the_hosts_the_mount_is_the_group(tree, membership):
    cgroup = tree(membership, {"memory.max": "700", "cpu.max": "50000 100000"})
    assert (cgroup.memory_bytes(), cgroup.cores()) == (700, 1)


@pytest.mark.parametrize(
    ("quotas", "cores"),
    [
        ({"kubepods.slice/cpu.max": "400000 100000", "kubepods.slice/pod7/cpu.max": "150000 100000"}, 2),
        ({"kubepods.slice/pod7/cpu.max": "max 100000"}, None),
        ({}, None),
    ],
)
def test_the_tightest_quota_on_the_way_up_counts(tree, quotas, cores):
    assert tree(GROUP, quotas).cores() == cores


def test_without_control_groups_there_is_no_limit():
    nowhere = Cgroup(Path("/nonexistent"), Path("/nonexistent"))
    assert (nowhere.memory_bytes(), nowhere.cores()) == (None, None)
