"""Shadow mode: the body goes on byte for byte and at once, and what would have become of it is only told.

The steps up to admission are the story's own. Pixels are not touched, so what only decoding shows (a damaged picture,
bytes behind its end) is not told. Nothing that happens here may keep a request from being sent: what cannot be read
goes on unread, and a fault of the deciding is logged.
"""

import logging

from gateway.domain.errors import GatewayError
from gateway.domain.outcome import Ending
from gateway.domain.request import VisionRequest
from gateway.ledger.shadow import ShadowLease, UnadmittedLease
from gateway.pipeline.aliases import under_served_name
from gateway.pipeline.exchange import Exchange, Parts
from gateway.pipeline.fallback import Fallback, take_back
from gateway.pipeline.fitting import price_where_it_fits
from gateway.pipeline.ladder import declare_rungs
from gateway.pipeline.opened import pass_on
from gateway.pipeline.pricing import price
from gateway.pipeline.reading import read_request
from gateway.pipeline.remote import UnseenImageError
from gateway.pipeline.routing import route
from gateway.pipeline.stored import look_behind
from gateway.pipeline.story import (
    hash_images,
    price_bill,
    refuse_what_is_late,
    spare_known,
    ticket_of,
)
from gateway.pipeline.would_be import WouldBe
from gateway.upstream.client import Answer

_log = logging.getLogger(__name__)


async def serve(parts: Parts, exchange: Exchange) -> Answer:
    """From a received body to the head of the upstream's answer. Raises GatewayError 502, 503 or 504.

    `exchange.would_be` says what the door would have decided, if it would have ended there.
    """
    if exchange.would_be is None:
        exchange.would_be = await _decided(parts, exchange)
    is_streaming = exchange.request is not None and exchange.request.stream
    return await pass_on(parts, exchange, is_streaming=is_streaming)


async def _decided(parts: Parts, exchange: Exchange) -> WouldBe:
    """What was planned leaves the exchange again, for none of it is done."""
    request, error, is_undecided = None, None, False
    try:
        request = await read_request(parts, exchange)
        if parts.policies.aliases:
            request = under_served_name(parts, exchange, request)
        route(parts, exchange, request)
        look_behind(parts, exchange, request)
        await _admitted(parts, exchange, request)
    except UnseenImageError:
        is_undecided, exchange.fetch_seconds = True, 0.0
    except GatewayError as refusal:
        error = refusal
    except Exception:  # noqa: BLE001 - whatever it is, the client's answer does not depend on it
        _log.exception("request %s met a fault while it was decided in shadow; it is sent", exchange.request_id)
        is_undecided = True
    if error is not None and exchange.bill is not None:
        exchange.bill.close(parts.clock())  # in earnest it would have had nothing
    lease = exchange.lease if isinstance(exchange.lease, ShadowLease) else None
    told = error, lease, exchange.plans, exchange.trimmed, declare_rungs(exchange), is_undecided
    if exchange.fallback is not None:
        await _leave_fallback(parts, exchange, exchange.fallback)
    is_changed = bool(exchange.trimmed) or any(plan.target != plan.info.size for plan in exchange.plans)
    # The ladder may have lowered the bound on its answers; it is sent with its own.
    exchange.request = request
    exchange.plans, exchange.trimmed, exchange.trimmed_tokens, exchange.relieved = (), (), 0, None
    return WouldBe(*told, is_priced_as_sent=not is_changed)


async def _leave_fallback(parts: Parts, exchange: Exchange, fallback: Fallback) -> None:
    """The model that was asked for is to serve it: there it has its price, and is at the engine without a place. What
    it would have taken of the fallback's server it takes no longer than it is decided, for it never comes there.
    """
    had_place = exchange.lease is not None
    if exchange.lease is not None:
        exchange.lease.close(Ending.IGNORED)
    exchange.cost = exchange.limits = exchange.capacity = exchange.lease = exchange.relieved = None
    exchange.plans, exchange.trimmed, exchange.sent_images = (), (), ()
    asked = take_back(exchange, fallback)
    exchange.model = exchange.models.served(asked.model)
    try:
        _, cost = await price(parts, exchange, asked)
    except GatewayError:
        return  # in earnest nobody would have asked what that model makes of it
    except Exception:  # noqa: BLE001 - as above
        _log.exception("request %s met a fault while it was priced in shadow; it is sent", exchange.request_id)
        return
    if had_place:
        gate = exchange.backend.gate
        exchange.capacity = gate.capacity
        exchange.lease = UnadmittedLease(gate, ticket_of(parts, exchange, cost, parts.clock()))


async def _admitted(parts: Parts, exchange: Exchange, request: VisionRequest) -> None:
    """Steps 3 to 6, with a lease that stands for it whatever the gate says. Raises GatewayError."""
    request, plan, cost, misfit = await price_where_it_fits(parts, exchange, request)
    if misfit is not None:
        raise misfit.error
    if not (request.needs_engine or request.images):
        return
    if plan.sources and parts.policies.verifies_all:
        exchange.sent_images = await hash_images(parts, plan)
        cost = exchange.cost = spare_known(exchange, cost, exchange.sent_images)
    gate = exchange.backend.gate
    exchange.queued, exchange.capacity = parts.clock(), gate.capacity
    refuse_what_is_late(exchange, exchange.queued)
    if exchange.bill is not None:
        price_bill(exchange, exchange.bill, cost, exchange.queued)
    lease = exchange.lease = ShadowLease(gate, ticket_of(parts, exchange, cost, exchange.queued))
    if exchange.relieved is not None and lease.is_admitted:
        exchange.relieved.remember()
