"""What the end of a request says about its server, and the one retry at another server.

Sent again is only what no byte of an answer has come back for: no connection could be made, it broke before the head
of an answer, or the head was 500 or 502, or said that there is no room (429, 503). Generating twice harms nobody, since
the client sees one of the answers only. Exactly once, because a request may itself be what breaks servers: so it meets
two at most. What was silent for too long has had its time, and is not sent again.

Where a second server is broken by it too, the request is to blame, and neither is held to be broken. One that is busy
says nothing of the request.
"""

from collections.abc import Sequence
from math import inf

from gateway.domain.errors import Code, GatewayError
from gateway.domain.outcome import Ending, Reason
from gateway.domain.request import VisionRequest
from gateway.domain.routing import BUSY_UTILISATION
from gateway.pipeline.back_pressure import BACK_PRESSURE, is_the_clients_own, retry_after_seconds, turned_away
from gateway.pipeline.backend import Backend
from gateway.pipeline.exchange import Exchange, Parts
from gateway.pipeline.routing import picked, standing_of
from gateway.upstream.client import Answer
from gateway.upstream.errors import UpstreamBrokenError, UpstreamDownError

_BROKEN = frozenset({500, 502})
_SOON_SECONDS = 1.0

Failure = Answer | GatewayError
"""An answer of which only the head is read, or why there is none."""


def worked(exchange: Exchange, now: float) -> None:
    """An answer has begun that does not say that the server is broken or busy."""
    exchange.backend.breaker.succeeded(now)
    failed_alone(exchange, now)


def failed_alone(exchange: Exchange, now: float) -> None:
    """Of the first server where there were two: the other one has not failed at the same request."""
    if exchange.doubted is not None:
        exchange.doubted.breaker.failed(now)
        exchange.doubted = None


def failed(exchange: Exchange, now: float) -> None:
    """No answer, a broken one, or one that says that the server is broken."""
    if exchange.doubted is None:
        exchange.backend.breaker.failed(now)


def ended_unasked(exchange: Exchange, now: float) -> None:
    """Of one that was to be sent to a second server and never was: then there is only what the first one said."""
    if exchange.sent_at is None:
        failed_alone(exchange, now)


def go_elsewhere(parts: Parts, exchange: Exchange, request: VisionRequest, failure: Failure) -> bool:
    """Whether another server is to try: then nothing is held any more, and the exchange is that server's."""
    if len(parts.backends) == 1 or exchange.came_from is not None or request.previous_id is not None:
        return False  # the history is at one server alone
    if not _may_be_sent_again(exchange, failure):
        return False
    is_busy = isinstance(failure, Answer) and failure.status in BACK_PRESSURE
    most_utilised, now = BUSY_UTILISATION if is_busy else inf, parts.clock()
    other = another(parts.backends, exchange, request, now, most_utilised)
    if other is None:
        return False
    if isinstance(failure, Answer) and is_busy:
        turned_away(exchange, failure.status, retry_after_seconds(failure.headers))
    elif isinstance(failure, Answer):
        exchange.doubted = exchange.backend
    elif exchange.sent_at is not None:
        failed(exchange, now)
    _give_back(exchange, Ending.DROPPED if is_busy else Ending.IGNORED, now)
    parts.metrics.sent_elsewhere(exchange.backend.name)
    exchange.came_from = exchange.backend
    exchange.goes_to(other)
    exchange.request, exchange.fallback = request, None
    return True


def as_error(failure: Failure) -> GatewayError:
    """What the client is told of the first failure where the other server could never serve the request."""
    if isinstance(failure, GatewayError):
        return failure
    if failure.status in BACK_PRESSURE:
        return GatewayError(
            Code.SERVER_IS_OVERLOADED,
            f"The model server has no room just now: it answered {failure.status}.",
            reason=Reason.UPSTREAM_BACKPRESSURE,
            retry_after_seconds=retry_after_seconds(failure.headers) or _SOON_SECONDS,
        )
    return GatewayError(Code.UPSTREAM_ERROR, f"The model server is broken: it answered {failure.status}.")


def _may_be_sent_again(exchange: Exchange, failure: Failure) -> bool:
    if isinstance(failure, GatewayError):
        return isinstance(failure.__cause__, UpstreamDownError | UpstreamBrokenError)
    if failure.status == 429 and is_the_clients_own(exchange):
        return False
    return failure.status in _BROKEN or failure.status in BACK_PRESSURE


def another(
    backends: Sequence[Backend], exchange: Exchange, request: VisionRequest, now: float, most_utilised: float = inf
) -> Backend | None:
    """A healthy server that serves the model too, and is less utilised than that."""
    others = [backend for backend in backends if backend is not exchange.backend]
    standings = [standing_of(backend, request, now) for backend in others]
    index = picked(standings, exchange, request)
    standing = standings[index]
    # Who does not list it is asked only where nobody does, or may yet turn out to.
    serves_it = standing.lists or all(backend.models.lists(request.model) is False for backend in backends)
    has_room = standing.utilisation < most_utilised
    return others[index] if serves_it and standing.is_healthy and has_room else None


def _give_back(exchange: Exchange, ending: Ending, now: float) -> None:
    exchange.backend.unseen.pop(exchange.request_id, None)
    if exchange.lease is not None:
        exchange.waited_seconds += exchange.lease.queue_seconds
        exchange.lease.close(ending)
    elif exchange.queued is not None:
        exchange.waited_seconds += now - exchange.queued
    exchange.lease = exchange.queued = exchange.sent_at = None
    exchange.sent_images = exchange.encoded_anew = ()
