"""`POST /tokenize` and `POST /v1/messages/count_tokens`, where the gateway itself is to answer them."""

from gateway.pipeline import settle
from gateway.pipeline.exchange import Exchange, Parts
from gateway.pipeline.token_counts import count_messages, count_tokenize
from gateway.server.answers import Send, send_whole
from gateway.wire.declare import declare_images
from gateway.wire.routes import COUNT_TOKENS_PATH
from gateway.wire.tokenize import count_header, count_tokens_answer, tokenize_answer


async def answer_tokens(parts: Parts, exchange: Exchange, send: Send) -> None:
    """Raises GatewayError 400 for what could not be sent as a chat either, 404 for an unknown model."""
    if exchange.path == COUNT_TOKENS_PATH:
        counted = await count_messages(parts, exchange)
        body = count_tokens_answer(counted.bounds.expected)
    else:
        counted = await count_tokenize(parts, exchange)
        body = tokenize_answer(counted.bounds.expected, counted.max_model_len, counted.tokens, counted.token_strs)
        exchange.hold_beside(len(body))
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        count_header(counted.bounds.lower, counted.upper, is_exact=counted.is_exact),
    ]
    images = declare_images(exchange.plans, exchange.trimmed)
    await send_whole(200, [*headers, (b"x-gateway-images", images)] if images else headers, body, exchange, send)
    settle.answered_here(parts, exchange)
