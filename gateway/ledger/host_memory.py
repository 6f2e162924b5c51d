"""How much memory this process may use (the smallest of its cgroups' limits, RLIMIT_AS and the machine's memory), and
how many cores.

The byte budgets are shares of it (design: a quarter each for bodies and for decoding, at most 4 GiB each).
"""

import os
import resource

from gateway.ledger.cgroup import THIS_PROCESS, Cgroup

GIB = 1 << 30
MOST_BUDGET_BYTES = 4 * GIB


def memory_limit_bytes(cgroup: Cgroup = THIS_PROCESS) -> int:
    """The binding limit in bytes."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        limits.append(soft)
    limits.append(cgroup.memory_bytes() or limits[0])
    return min(limits)


def quarter_share(limit_bytes: int) -> int:
    """Default size of one byte budget."""
    return min(limit_bytes // 4, MOST_BUDGET_BYTES)


def usable_cores(cgroup: Cgroup = THIS_PROCESS) -> int:
    """Cores that this process may run on and whose time its quota allows, at least 1."""
    cores = len(os.sched_getaffinity(0))
    return max(1, min(cores, cgroup.cores() or cores))
