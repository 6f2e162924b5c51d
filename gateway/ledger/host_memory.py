"""How much memory this process may use: the smallest of the cgroup limit, RLIMIT_AS and the machine's memory.

The byte budgets are shares of it (design: a quarter each for bodies and for decoding, at most 4 GiB each).
"""

import os
import resource
from pathlib import Path

GIB = 1 << 30
MOST_BUDGET_BYTES = 4 * GIB
_CGROUP_FILES = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def memory_limit_bytes(cgroup_files: tuple[Path, ...] = _CGROUP_FILES) -> int:
    """The binding limit in bytes; cgroup v2 says `max` and v1 a huge number where there is none."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        limits.append(soft)
    for file in cgroup_files:
        text = file.read_text().strip() if file.exists() else ""
        if text.isdecimal():
            limits.append(int(text))
    return min(limits)


def quarter_share(limit_bytes: int) -> int:
    """Default size of one byte budget."""
    return min(limit_bytes // 4, MOST_BUDGET_BYTES)


def usable_cores() -> int:
    """Cores that this process may run on, at least 1."""
    return max(1, len(os.sched_getaffinity(0)))
