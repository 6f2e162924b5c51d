"""Limits that the kernel's control groups put on this process: its own group's and those of all groups around it.

Version 2 shows all limits under one path, version 1 each controller under a path of its own; both may be mounted. In a
container the paths of `/proc/self/cgroup` may be the host's: then only the mount's root is there to be read. Sources:
the kernel's Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst, scheduler/sched-bwc.rst.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Cgroup:
    """`root` is where control groups are mounted, `membership` the file that names this process's groups."""

    root: Path = Path("/sys/fs/cgroup")
    membership: Path = Path("/proc/self/cgroup")

    def memory_bytes(self) -> int | None:
        """The smallest limit of this process's groups, in bytes; None where there is none.

        Version 2 says `max` and version 1 a huge number for no limit.
        """
        texts = [_read(folder / "memory.max") for folder in self._folders("")]
        texts += [_read(folder / "memory.limit_in_bytes") for folder in self._folders("memory")]
        return min((int(text) for text in texts if text.isdecimal()), default=None)

    def cores(self) -> int | None:
        """Cores' worth of time that the smallest quota allows, rounded up; None where there is none."""
        texts = [_read(folder / "cpu.max") for folder in self._folders("")]
        texts += [
            f"{_read(folder / 'cpu.cfs_quota_us')} {_read(folder / 'cpu.cfs_period_us')}"
            for folder in self._folders("cpu")
        ]
        return min((cores for text in texts if (cores := _cores(text)) is not None), default=None)

    def _folders(self, controller: str) -> Iterator[Path]:
        """The group of this process under one controller (empty: version 2), the groups around it, the mount's root."""
        path = self._path(controller)
        for mount in (self.root / controller,) if controller else (self.root, self.root / "unified"):
            yield from (mount / group for group in (path, *path.parents))

    def _path(self, controller: str) -> Path:
        """Relative to the mount; its root where the file does not say, or names a group outside of it."""
        for line in _read(self.membership).splitlines():
            _, controllers, path = line.split(":", 2)
            if controller in controllers.split(",") and ".." not in Path(path).parts:
                return Path(path.lstrip("/"))
        return Path()


THIS_PROCESS = Cgroup()


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def _cores(quota_and_period: str) -> int | None:
    quota, _, period = quota_and_period.partition(" ")
    return math.ceil(int(quota) / int(period)) if quota.isdecimal() and period.isdecimal() else None
