"""`POST /gateway/try`: the status page asks about a picture, whose file is the body."""

import msgspec

from gateway.pipeline import settle
from gateway.pipeline.exchange import Exchange, Parts
from gateway.pipeline.try_picture import try_picture
from gateway.server.answers import Send, send_whole
from gateway.server.page_routes import SAFETY_HEADERS


async def answer_try(parts: Parts, exchange: Exchange, send: Send) -> None:
    """Raises GatewayError 400 for what is no picture, or a damaged one."""
    body = msgspec.json.encode(await try_picture(parts, exchange))
    exchange.hold_beside(len(body))
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    safety = [(name.encode(), value.encode()) for name, value in SAFETY_HEADERS.items()]
    await send_whole(200, [*headers, *safety], body, exchange, send)
    settle.answered_here(parts, exchange)
