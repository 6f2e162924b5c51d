"""Whoever waits for a server to which nothing would be sent any more is let go, to wait for another."""

from collections.abc import Sequence

from gateway.pipeline.backend import Backend
from gateway.pipeline.elsewhere import another


def evacuate(backends: Sequence[Backend], now: float) -> None:
    """At each look at one of them. Those stay whom nobody else could serve, or who have been moved before."""
    for backend in backends:
        if backend.waiting and not backend.is_healthy(now):
            for ticket, exchange in tuple(backend.waiting.items()):
                request = exchange.request
                assert request is not None, "it was read"
                if exchange.came_from is None and another(backends, exchange, request, now) is not None:
                    backend.gate.send_away(ticket)
