"""How urgent a request is."""

from enum import IntEnum


class Priority(IntEnum):
    """Classes in the order in which they are served; the name in lower case is the metric label."""

    CRITICAL = 0
    INTERACTIVE = 1
    DEFAULT = 2
    BATCH = 3

    @property
    def label(self) -> str:
        return self.name.lower()
