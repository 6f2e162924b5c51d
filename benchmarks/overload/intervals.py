"""Shares, quantiles and how far to trust them. Pure; randomness is seeded by the caller."""

import math
import random
from collections.abc import Callable, Sequence
from typing import TypeVar

_Block = TypeVar("_Block")
Interval = tuple[float, float]

RESAMPLES = 400
_Z95 = 1.959964


def quantile(values: Sequence[float], share: float) -> float | None:
    """The value at `share` of the sorted values (nearest rank from below); None if there are none."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else None


def jain(shares: Sequence[float]) -> float | None:
    """Jain's index: 1 where all have the same, 1/n where one has everything; None where nobody has anything."""
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else None


def wilson(successes: int, total: int) -> Interval:
    """The 95 % interval of a share of independent cases (Wilson's score); (0, 1) of no cases."""
    if not total:
        return 0.0, 1.0
    share, spread = successes / total, _Z95 * _Z95 / total
    middle = (share + spread / 2) / (1 + spread)
    half = _Z95 * math.sqrt(share * (1 - share) / total + spread / (4 * total)) / (1 + spread)
    return max(0.0, middle - half), min(1.0, middle + half)


def bootstrap(
    blocks: Sequence[_Block], statistic: Callable[[Sequence[_Block]], float | None], seed: int
) -> Interval | None:
    """The 95 % percentile interval of a statistic when whole blocks are drawn again.

    A block is a short time of the run: requests that wait in the same queue are not independent of each other, times
    some seconds apart nearly are. None with fewer than two blocks, or where the statistic has no value.
    """
    if len(blocks) < 2:
        return None
    draw = random.Random(seed)
    drawn = (statistic(draw.choices(blocks, k=len(blocks))) for _ in range(RESAMPLES))
    values = sorted(value for value in drawn if value is not None)
    if not values:
        return None
    return values[int(0.025 * len(values))], values[min(len(values) - 1, int(0.975 * len(values)))]
