"""How pressed an engine is, and which rungs of the ladder are in force because of it.

What each rung does to a request is decided where that is decided without it too: resize.py, trim.py, cost.py. That it
sticks to pictures and conversations is remembered.py's affair.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import exp
from operator import add
from typing import NamedTuple

from gateway.domain.errors import Code, GatewayError
from gateway.domain.holdings import HoldingsStatistics
from gateway.domain.outcome import BUDGET_REASON, Reason
from gateway.domain.priority import Priority
from gateway.domain.promise import NO_PROMISE, RetryAdvice
from gateway.domain.quantities import TO_FIRST_TOKEN, Amounts, Resource
from gateway.domain.resize import Preset

CALM_SECONDS = 5.0
"""A rung is left after the pressure was below its lower threshold for so long. Before small engines one large picture
more or less crosses a whole band; this halves how often a rung comes and goes there, and shrinks hardly more."""

UNMET_SECONDS = 10.0
"""What was refused counts as if it had waited for so long."""

_OF_IMAGES = frozenset({Resource.ENCODER_TOKENS, Resource.PREPROCESS_PIXELS})
# What is on its way to its first token is so for about a second: that many such seconds wait says nothing of a full
# engine.
_LASTING = tuple(resource for resource in Resource if resource not in TO_FIRST_TOKEN)
_OF_TEXTS = tuple(resource for resource in _LASTING if resource not in _OF_IMAGES)
_NOTHING: tuple[float, ...] = (0.0,) * len(Resource)


class Rung(StrEnum):
    """What is done under pressure, in the order in which it is: the gentlest first. The name of the setting too."""

    SHRINK = "shrink"
    HISTORY = "history"
    MAX_TOKENS = "max_tokens"
    FALLBACK = "fallback"
    SHED = "shed"
    REFUSE = "refuse"


REFUSING = frozenset({Rung.SHED, Rung.REFUSE})
"""For these only what is held and waits counts."""


class Band(NamedTuple):
    """A rung comes into force when the pressure reaches `enter`, and is left when it stays below `leave` (less)."""

    enter: float
    leave: float


@dataclass(frozen=True, slots=True)
class PressurePolicy:
    """The rungs that the operator wants, and what they do.

    Of `bands`, each threshold of a rung is at least that of the rung before it. New images are brought under `preset`,
    conversations keep `keep_images`, answers get `max_tokens` at most; requests of `shed_from` and less urgent ones are
    refused.
    """

    bands: Mapping[Rung, Band]
    preset: Preset
    keep_images: int
    max_tokens: int
    shed_from: Priority


class Pressure(NamedTuple):
    """`ratio` of what is held and wanted of `resource` to all that there is of it: 1.0 when all is held and nobody
    waits, 2.0 when as much again is waited for. `resource` is the one of which that is the most. `unmet` is how much
    more it would be, had those waited that were refused just now (`Unmet`).
    """

    ratio: float
    resource: Resource
    unmet: float = 0.0


def pressure_on_images(holdings: HoldingsStatistics, wanted_by_texts: Amounts, wanted_by_images: Amounts) -> Pressure:
    """As a request with images meets it; `wanted_by_…` is what those take that wait for the engine."""
    wanted = [texts + images for texts, images in zip(wanted_by_texts, wanted_by_images, strict=True)]
    return max(_pressures(holdings, wanted, _LASTING))


def pressure_on_texts(holdings: HoldingsStatistics, wanted_by_texts: Amounts) -> Pressure:
    """As a request without images meets it, which passes a wall of pictures: never more than with them."""
    return max(_pressures(holdings, wanted_by_texts, _OF_TEXTS))


def _pressures(
    holdings: HoldingsStatistics, wanted: Sequence[int], resources: Sequence[Resource]
) -> Iterator[Pressure]:
    for resource in resources:
        capacity = holdings.capacity[resource]
        if capacity is None:
            yield Pressure(0.0, resource)
            continue
        # What is held beyond the capacity (one large item alone, answers that grew) is nobody's wish to get in.
        held = min(holdings.held[resource], capacity)
        yield Pressure((held + wanted[resource]) / max(1, capacity), resource)


class Unmet:
    """What was refused for want of room or time: requests that are refused before they wait leave the line short,
    however many there are.

    It fades within `UNMET_SECONDS` to 1/e, so it is what these would want that came within so many seconds.
    """

    __slots__ = ("_at", "_by_images", "_by_texts")

    def __init__(self) -> None:
        self._by_texts = self._by_images = _NOTHING
        self._at = 0.0

    def note(self, amounts: Amounts, capacity: Sequence[int | None], now: float, *, has_images: bool) -> None:
        """One was refused. What it wanted beyond the whole of a resource counts as the whole."""
        self._fade(now)
        # Images begin after texts, so they want what these do.
        amounts = amounts._replace(prefill_tokens=amounts.prefill_tokens + amounts.image_prefill_tokens)
        most = [
            amount if whole is None else min(amount, whole) for amount, whole in zip(amounts, capacity, strict=True)
        ]
        if has_images:
            self._by_images = tuple(map(add, self._by_images, most))
        else:
            self._by_texts = tuple(map(add, self._by_texts, most))

    def share(self, capacity: Sequence[int | None], now: float, *, on_images: bool) -> float:
        """Of all that there is, of the resource of which it is the most; without images what these wanted is none."""
        self._fade(now)
        wanted = map(add, self._by_texts, self._by_images) if on_images else self._by_texts
        return max(
            (amount / max(1, whole) for amount, whole in zip(wanted, capacity, strict=True) if whole is not None),
            default=0.0,
        )

    def _fade(self, now: float) -> None:
        if now > self._at:
            kept = exp((self._at - now) / UNMET_SECONDS)
            self._by_texts = tuple(amount * kept for amount in self._by_texts)
            self._by_images = tuple(amount * kept for amount in self._by_images)
            self._at = now


class Ladder:
    """Which rungs are in force, as the pressure is seen from time to time.

    A rung comes into force at once, and is left once no pressure of `leave` or more was seen for `CALM_SECONDS`. So,
    with bands in order, a rung is never in force without those before it, and more pressure never means fewer rungs.
    Rungs that refuse do not count what was refused: they would close an engine that waits for work.
    """

    __slots__ = ("_bands", "_pressed_at", "in_force")

    def __init__(self, bands: Mapping[Rung, Band]) -> None:
        self._bands = [(rung, *bands[rung]) for rung in Rung if rung in bands]
        self._pressed_at: dict[Rung, float] = {}
        self.in_force: frozenset[Rung] = frozenset()

    def observe(self, ratio: float, now: float, unmet: float = 0.0) -> frozenset[Rung]:
        """The rungs in force at this pressure; `now` in seconds, never less than before."""
        pressed_at = self._pressed_at
        for rung, enter, leave in self._bands:
            seen = ratio if rung in REFUSING else ratio + unmet
            if seen >= enter or (seen >= leave and rung in pressed_at):
                pressed_at[rung] = now
            elif rung in pressed_at and now - pressed_at[rung] >= CALM_SECONDS:
                del pressed_at[rung]
        if len(pressed_at) != len(self.in_force):
            self.in_force = frozenset(pressed_at)
        return self.in_force


def share_to_leave(ratio: float, leave: float) -> float:
    """Of those that wait, 0 to 1: who must have left before the pressure is below `leave`. What is held stays so."""
    return min(1.0, max(0.0, ratio - leave) / (ratio - 1.0)) if ratio > 1.0 else 1.0


def shed_error(pressure: Pressure, band: Band, priority: Priority) -> GatewayError:
    """For requests of a priority that is turned away. No place is promised: those that are let in would lose it."""
    return GatewayError(
        Code.RATE_LIMIT_EXCEEDED,
        f"Requests of priority {priority.label} are turned away: {_busy(pressure, band)} Send it later, or let it be "
        "more urgent if it is.",
        reason=Reason.SHED_PRIORITY,
        retry_after_seconds=NO_PROMISE.seconds,
        short=pressure.resource.label,
    )


def closed_error(pressure: Pressure, band: Band, advice: RetryAdvice) -> GatewayError:
    """For whoever is new while all of these are refused; the reason is what the engine has too little of."""
    when = f"A place is expected in {advice.seconds:.1f} s." if advice.is_promise else "No place is expected soon."
    return GatewayError(
        Code.RATE_LIMIT_EXCEEDED,
        f"New requests are turned away: {_busy(pressure, band)} {when}",
        reason=BUDGET_REASON[pressure.resource],
        retry_after_seconds=advice.seconds,
        is_promise=advice.is_promise,
        short=pressure.resource.label,
    )


def _busy(pressure: Pressure, band: Band) -> str:
    return (
        f"what is held and waited for is {pressure.ratio:.1f} times all that the engine has "
        f"({pressure.resource.label}), and they are let in again once that stays below {band.leave:g}."
    )
