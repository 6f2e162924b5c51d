"""How urgent a request is."""

from enum import IntEnum


class Priority(IntEnum):
    """Classes in the order in which they are served; `label` is the name in lower case, of headers and metrics."""

    CRITICAL = 0
    INTERACTIVE = 1
    DEFAULT = 2
    BATCH = 3

    def __init__(self, _: int) -> None:
        # Every request is counted by it, and `name` of an enum is slow to read.
        self.label = self._name_.lower()
