"""Step 2 of the story: the body is parsed; in the event loop where that is quick, else in a thread, one at a time.

Parsing takes memory too, many times a small piece's bytes: one thread is what bounds it.
"""

from collections.abc import Callable
from typing import TypeVar

from gateway.domain.fields import judge
from gateway.domain.request import VisionRequest
from gateway.pipeline.beside import ONE_THREAD, in_thread
from gateway.pipeline.exchange import Exchange, Rules
from gateway.wire.bulk import count_pieces
from gateway.wire.dialects.table import DIALECTS
from gateway.wire.routes import Route

T = TypeVar("T")

# Up to here parsing takes some milliseconds at most; what is longer with few pieces is copied at memory speed.
_INLINE_BYTES = 64 * 1024
_INLINE_PIECES = 8 * 1024


async def read_request(rules: Rules, exchange: Exchange) -> VisionRequest:
    """The request, on `exchange` too, and there what its body says of its priority, and the fields that are brought
    down. Raises GatewayError 400.
    """
    dialect = DIALECTS[exchange.route.kind]
    if dialect.kind_of is not None:
        kind = await read_aside(dialect.kind_of, exchange.body)
        exchange.route, dialect = Route(kind, exchange.route.path, exchange.route.methods), DIALECTS[kind]
    request = exchange.request = await read_aside(dialect.parse, exchange.body)
    if request.fields:
        request = exchange.request = _within_rules(rules, exchange, request)
    if exchange.asked_priority is None and request.priority is not None:
        exchange.priority = exchange.tenant.priority_of(request.priority)
    return request


def _within_rules(rules: Rules, exchange: Exchange, request: VisionRequest) -> VisionRequest:
    clamps = exchange.clamps = judge(request.fields, rules.policies.fields)
    answers = next((clamp.number for clamp in clamps if clamp.name == "n"), request.n)
    return request._replace(n=max(1, answers))


async def read_aside(parse: Callable[[bytes | bytearray], T], body: bytes | bytearray) -> T:
    """What `parse` returns or raises, without holding up the event loop for long."""
    if len(body) <= _INLINE_BYTES or count_pieces(body) <= _INLINE_PIECES:
        return parse(body)
    return await in_thread(ONE_THREAD, parse, body)
