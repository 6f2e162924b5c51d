"""A body that goes on as it came: on a route that the operator has opened, and of every kind in shadow mode."""

from gateway.pipeline.exchange import Exchange, Parts
from gateway.pipeline.story import send
from gateway.upstream.client import Answer

_WITHOUT_BODY = frozenset({"GET", "HEAD", "OPTIONS", "DELETE"})


async def pass_on(parts: Parts, exchange: Exchange, *, is_streaming: bool = False) -> Answer:
    """To the upstream that the exchange goes to. Raises GatewayError 502, 503 or 504."""
    has_body = bool(exchange.body) or exchange.method not in _WITHOUT_BODY
    return await send(parts, exchange, [exchange.body] if has_body else None, is_streaming=is_streaming)
