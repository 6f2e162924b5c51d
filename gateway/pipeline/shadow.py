"""Shadow mode: the body goes on byte for byte and at once, and what would have become of it is only told.

The steps up to admission are the story's own. Pixels are not touched, so what only decoding shows (a damaged picture,
bytes behind its end) is not told. Nothing that happens here may keep a request from being sent: what cannot be read
goes on unread, and a fault of the deciding is logged.
"""

import logging

from gateway.domain.errors import GatewayError
from gateway.domain.request import VisionRequest
from gateway.ledger.shadow import ShadowLease
from gateway.pipeline.exchange import Exchange, Parts
from gateway.pipeline.fallback import take_back
from gateway.pipeline.fitting import price_where_it_fits
from gateway.pipeline.ladder import declare_rungs
from gateway.pipeline.reading import read_request
from gateway.pipeline.routing import route
from gateway.pipeline.story import (
    hash_images,
    refuse_what_is_late,
    send,
    spare_known,
    ticket_of,
)
from gateway.pipeline.would_be import WouldBe
from gateway.upstream.client import Answer

_log = logging.getLogger(__name__)
_WITHOUT_BODY = frozenset({"GET", "HEAD", "OPTIONS", "DELETE"})


async def serve(parts: Parts, exchange: Exchange) -> Answer:
    """From a received body to the head of the upstream's answer. Raises GatewayError 502, 503 or 504.

    `exchange.would_be` says what the door would have decided, if it would have ended there.
    """
    if exchange.would_be is None:
        exchange.would_be = await _decided(parts, exchange)
    has_body = bool(exchange.body) or exchange.method not in _WITHOUT_BODY
    is_streaming = exchange.request is not None and exchange.request.stream
    return await send(parts, exchange, [exchange.body] if has_body else None, is_streaming=is_streaming)


async def _decided(parts: Parts, exchange: Exchange) -> WouldBe:
    """What was planned leaves the exchange again, for none of it is done."""
    request, error, is_undecided = None, None, False
    try:
        request = await read_request(exchange)
        route(parts, exchange, request)
        await _admitted(parts, exchange, request)
    except GatewayError as refusal:
        error = refusal
    except Exception:  # noqa: BLE001 - whatever it is, the client's answer does not depend on it
        _log.exception("request %s met a fault while it was decided in shadow; it is sent", exchange.request_id)
        is_undecided = True
    lease = exchange.lease if isinstance(exchange.lease, ShadowLease) else None
    would_be = WouldBe(error, lease, exchange.plans, exchange.trimmed, declare_rungs(exchange), is_undecided)
    if exchange.fallback is not None:
        asked = take_back(exchange, exchange.fallback)
        exchange.model = exchange.models.served(asked.model)
    # The ladder may have lowered the bound on its answers; it is sent with its own.
    exchange.request = request
    exchange.plans, exchange.trimmed, exchange.trimmed_tokens, exchange.relieved = (), (), 0, None
    return would_be


async def _admitted(parts: Parts, exchange: Exchange, request: VisionRequest) -> None:
    """Steps 3 to 6, with a lease that stands for it whatever the gate says. Raises GatewayError."""
    request, plan, cost, misfit = await price_where_it_fits(parts, exchange, request)
    if misfit is not None:
        raise misfit.error
    if not request.needs_engine:
        return
    if plan.sources and parts.policies.verifies_all:
        exchange.sent_images = await hash_images(parts, plan)
        cost = exchange.cost = spare_known(exchange, cost, exchange.sent_images)
    gate = exchange.backend.gate
    exchange.queued, exchange.capacity = parts.clock(), gate.capacity
    refuse_what_is_late(exchange, exchange.queued)
    lease = exchange.lease = ShadowLease(gate, ticket_of(parts, exchange, cost, exchange.queued))
    if exchange.relieved is not None and lease.is_admitted:
        exchange.relieved.remember()
