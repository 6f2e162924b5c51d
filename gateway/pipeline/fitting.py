"""Whom a request fits: the server that was picked for it, or another one that serves its model too.

Servers may hold the same model with different contexts and caches. A request is refused for good only where none of
them could ever serve it.
"""

from collections.abc import Callable, Hashable
from http.client import BAD_REQUEST

from gateway.domain.cost import RequestCost
from gateway.domain.errors import GatewayError
from gateway.domain.never_fits import Misfit
from gateway.domain.request import VisionRequest
from gateway.pipeline.backend import Backend
from gateway.pipeline.exchange import Exchange, Parts
from gateway.pipeline.fallback import take_back
from gateway.pipeline.ladder import meet_pressure
from gateway.pipeline.planning import Plan
from gateway.pipeline.pricing import misfit_of, price
from gateway.pipeline.routing import best_of

Priced = tuple[VisionRequest, Plan, RequestCost, Misfit | None]
"""A request as it is to be served, what is to be done for that, its cost, and why it never fits, if so."""

_BY_SERVER = (
    "request", "relieved", "model", "plans", "trimmed", "trimmed_tokens", "trim_reason", "limits", "cost",
)  # fmt: skip


async def price_where_it_fits(
    parts: Parts, exchange: Exchange, request: VisionRequest, *, is_asking: bool = False
) -> Priced:
    """At the exchange's server, or at the one that it is moved to. Where it fits none, as the first has it.

    Raises GatewayError 400 for what the first could not read, 429 where the ladder has no place for it.
    """
    asked = request
    if parts.relief is not None:
        request = await meet_pressure(parts, exchange, request, is_asking=is_asking)
    fallback = exchange.fallback
    try:
        priced = await _priced(parts, exchange, request)
    except GatewayError as error:
        # What a fallback has against the request is no word of the model that was asked for.
        if fallback is None or error.status != BAD_REQUEST:
            raise
    else:
        if priced[-1] is None:
            return priced
    if fallback is not None:
        take_back(exchange, fallback)
        priced = await _pressed(parts, exchange, asked, is_asking=is_asking)
    if priced[-1] is None or len(parts.backends) == 1:
        return priced
    return await _priced_elsewhere(parts, exchange, asked, priced, is_asking=is_asking)


async def _priced(parts: Parts, exchange: Exchange, request: VisionRequest) -> Priced:
    plan, cost = await price(parts, exchange, request)
    return request, plan, cost, misfit_of(exchange, cost)


async def _pressed(parts: Parts, exchange: Exchange, request: VisionRequest, *, is_asking: bool) -> Priced:
    """For the model that was asked for, at the pressure of the exchange's server. Raises GatewayError."""
    request = await meet_pressure(parts, exchange, request, is_asking=is_asking, may_fall_back=False)
    return await _priced(parts, exchange, request)


async def _priced_elsewhere(
    parts: Parts, exchange: Exchange, asked: VisionRequest, first: Priced, *, is_asking: bool
) -> Priced:
    """Of servers with the limits of one that it does not fit none is asked. Raises GatewayError 429 where it fits only
    those that are pressed too much: not now is another answer than never.
    """
    go_back, now = _way_back(exchange), parts.clock()
    refused: GatewayError | None = None
    unfit = [_judged_by(exchange.backend, asked)]
    left = [
        backend
        for backend in parts.backends
        if backend is not exchange.came_from and backend.models.lists(asked.model) and backend.is_healthy(now)
    ]
    while left := [backend for backend in left if _judged_by(backend, asked) not in unfit]:
        exchange.goes_to(best_of(left, exchange, asked, now))
        left.remove(exchange.backend)
        priced = await _priced_if_it_fits(parts, exchange, asked)
        if priced is None:
            unfit.append(_judged_by(exchange.backend, asked))
            continue
        if parts.relief is None:
            return priced
        try:
            # One place is promised to it, by the first that refuses it.
            return await _pressed(parts, exchange, asked, is_asking=is_asking or refused is not None)
        except GatewayError as refusal:
            if refused is None:
                refused, go_back = refusal, _way_back(exchange)
    go_back()
    if refused is not None:
        raise refused
    return first


async def _priced_if_it_fits(parts: Parts, exchange: Exchange, asked: VisionRequest) -> Priced | None:
    """As if nothing pressed: whether it ever fits is no matter of the hour."""
    exchange.request, exchange.relieved = asked, None
    try:
        priced = await _priced(parts, exchange, asked)
    except GatewayError as error:
        if error.status != BAD_REQUEST:
            raise
        return None
    return priced if priced[-1] is None else None


def _judged_by(backend: Backend, asked: VisionRequest) -> Hashable:
    """What decides whether a request fits a server."""
    model = backend.models.served(asked.model)
    return backend.models.limits(model), backend.models.engine.image_limit.value, model.image_cap.most


def _way_back(exchange: Exchange) -> Callable[[], None]:
    """To where it is now, and what it has there."""
    backend, values = exchange.backend, {name: getattr(exchange, name) for name in _BY_SERVER}

    def go() -> None:
        exchange.goes_to(backend)
        for name, value in values.items():
            setattr(exchange, name, value)

    return go
