"""Which server a request goes to: how each stands just now, for domain/routing.py to pick from."""

from collections.abc import Sequence
from hashlib import blake2b

from gateway.domain.errors import unknown_model
from gateway.domain.request import VisionRequest
from gateway.domain.routing import Standing, pick
from gateway.pipeline.backend import Backend
from gateway.pipeline.exchange import Exchange, Parts
from gateway.pipeline.naming import those_that_know

# Files of one length that begin and end alike are one file, for all that a wrong guess could cost.
_COMPARED_BYTES = 4096


def route(parts: Parts, exchange: Exchange, request: VisionRequest) -> None:
    """Before the request is priced; with one server there is nothing to choose. Whatever refuses it from now on counts
    for its model. Raises GatewayError 404 where its tenant may not ask for that.
    """
    if len(parts.backends) > 1:
        backends = those_that_know(parts.backends, exchange, request) if request.images else parts.backends
        exchange.goes_to(best_of(backends, exchange, request, parts.clock()))
    exchange.model = exchange.models.served(request.model)
    if exchange.tenant.models is not None:
        refuse_model(parts, exchange, request.model or "")


def refuse_model(parts: Parts, exchange: Exchange, name: str) -> None:
    """For a tenant, models that it may not ask for are not there: it is told no more of them than of those that are
    not. It has to name one, for what a server takes otherwise is the server's affair. Raises GatewayError 404.
    """
    tenant = exchange.tenant
    if not tenant.may_use(name):
        listed = {each for backend in parts.backends for each in backend.models.names if tenant.may_use(each)}
        raise unknown_model(name, listed, param="model")


def best_of(backends: Sequence[Backend], exchange: Exchange, request: VisionRequest, now: float) -> Backend:
    newcomer = exchange.newcomer()
    standings = [
        standing_of(backend, request, now)._replace(keeps_place=backend.gate.is_expected(newcomer))
        for backend in backends
    ]
    return backends[picked(standings, exchange, request)]


def picked(standings: Sequence[Standing], exchange: Exchange, request: VisionRequest) -> int:
    image = first_image(exchange.body, request) if request.images else None
    return pick(standings, image, exchange.request_id.encode())


def standing_of(backend: Backend, request: VisionRequest, now: float) -> Standing:
    used = utilisation_of(backend, request)
    return Standing(backend.name, backend.models.lists(request.model), backend.is_healthy(now), used)


def utilisation_of(backend: Backend, request: VisionRequest) -> float:
    used = backend.gate.utilisation(on_images=bool(request.images))
    # Who comes while nothing is sent has to wait, however little is held.
    return max(1.0, used) if backend.follower.pause_seconds else used


def first_image(body: bytes | bytearray, request: VisionRequest) -> bytes:
    """Bytes that say which one it is. One with a name is the same whether it comes along or not."""
    uuid, (start, end) = request.images[0].uuid, request.images[0].url
    if uuid is not None:
        return blake2b(uuid.encode(), digest_size=16).digest()
    digest = blake2b(b"%d" % (end - start), digest_size=16)
    digest.update(body[start : min(end, start + _COMPARED_BYTES)])
    digest.update(body[max(start, end - _COMPARED_BYTES) : end])
    return digest.digest()
