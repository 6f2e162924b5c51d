"""Whoever waits for a server to which nothing would be sent any more is let go, to wait for another."""

from collections.abc import Sequence

from gateway.domain.request import VisionRequest
from gateway.pipeline.backend import Backend
from gateway.pipeline.elsewhere import another
from gateway.pipeline.exchange import Exchange


def evacuate(backends: Sequence[Backend], now: float) -> None:
    """At each look at any of them: one that comes back has room for those who wait for one that is away, and such a one
    is looked at seldom. Those stay whom nobody else could let wait, or who have been moved before.
    """
    places: dict[str, int] = {}
    for backend in backends:
        if backend.waiting and not backend.is_healthy(now):
            for ticket, exchange in tuple(backend.waiting.items()):
                other = None if exchange.came_from is not None else _other(backends, exchange, now)
                if other is not None and places.setdefault(other.name, _places_at_once(other)) > 0:
                    places[other.name] -= 1
                    backend.gate.send_away(ticket)


def _other(backends: Sequence[Backend], exchange: Exchange, now: float) -> Backend | None:
    """One that would let it wait."""
    other = another(backends, exchange, _asked(exchange), now)
    return other if other is not None and other.gate.has_room(exchange.newcomer()) else None


def _places_at_once(backend: Backend) -> int:
    """Who is let go joins the other line a little later, so that it does not show yet that it fills: half of what is
    free goes at one look.
    """
    gate = backend.gate
    return -(-(gate.policy.requests - gate.statistics().admission.queue_depth) // 2)


def _asked(exchange: Exchange) -> VisionRequest:
    """As it is served elsewhere: a fallback is left behind with the server that had it."""
    request = exchange.request if exchange.fallback is None else exchange.fallback.asked
    assert request is not None, "it was read"
    return request
