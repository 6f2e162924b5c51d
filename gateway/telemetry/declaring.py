"""What is said of a metric once, for its page, the reference and the dashboards."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Label:
    """A label, all values that it can have (None where they are known only at run time), and what it tells. Those that
    come `later` have series from the first time on; all others at zero from the start.
    """

    name: str
    values: tuple[str, ...] | None
    help: str = ""
    later: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Declaration:
    """One metric. The name lacks the prefix `gateway_`; `buckets` are upper bounds in the unit of the name."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[Label, ...] = ()
    buckets: tuple[float, ...] = ()

    @property
    def full_name(self) -> str:
        return f"gateway_{self.name}"
