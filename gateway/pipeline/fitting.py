"""Whom a request fits: the server that was picked for it, or another one that serves its model too.

Servers may hold the same model with different contexts and caches. A request is refused for good only where none of
them could ever serve it.
"""

from gateway.domain.cost import RequestCost
from gateway.domain.never_fits import Misfit
from gateway.domain.request import VisionRequest
from gateway.pipeline.exchange import Exchange, Parts
from gateway.pipeline.fallback import take_back
from gateway.pipeline.ladder import meet_pressure
from gateway.pipeline.planning import Plan
from gateway.pipeline.pricing import misfit_of, price

Priced = tuple[VisionRequest, Plan, RequestCost, Misfit | None]
"""A request as it is to be served, what is to be done for that, its cost, and why it never fits, if so."""


async def price_where_it_fits(
    parts: Parts, exchange: Exchange, request: VisionRequest, *, is_asking: bool = False
) -> Priced:
    """At the exchange's server, or at the one that it is moved to. Where it fits none, as the first has it.

    Raises GatewayError 400 for what none could read, 429 where the ladder has no place for it.
    """
    if parts.relief is not None:
        request = await meet_pressure(parts, exchange, request, is_asking=is_asking)
    priced = await _priced(parts, exchange, request)
    if priced[-1] is None:
        return priced
    if exchange.fallback is not None:
        request = take_back(exchange, exchange.fallback)
        request = await meet_pressure(parts, exchange, request, is_asking=is_asking, may_fall_back=False)
        priced = await _priced(parts, exchange, request)
    return (
        priced if priced[-1] is None or len(parts.backends) == 1 else await _priced_elsewhere(parts, exchange, request)
    )


async def _priced(parts: Parts, exchange: Exchange, request: VisionRequest) -> Priced:
    plan, cost = await price(parts, exchange, request)
    return request, plan, cost, misfit_of(exchange, cost)


async def _priced_elsewhere(parts: Parts, exchange: Exchange, request: VisionRequest) -> Priced:
    first, tried, now = exchange.backend, {exchange.backend.name}, parts.clock()
    if exchange.came_from is not None:
        tried.add(exchange.came_from.name)
    for backend in parts.backends:
        if backend.name not in tried and backend.models.lists(request.model) and backend.is_healthy(now):
            exchange.goes_to(backend)
            priced = await _priced(parts, exchange, request)
            if priced[-1] is None:
                return priced
    exchange.goes_to(first)
    return await _priced(parts, exchange, request)
