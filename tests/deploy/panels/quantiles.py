"""What Prometheus makes of observations that were put into buckets, for numbers that are known within bounds.

By its documentation: the quantile lies within the bucket of that rank, as if the observations there were spread evenly;
one in the last, open bucket is told as the bound below it.
"""

from collections.abc import Sequence

from tests.deploy.panels.tally import Range


def quantile(share: float, observations: Sequence[Range], bounds: Sequence[float]) -> Range:
    """Moving an observation up never lowers a quantile: so it lies between those of all lows and all highs."""
    lows, highs = zip(*observations, strict=True)
    return Range(_quantile(share, lows, bounds), _quantile(share, highs, bounds))


def at_most(bound: float, observations: Sequence[Range]) -> Range:
    """How many are at or below the bound."""
    surely = sum(1 for each in observations if each.high <= bound)
    perhaps = sum(1 for each in observations if each.low <= bound)
    return Range(surely, perhaps)


def _quantile(share: float, values: Sequence[float], bounds: Sequence[float]) -> float:
    rank = share * len(values)
    below = 0
    for index, bound in enumerate(bounds):
        until = sum(1 for value in values if value <= bound)
        if until >= rank:
            start = bounds[index - 1] if index else 0.0
            return start + (bound - start) * (rank - below) / (until - below)
        below = until
    return bounds[-1]
