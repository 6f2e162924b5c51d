"""What an upstream's 429 or 503 means for all that is still to be sent. It is never a sign of a broken upstream."""

import math
from collections.abc import Sequence

from gateway.pipeline.exchange import Exchange

BACK_PRESSURE = frozenset({429, 503})


def turned_away(exchange: Exchange, status: int, named_seconds: float | None) -> None:
    """To be called while the exchange still holds its lease, or the next request would take its place at once.

    `named_seconds` is the Retry-After of the answer, None where it has none.
    """
    if exchange.lease is None or (status == 429 and is_the_clients_own(exchange)):
        return
    # One that was sent in shadow mode without a place would not have come there.
    if exchange.would_be is not None and not exchange.lease.held.sequences:
        return
    exchange.backend.follower.pushed_back(named_seconds, exchange.lease.held.sequences)


def retry_after_seconds(headers: Sequence[tuple[bytes, bytes]]) -> float | None:
    """What an answer's `retry-after-ms` or `Retry-After` says; None where it names no time, or a date."""
    values = dict(headers)
    milliseconds = _positive(values.get(b"retry-after-ms"))
    return _positive(values.get(b"retry-after")) if milliseconds is None else milliseconds / 1000


def is_the_clients_own(exchange: Exchange) -> bool:
    """It may be a limit of the key that this client brought, which is nobody else's business."""
    return exchange.backend.upstream.forwards_client_keys and any(
        name == b"authorization" for name, _ in exchange.headers
    )


def _positive(value: bytes | None) -> float | None:
    try:
        number = float(value or b"")
    except ValueError:
        return None
    return number if 0 < number < math.inf else None
