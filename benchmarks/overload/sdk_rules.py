"""When the OpenAI SDK tries again, and after how long. Pure; read from openai-python 3.57, `_base_client.py`."""

import random
from collections.abc import Mapping

LONGEST_ASKED_SECONDS = 120.0
FIRST_BACKOFF_SECONDS = 0.5
LONGEST_BACKOFF_SECONDS = 8.0
RETRIED_STATUSES = frozenset({408, 409, 429})


def asked_seconds(headers: Mapping[str, str]) -> float | None:
    """What the server asks for; None if it does not, or in words that are no number. Names are in lower case."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            return float(headers[name]) * unit
        except (KeyError, ValueError):
            continue
    return None


def is_retried(status: int, headers: Mapping[str, str]) -> bool:
    """Whether a client with attempts left sends an answer's request again."""
    if (asked_seconds(headers) or 0.0) > LONGEST_ASKED_SECONDS:
        return False
    says = headers.get("x-should-retry")
    if says in {"true", "false"}:
        return says == "true"
    return status in RETRIED_STATUSES or status >= 500


def delay_seconds(headers: Mapping[str, str], retries_taken: int, draw: random.Random) -> float:
    """How long it waits before: as the server asks, else twice as long each time, up to a quarter less."""
    asked = asked_seconds(headers) or 0.0
    if 0.0 < asked <= LONGEST_ASKED_SECONDS:
        return asked
    backoff = min(FIRST_BACKOFF_SECONDS * 2.0**retries_taken, LONGEST_BACKOFF_SECONDS)
    return float(backoff * (1 - 0.25 * draw.random()))
