"""A stored answer is asked for, or cancelled: nothing is held for that, and nothing priced."""

from gateway.pipeline.exchange import Exchange, Parts
from gateway.pipeline.stored import go_to_its_server
from gateway.pipeline.story import send
from gateway.upstream.client import Answer


async def ask_for_stored(parts: Parts, exchange: Exchange) -> Answer:
    """The head of what the server says of it that has it. Raises GatewayError 404, and 502 to 504."""
    response_id = exchange.route.response_id
    assert response_id is not None, "the route is that of an answer"
    go_to_its_server(parts, exchange, response_id, "response_id")
    body = [b""] if exchange.method == "POST" else None
    return await send(parts, exchange, body, is_streaming=b"stream=true" in exchange.query.lower())
