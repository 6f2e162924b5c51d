"""Lines of the request log, summed up: one row for each group, however many lines there are."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import NamedTuple, Self

import msgspec

from gateway.telemetry.request_log import TokensUsed

_NOBODY = "-"


class UsageLine(msgspec.Struct, kw_only=True, gc=False):
    """What is needed of a line; the names are those of `RequestRecord`."""

    time: datetime
    outcome: str
    endpoint: str
    tenant: str = _NOBODY
    tenant_id: str | None = None
    model: str | None = None
    used: TokensUsed | None = None

    @property
    def day(self) -> str:
        return self.time.astimezone(UTC).date().isoformat()


GROUPS: dict[str, Callable[[UsageLine], str]] = {
    "day": lambda line: line.day,
    "tenant": lambda line: line.tenant_id or line.tenant,
    "class": lambda line: line.tenant,
    "model": lambda line: line.model or _NOBODY,
    "endpoint": lambda line: line.endpoint,
}
"""What rows may be of. A tenant that the operator did not name is told apart by an id; its class is `default`."""


class Span(NamedTuple):
    """From `since` on, before `until`; None: without a border there."""

    since: datetime | None = None
    until: datetime | None = None

    def has(self, time: datetime) -> bool:
        return (self.since is None or time >= self.since) and (self.until is None or time < self.until)


@dataclass(slots=True)
class Sum:
    """Tokens of so many requests, by kind; `estimated` are those of them that no engine reported."""

    requests: int = 0
    text: int = 0
    visual: int = 0
    media: int = 0
    output: int = 0
    cached: int = 0
    estimated: int = 0

    @property
    def total(self) -> int:
        """Cached tokens are part of the prompt."""
        return self.text + self.visual + self.media + self.output

    def add(self, used: TokensUsed) -> None:
        self.requests += 1
        self.text += used.text
        self.visual += used.visual
        self.media += used.media
        self.output += used.output
        self.cached += used.cached
        if used.is_estimate:
            self.estimated += used.text + used.visual + used.media + used.output

    def __iadd__(self, other: "Sum") -> Self:
        for each in fields(Sum):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))
        return self


@dataclass(slots=True)
class Sums:
    """`lines` were usable, of which `outside` lie before or after the span, and `idle` took nothing of the engine."""

    groups: Sequence[str]
    span: Span
    rows: dict[tuple[str, ...], Sum] = field(default_factory=dict)
    lines: int = 0
    outside: int = 0
    idle: int = 0

    def take(self, line: UsageLine) -> None:
        self.lines += 1
        if not self.span.has(line.time):
            self.outside += 1
        elif line.used is None:
            self.idle += 1
        else:
            key = tuple(GROUPS[group](line) for group in self.groups)
            row = self.rows.get(key)
            if row is None:
                row = self.rows[key] = Sum()
            row.add(line.used)

    def in_order(self) -> list[tuple[tuple[str, ...], Sum]]:
        return sorted(self.rows.items())

    def whole(self) -> Sum:
        whole = Sum()
        for row in self.rows.values():
            whole += row
        return whole
