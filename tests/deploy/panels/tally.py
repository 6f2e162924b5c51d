"""What the load generator saw and counted by itself. Nothing here is asked of the gateway's metrics."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.support.live_gateway import CHAT


class Range(NamedTuple):
    """What is known of a number from outside; both bounds are equal where it is known exactly."""

    low: float
    high: float

    @classmethod
    def exactly(cls, value: float) -> "Range":
        return cls(value, value)

    def times(self, factor: float) -> "Range":
        return Range(self.low * factor, self.high * factor)

    def plus(self, amount: float) -> "Range":
        return Range(self.low + amount, self.high + amount)


class Picture(NamedTuple):
    """One that was sent: what it was, and what came of it. None for what nobody looked at, for it was left out."""

    format: str
    action: str
    pixels: int | None
    tokens: int | None
    saved: int = 0


@dataclass(frozen=True, slots=True)
class Seen:
    """One request as its client saw it end. `wait` is None where it never came to the line, `first_token` where no
    stream began, `sent_seconds` (the longest that it can have been inside before it was sent) where it was not sent.
    """

    outcome: str
    model: str = "tiny"
    endpoint: str = CHAT
    reason: str | None = None
    image_error: str | None = None
    priority: str = "default"
    tenant: str = "default"
    retry_after: Range | None = None
    wait: Range | None = None
    first_token: Range | None = None
    sent_seconds: float | None = None
    tokens: tuple[int, int] | None = None
    answer_tokens: int = 0
    pictures: tuple[Picture, ...] = ()


@dataclass
class Tally:
    """Of the whole day. `moments` are those at which everything stood still: when, and how it stood."""

    seen: list[Seen] = field(default_factory=list)
    shadow_decisions: Counter[str] = field(default_factory=Counter)
    shadow_actions: Counter[str] = field(default_factory=Counter)
    fetches: Counter[str] = field(default_factory=Counter)
    workers_lost: Counter[str] = field(default_factory=Counter)
    rungs: Counter[str] = field(default_factory=Counter)
    sent_elsewhere: Counter[str] = field(default_factory=Counter)
    sent_again: Counter[str] = field(default_factory=Counter)
    preemptions: Counter[str] = field(default_factory=Counter)
    streams_kept_alive: int = 0
    moments: dict[str, "Moment"] = field(default_factory=dict)

    @property
    def refusals(self) -> list[Seen]:
        return [each for each in self.seen if each.reason is not None]

    @property
    def pictures(self) -> Iterator[Picture]:
        return (picture for each in self.seen for picture in each.pictures)

    def saved(self) -> Counter[str]:
        """Prompt tokens, by what saved them."""
        saved: Counter[str] = Counter()
        for picture in self.pictures:
            saved[picture.action] += picture.saved
        return saved


@dataclass(frozen=True, slots=True)
class Moment:
    """`at` is a scrape's; `facts` are what the generator knows to have held then, by name and upstream or resource."""

    at: float
    facts: Mapping[str, Mapping[str, Range]] = field(default_factory=dict)
