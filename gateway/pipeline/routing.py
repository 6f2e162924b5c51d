"""Which server a request goes to: how each stands just now, for domain/routing.py to pick from."""

from hashlib import blake2b

from gateway.domain.request import VisionRequest
from gateway.domain.routing import Standing, pick, utilisation
from gateway.pipeline.backend import Backend
from gateway.pipeline.exchange import Exchange, Parts

# Files of one length that begin and end alike are one file, for all that a wrong guess could cost.
_COMPARED_BYTES = 4096


def route(parts: Parts, exchange: Exchange, request: VisionRequest) -> None:
    """Before the request is priced. With one server there is nothing to choose."""
    backends = parts.backends
    if len(backends) > 1:
        now = parts.clock()
        newcomer = exchange.newcomer(exchange.body_bytes)
        standings = [
            standing_of(backend, request.model, now)._replace(keeps_place=backend.gate.is_expected(newcomer))
            for backend in backends
        ]
        image = first_image(exchange.body, request) if request.images else None
        exchange.goes_to(backends[pick(standings, image, exchange.request_id.encode())])


def standing_of(backend: Backend, model: str | None, now: float) -> Standing:
    statistics = backend.gate.statistics()
    used = utilisation(statistics.holdings, statistics.admission.queue_depth)
    # Who comes while nothing is sent has to wait, however little is held.
    if backend.follower.pause_seconds:
        used = max(1.0, used)
    return Standing(backend.name, backend.models.lists(model), backend.is_healthy(now), used)


def first_image(body: bytes | bytearray, request: VisionRequest) -> bytes:
    """Bytes that say which one it is."""
    start, end = request.images[0].url
    digest = blake2b(b"%d" % (end - start), digest_size=16)
    digest.update(body[start : min(end, start + _COMPARED_BYTES)])
    digest.update(body[max(start, end - _COMPARED_BYTES) : end])
    return digest.digest()
