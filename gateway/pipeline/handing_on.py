"""What of a request is handed on to a router, read off its exchange when it is sent."""

from gateway.pipeline.exchange import Exchange
from gateway.pipeline.routing import first_image
from gateway.wire.hand_on import NO_HEADERS, HandOn, Known, OwnHeaders, own_headers


def handed_on(hand_on: HandOn, exchange: Exchange, now: float) -> OwnHeaders:
    if not hand_on.headers:
        return NO_HEADERS
    assert exchange.cost is not None, "what is sent has a price"
    first_token_by, _ = exchange.due_by()
    known = Known(
        tenant=exchange.tenant.name,
        priority=exchange.priority,
        first_token_seconds=first_token_by - now,
        cost=exchange.cost,
        first_image=_first_image(exchange) if hand_on.names_image else None,
    )
    return own_headers(hand_on, known)


def _first_image(exchange: Exchange) -> bytes | None:
    request = exchange.request
    assert request is not None, "what has a price was read"
    return first_image(exchange.body, request) if request.images else None
