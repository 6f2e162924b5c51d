"""What became of the requests of a day, counted by tenant class."""

from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from gateway.domain.image import ImageAction
from gateway.domain.outcome import Fate, Outcome, Reason
from gateway.replay.lines import Line

_A_WAIT_MS = 1.0
"""Asking takes some microseconds; what took less than this was let in at once."""


class Ended(NamedTuple):
    """`wait_seconds` of one that was let in; `first_token_seconds` from its arrival (None: it got none)."""

    fate: Fate
    reason: Reason | None = None
    wait_seconds: float = 0.0
    first_token_seconds: float | None = None
    shrunk_images: int = 0
    trimmed_images: int = 0


def fate_of(wait_seconds: float) -> Fate:
    """Of one that was let in."""
    return Fate.QUEUED if wait_seconds * 1000 >= _A_WAIT_MS else Fate.ADMITTED


def as_recorded(line: Line) -> Ended | None:
    """What its line says; None for what was no matter of the engine. In shadow mode, what would have been decided."""
    if line.shadow is not None:
        images = _changed(line.shadow_images)
        wait_seconds, first_token = line.shadow_wait_ms / 1000, _first_token(line)
        ended = Ended(line.shadow, line.shadow_reason, wait_seconds, first_token, *images)
        return None if line.shadow is Fate.UNDECIDED else ended
    if line.reason is not None:
        return Ended(Fate.REFUSED, line.reason)
    if not line.is_priced:
        return None
    if line.outcome is Outcome.CLIENT_LEFT and line.upstream_status is None:
        return Ended(Fate.LEFT)
    wait_seconds = line.queue_ms / 1000
    return Ended(fate_of(wait_seconds), None, wait_seconds, _first_token(line), *_changed(line.images_changed))


def _first_token(line: Line) -> float | None:
    is_shown = line.is_streaming and line.outcome is Outcome.FINISHED
    return line.first_event_ms / 1000 if is_shown and line.first_event_ms is not None else None


def _changed(images: str) -> tuple[int, int]:
    """How many the entries of `x-gateway-images` shrink and leave out."""
    return images.count(f";{ImageAction.RESIZED};"), images.count(f";{ImageAction.TRIMMED}")


@dataclass(slots=True)
class Tally:
    """Counts of one tenant class, or of all."""

    fates: Counter[Fate] = field(default_factory=Counter)
    reasons: Counter[Reason] = field(default_factory=Counter)
    waits: "array[float]" = field(default_factory=lambda: array("d"))
    first_tokens: "array[float]" = field(default_factory=lambda: array("d"))
    shrunk_images: int = 0
    trimmed_images: int = 0

    def add(self, ended: Ended) -> None:
        self.fates[ended.fate] += 1
        if ended.reason is not None:
            self.reasons[ended.reason] += 1
        if ended.fate is Fate.QUEUED:
            self.waits.append(ended.wait_seconds)
        if ended.first_token_seconds is not None:
            self.first_tokens.append(ended.first_token_seconds)
        self.shrunk_images += ended.shrunk_images
        self.trimmed_images += ended.trimmed_images

    @property
    def requests(self) -> int:
        return self.fates.total()


class Day:
    """The tallies of one column: `all`, and one for each tenant class that came."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.all = Tally()
        self.by_class: dict[str, Tally] = {}

    def add(self, line: Line, ended: Ended) -> None:
        self.all.add(ended)
        self.by_class.setdefault(line.tenant, Tally()).add(ended)


def quantile(values: "array[float]", share: float) -> float | None:
    """By nearest rank; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
