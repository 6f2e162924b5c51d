"""What a metric is declared with. The declarations themselves are declarations.py's."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Label:
    """A label, all values that it can have (None where they are known only at run time), and what it tells."""

    name: str
    values: tuple[str, ...] | None
    help: str = ""


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
