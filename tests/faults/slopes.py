"""Whether a measured value grows with time: its slope by least squares, and how sure that is. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Slope:
    """By the minute, with its standard error: where that is as large as the slope, nothing was shown to grow."""

    per_minute: float
    error: float

    def exceeds(self, allowed_per_minute: float) -> bool:
        """Beyond doubt: by three standard errors."""
        return self.per_minute - 3 * self.error > allowed_per_minute


def slope_of(seconds: Sequence[float], values: Sequence[float]) -> Slope:
    """Of at least three values at different times."""
    count = len(values)
    mean_time, mean_value = sum(seconds) / count, sum(values) / count
    spread = sum((each - mean_time) ** 2 for each in seconds)
    slope = sum((x - mean_time) * (y - mean_value) for x, y in zip(seconds, values, strict=True)) / spread
    missed = sum((y - mean_value - slope * (x - mean_time)) ** 2 for x, y in zip(seconds, values, strict=True))
    return Slope(60 * slope, 60 * math.sqrt(missed / (count - 2) / spread))
