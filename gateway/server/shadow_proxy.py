"""The proxied routes in shadow mode: everything goes on as it came, and what would have ended here is only noted.

Refused is only what this machine or the upstream must be kept from: bodies for which there is no memory (413, 429),
more requests than seats (429), who has no key where keys are configured (401), routes for operators and unknown ones
(403, 404), and whoever comes while the gateway is leaving (503). Times that end a request in earnest do not end it
here; the client's patience does.
"""

from gateway.domain.bill import Bill
from gateway.domain.errors import GatewayError
from gateway.pipeline import shadow
from gateway.pipeline.exchange import Exchange, Parts
from gateway.pipeline.would_be import WouldBe
from gateway.server.body_hold import BodyHold
from gateway.server.door import Arrival, refuse_length
from gateway.server.proxy import Door, Proxy, limits_of, refuse_by_headers
from gateway.server.receive import BodyLimits, Receive, receive_body, too_large
from gateway.wire.routes import ANSWERED_HERE, Kind, passes_in_shadow


class ShadowProxy(Proxy):
    """`door` has the limits of what can be held, `told_limits` are those that would hold in earnest."""

    _serve = staticmethod(shadow.serve)

    def __init__(self, parts: Parts, door: Door, told_limits: BodyLimits) -> None:
        super().__init__(parts, door)
        self._told_limits = told_limits

    def _limits(self, kind: Kind) -> BodyLimits:
        """What is answered here is read as in earnest."""
        if kind in ANSWERED_HERE:
            return limits_of(kind, self._told_limits, self._parts.policies.images.max_bytes)
        return self._door.body_limits

    def _counts_here(self, arrival: Arrival) -> bool:
        """Only where a client asks for it: else the model server counts, as it would without a gateway."""
        return arrival.counts_here is True

    def _refuse_closed(self, exchange: Exchange) -> None:
        if passes_in_shadow(exchange.route):
            exchange.would_be = WouldBe(exchange.route.refusal)
        elif exchange.route.kind is Kind.STORED_RESPONSE:
            exchange.would_be = WouldBe(is_undecided=True)  # what was stored before may be told to anyone
        else:
            super()._refuse_closed(exchange)

    def _refuse_at_the_door(self, exchange: Exchange, arrival: Arrival) -> None:
        self._door.drain.refuse(self._parts.clock())
        if exchange.route.kind in ANSWERED_HERE:
            refuse_by_headers(arrival, exchange.route.kind, self._limits(exchange.route.kind))
            return
        refuse_length(arrival, self._door.body_limits.max_bytes)
        exchange.body_bytes = arrival.content_length or 0
        if exchange.would_be is None and exchange.route.kind is not Kind.OPENED:
            exchange.would_be = _told_by_headers(arrival, exchange.route.kind, self._told_limits)

    def _open_bill(self, exchange: Exchange, bill: Bill) -> None:
        """What would be refused counts for nothing."""
        try:
            super()._open_bill(exchange, bill)
        except GatewayError as refusal:
            exchange.would_be = exchange.would_be or WouldBe(refusal)

    async def _receive(
        self, exchange: Exchange, arrival: Arrival, receive: Receive, body_hold: BodyHold
    ) -> bytes | bytearray:
        if exchange.route.kind in ANSWERED_HERE:
            return await super()._receive(exchange, arrival, receive, body_hold)
        body = await receive_body(receive, arrival.content_length, self._door.body_limits, body_hold)
        exchange.received = self._parts.clock()
        if exchange.would_be is None and len(body) > self._told_limits.max_bytes:
            exchange.would_be = WouldBe(too_large(len(body), self._told_limits.max_bytes))
        return body


def _told_by_headers(arrival: Arrival, kind: Kind, limits: BodyLimits) -> WouldBe | None:
    """None where the body has to be read for it. What is compressed would be, in earnest; here it stays as it is."""
    try:
        refuse_by_headers(arrival, kind, limits)
    except GatewayError as refusal:
        return WouldBe(refusal)
    return WouldBe(is_undecided=True) if arrival.is_coded else None
