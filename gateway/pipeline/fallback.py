"""Another model serves in place of the one that was asked for: a smaller one, be it on the same server or on another.

When that is done is the ladder's affair (ladder.py); here is who serves then, and what changes about the request.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from gateway.domain.request import VisionRequest
from gateway.pipeline.backend import Backend
from gateway.pipeline.exchange import Exchange, Parts
from gateway.pipeline.reading import read_aside
from gateway.pipeline.routing import best_of, utilisation_of
from gateway.wire.model_name import name_model
from gateway.wire.splice import Splice


class Fallback(NamedTuple):
    """The model that serves, and the splice that asks for it; what was asked, and of which server."""

    name: str
    splice: Splice
    asked: VisionRequest
    home: Backend


async def fall_back(parts: Parts, exchange: Exchange, request: VisionRequest) -> VisionRequest:
    """The request for the fallback of its model, and from here on the exchange is of the server that has that: one that
    is well, lists it, has not failed this request, and is less pressed than the present one. The request as it came
    where there is none, or its model has no fallback.
    """
    name = parts.policies.fallbacks.get(exchange.models.served(request.model).name)
    if name is None:
        return request
    now = parts.clock()
    servers = [
        backend
        for backend in parts.backends
        if backend.models.lists(name) and backend.is_healthy(now) and backend is not exchange.came_from
    ]
    return await _swapped(parts, exchange, request, name, servers)


async def _swapped(
    parts: Parts, exchange: Exchange, request: VisionRequest, name: str, servers: Sequence[Backend]
) -> VisionRequest:
    present = utilisation_of(exchange.backend, request)
    # On the same server it is a model that costs less there.
    better = [
        backend for backend in servers if backend is exchange.backend or utilisation_of(backend, request) < present
    ]
    if not better:
        return request
    splice = await read_aside(partial(name_model, name=name), exchange.body)
    exchange.fallback = Fallback(name, splice, request, exchange.backend)
    exchange.request = request._replace(model=name)
    exchange.goes_to(best_of(better, exchange, exchange.request, parts.clock()))
    return exchange.request


def take_back(exchange: Exchange, fallback: Fallback) -> VisionRequest:
    """The request as it came, at the server where it was."""
    exchange.fallback = None
    exchange.request = fallback.asked
    exchange.goes_to(fallback.home)
    return fallback.asked
