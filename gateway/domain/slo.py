"""Levels of service: by when the first token and the whole answer are due, counted from a request's arrival.

Whether a request will keep its level is forecast.py's question.
"""

from math import inf
from typing import NamedTuple

from gateway.domain.priority import Priority


class ServiceLevel(NamedTuple):
    """Seconds from arrival; infinite where nothing is promised."""

    first_token_seconds: float = inf
    total_seconds: float = inf


Levels = tuple[ServiceLevel, ...]
"""One for each `Priority`, in its order."""

NO_LEVELS: Levels = (ServiceLevel(),) * len(Priority)
