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
    for backend in backends:
        if backend.waiting and not backend.is_healthy(now):
            for ticket, exchange in tuple(backend.waiting.items()):
                if exchange.came_from is None and _may_wait_elsewhere(backends, exchange, now):
                    backend.gate.send_away(ticket)


def _may_wait_elsewhere(backends: Sequence[Backend], exchange: Exchange, now: float) -> bool:
    other = another(backends, exchange, _asked(exchange), now)
    return other is not None and other.gate.has_room(exchange.newcomer())


def _asked(exchange: Exchange) -> VisionRequest:
    """As it is served elsewhere: a fallback is left behind with the server that had it."""
    request = exchange.request if exchange.fallback is None else exchange.fallback.asked
    assert request is not None, "it was read"
    return request
