"""The bare ASGI callable of the proxied routes: door, receive, the pipeline, and the answer that owns the lease.

Middleware would cost more than all decisions together (measured), so there is none.
"""

import asyncio
import logging
from collections.abc import MutableMapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

from gateway.domain.bill import Bill
from gateway.domain.errors import Code, GatewayError
from gateway.domain.outcome import Reason
from gateway.domain.stored_answers import owner_of
from gateway.domain.tenancy import Tenancy, unauthorised
from gateway.ledger.byte_budget import ByteBudget, Seats
from gateway.pipeline import settle
from gateway.pipeline.backend import refuse_if_all_full
from gateway.pipeline.exchange import Exchange, Parts
from gateway.pipeline.ladder import refuse_at_the_door
from gateway.pipeline.opened import pass_on
from gateway.pipeline.retrieving import ask_for_stored
from gateway.pipeline.story import serve
from gateway.server.answers import Send, relay, send_refusal
from gateway.server.body_hold import BodyHold
from gateway.server.client_watch import ClientWatches, current_task
from gateway.server.content_coding import decode_body
from gateway.server.door import (
    Arrival,
    new_request_id,
    read_headers,
    refuse_coding,
    refuse_length,
    refuse_media_type,
    refuse_other_than_a_picture,
    refuse_unreadable,
)
from gateway.server.draining import Drain
from gateway.server.keep_alive import KeepAlive, KeptAlive
from gateway.server.models_route import ModelsRoute
from gateway.server.page_access import PageAccess
from gateway.server.preflight_route import answer_preflight
from gateway.server.receive import BodyLimits, ClientLeftError, Receive, receive_body
from gateway.server.tokens_route import answer_tokens
from gateway.server.trusted_header import TrustedHeader
from gateway.server.try_route import answer_try
from gateway.wire.dialects.table import DIALECTS
from gateway.wire.routes import ANSWERED_HERE, TRY_PATH, WITH_OWNER, WITHOUT_BODY, Kind, classify, sent_on

Scope = MutableMapping[str, Any]
logger = logging.getLogger(__name__)

_NOTHING = nullcontext()
# A client may take so much longer for its answer than the upstream may for making it.
_SLOW_READER_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Door:
    """What guards the way in. `trusted_header` is there only where a proxy may name tenants."""

    seats: Seats
    body_budget: ByteBudget
    body_limits: BodyLimits
    wait_seconds: float
    tenancy: Tenancy
    page: PageAccess
    drain: Drain
    trusted_header: TrustedHeader | None = None


class Proxy:
    """One instance serves every proxied request of the process."""

    _serve = staticmethod(serve)

    def __init__(self, parts: Parts, door: Door, keep_alive: KeepAlive | None = None) -> None:
        self._parts = parts
        self._door = door
        self._keep_alive = keep_alive
        self._watches = ClientWatches(
            parts.policies.queue_wait_seconds + parts.policies.whole_answer_seconds + _SLOW_READER_SECONDS
        )
        self._models_route = ModelsRoute(parts, door.body_limits.max_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        arrival = read_headers(scope["headers"])
        exchange = self._begin(scope, arrival)
        if self._keep_alive is not None:
            send = self._keep_alive.over(exchange, send)
        try:
            if exchange.path == TRY_PATH:
                self._door.page.refuse(scope, is_data=True)
            await self._attend(exchange, arrival, receive, send)
        except GatewayError as error:
            settle.refused(self._parts, exchange, error)
            await send_refusal(error, exchange, arrival, receive, send, self._parts.policies.overload_status)
        except ClientLeftError:
            settle.client_left(self._parts, exchange)
        except asyncio.CancelledError:
            settle.client_left(self._parts, exchange)
            if not exchange.is_abandoned:
                raise
            # The watcher cancelled this task on behalf of the client: the cancellation has done its work.
            current_task().uncancel()
        except Exception:
            logger.exception("request %s met a fault of the gateway", exchange.request_id)
            settle.faulted(self._parts, exchange)
            if exchange.is_answering:
                raise
            await send_refusal(_fault(exchange), exchange, arrival, receive, send, None)
        finally:
            if exchange.bill is not None:
                exchange.bill.close(self._parts.clock())  # whatever end was overlooked

    def _begin(self, scope: Scope, arrival: Arrival) -> Exchange:
        now = self._parts.clock()
        trusted = self._door.trusted_header
        named = None if trusted is None else trusted.named_by(scope)
        tenancy = self._door.tenancy
        if named is None:
            tenant = tenancy.tenant_of(arrival.key, now)
        else:
            tenant, arrival.named_as = tenancy.tenant_by_name(named, now), named
        asked_priority, deadline_seconds = arrival.priority, arrival.deadline_seconds
        trace = None if self._parts.tracing is None else self._parts.tracing.begin(scope["headers"])
        exchange = Exchange(
            request_id=new_request_id(),
            client_request_id=arrival.client_request_id,
            path=scope["path"],
            query=scope["query_string"],
            method=scope["method"],
            headers=scope["headers"] if trace is None else trace.onward(scope["headers"]),
            arrived=now,
            trace=trace,
            resize_preset=arrival.resize_preset,
            is_return=arrival.is_return,
            tenant=tenant,
            asked_priority=asked_priority,
            priority=tenant.priority_of(asked_priority),
            deadline=None if deadline_seconds is None else now + deadline_seconds,
        )
        exchange.goes_to(self._parts.backends[0])
        return exchange

    async def _attend(self, exchange: Exchange, arrival: Arrival, receive: Receive, send: Send) -> None:
        route = exchange.route = classify(exchange.method, exchange.path, self._parts.policies.open_routes)
        if route.kind is Kind.TOKENS and not self._counts_here(arrival):
            route = exchange.route = sent_on(route)
        if exchange.tenant.is_refused:
            raise unauthorised(exchange.tenant)
        self._refuse_closed(exchange)
        if route.kind in WITH_OWNER:
            exchange.owner = owner_of(exchange.tenant, arrival.identity)
        if route.kind not in WITHOUT_BODY:
            self._refuse_at_the_door(exchange, arrival)
        self._door.seats.take()
        try:
            if route.kind is Kind.MODELS:
                await self._list_models(exchange, receive, send)
            elif route.kind is Kind.STORED_RESPONSE and exchange.would_be is None:
                await self._pass_stored(exchange, receive, send)
            else:
                if exchange.tenant.quota is not None and route.kind not in ANSWERED_HERE:
                    self._open_bill(exchange, Bill(exchange.tenant.quota, exchange.tenant.shown_name))
                await self._serve_seated(exchange, arrival, receive, send)
        finally:
            self._door.seats.give_back()

    def _open_bill(self, exchange: Exchange, bill: Bill) -> None:
        bill.open(exchange.arrived)
        exchange.bill = bill

    def _refuse_closed(self, exchange: Exchange) -> None:
        refusal = exchange.route.refusal
        if refusal is not None:
            raise refusal

    def _limits(self, kind: Kind) -> BodyLimits:
        """Of the body of such a request."""
        return limits_of(kind, self._door.body_limits, self._parts.policies.images.max_bytes)

    def _counts_here(self, arrival: Arrival) -> bool:
        """The client's own word goes before the setting."""
        asked = arrival.counts_here
        return self._parts.policies.counts_tokens if asked is None else asked

    def _refuse_at_the_door(self, exchange: Exchange, arrival: Arrival) -> None:
        self._door.drain.refuse(self._parts.clock())
        if exchange.route.kind is Kind.OPENED:
            refuse_length(arrival, self._door.body_limits.max_bytes)
            return
        refuse_by_headers(arrival, exchange.route.kind, self._limits(exchange.route.kind))
        exchange.body_bytes = arrival.content_length or 0
        if exchange.route.kind not in ANSWERED_HERE:
            refuse_if_all_full(self._parts.backends, exchange.newcomer)
            if self._parts.relief is not None and DIALECTS[exchange.route.kind].needs_engine:
                refuse_at_the_door(self._parts.relief, exchange, self._parts.backends)

    async def _list_models(self, exchange: Exchange, receive: Receive, send: Send) -> None:
        exchange.received = self._parts.clock()  # whatever body there is, nobody waits for it
        watch = self._watches.over(exchange, receive)
        try:
            await self._models_route.answer(exchange, send)
        finally:
            watch.stop()

    async def _pass_stored(self, exchange: Exchange, receive: Receive, send: Send) -> None:
        exchange.received = self._parts.clock()
        watch = self._watches.over(exchange, receive)
        answer = None
        try:
            answer = await ask_for_stored(self._parts, exchange)
            settle.head_arrived(exchange, answer)
            await relay(self._parts, exchange, answer, send)
        finally:
            watch.stop()
            if answer is not None:
                answer.finish()

    async def _serve_seated(self, exchange: Exchange, arrival: Arrival, receive: Receive, send: Send) -> None:
        answer = None
        patience = min(self._door.wait_seconds, arrival.deadline_seconds or self._door.wait_seconds)
        body_hold = BodyHold(self._door.body_budget, arrival, self._limits(exchange.route.kind), patience)
        try:
            exchange.body = await self._receive(exchange, arrival, receive, body_hold)
            exchange.body_bytes = len(exchange.body)
            body_hold.settle(exchange.body_bytes)
            exchange.hold_beside = body_hold.hold_beside
            watch = self._watches.over(exchange, receive)
            try:
                if exchange.route.kind is Kind.PREFLIGHT:
                    await answer_preflight(self._parts, exchange, send)
                elif exchange.route.kind is Kind.TRY:
                    await answer_try(self._parts, exchange, send)
                elif exchange.route.kind is Kind.TOKENS:
                    await answer_tokens(self._parts, exchange, send)
                else:
                    serving = pass_on if exchange.route.kind is Kind.OPENED else self._serve
                    async with send if isinstance(send, KeptAlive) else _NOTHING:
                        answer = await serving(self._parts, exchange)
                    settle.head_arrived(exchange, answer)
                    body_hold.release()
                    await relay(self._parts, exchange, answer, send)
            finally:
                watch.stop()
        finally:
            if answer is not None:
                answer.finish()
            if exchange.lease is not None and not exchange.is_settled:
                settle.let_go(self._parts, exchange)
            body_hold.release()

    async def _receive(
        self, exchange: Exchange, arrival: Arrival, receive: Receive, body_hold: BodyHold
    ) -> bytes | bytearray:
        limits = self._limits(exchange.route.kind)
        body = await receive_body(receive, arrival.content_length, limits, body_hold)
        exchange.received = self._parts.clock()
        if not arrival.is_coded or exchange.route.kind is Kind.OPENED:
            return body
        await body_hold.make_room_to_decode(len(body))
        exchange.headers = [pair for pair in exchange.headers if pair[0] != b"content-encoding"]
        return await decode_body(body, arrival.content_encoding, limits.max_decoded_bytes)


def limits_of(kind: Kind, limits: BodyLimits, picture_bytes: int) -> BodyLimits:
    """A picture that is tried may be as long as one that is sent."""
    return replace(limits, max_bytes=min(limits.max_bytes, picture_bytes)) if kind is Kind.TRY else limits


def refuse_by_headers(arrival: Arrival, kind: Kind, limits: BodyLimits) -> None:
    """What headers alone show to be in vain. Raises GatewayError 400, 413 or 415."""
    refuse_unreadable(arrival)
    if kind is Kind.TRY:
        refuse_other_than_a_picture(arrival)
    else:
        refuse_media_type(arrival)
    refuse_coding(arrival)
    refuse_length(arrival, limits.max_bytes)


def _fault(exchange: Exchange) -> GatewayError:
    return GatewayError(
        Code.INTERNAL_ERROR,
        f"The gateway met a fault of its own and did not send the request on. Report request id {exchange.request_id}.",
        reason=Reason.BAD_REQUEST,
    )
