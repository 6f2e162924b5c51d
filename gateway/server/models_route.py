"""`GET /v1/models` and `/v1/models/{id}`: what the servers list, and one entry of it, which vLLM does not serve.

Of several upstreams, what those list that are up, each name once; aliases beside their models; for a tenant only those
that it may ask for.
"""

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from typing import NamedTuple

from gateway.domain.errors import GatewayError, unknown_model
from gateway.domain.tenancy import Tenant
from gateway.pipeline import settle
from gateway.pipeline.backend import Backend
from gateway.pipeline.exchange import Exchange, Parts
from gateway.pipeline.model_cards import Listed, list_cards
from gateway.pipeline.story import as_gateway_error
from gateway.server.answers import Send, send_whole
from gateway.upstream.errors import UpstreamDownError, UpstreamError
from gateway.upstream.listing import Listing, Listings
from gateway.wire.model_cards import Card, read_cards, write_list

_Lists = list[tuple[Backend, Listing]]


class _Read(NamedTuple):
    """What was made of these lists; they are kept, that no others can have their ids."""

    lists: _Lists
    names: Mapping[str, Listed]
    whole: bytes


class ModelsRoute:
    """Answers both. Lists are read once, however many ask for one of their entries. `max_body_bytes` are those of a
    request's body.
    """

    def __init__(self, parts: Parts, max_body_bytes: int) -> None:
        self._parts = parts
        self._max_body_bytes = max_body_bytes
        self._listings = [(backend, Listings(backend.upstream, parts.clock)) for backend in parts.backends]
        self._read = _Read([], {}, b"")

    async def answer(self, exchange: Exchange, send: Send) -> None:
        """Raises GatewayError 404 for an id that no upstream lists, 502 to 504 where none gives a list."""
        lists = await self._lists(exchange)
        first = lists[0][1]
        exchange.upstream_status, headers, body = first.status, first.headers, first.body
        if first.status == HTTPStatus.OK:
            body = self._body(self._united(lists), exchange.tenant, exchange.route.model_id)
            headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        settle.answered(self._parts, exchange)
        try:
            await send_whole(first.status, headers, body, exchange, send)
        finally:
            settle.book(self._parts, exchange)

    async def _lists(self, exchange: Exchange) -> _Lists:
        """Those that came and are good; else one that says why not. Raises GatewayError where none came."""
        now = self._parts.clock()
        asked = [each for each in self._listings if each[0].is_healthy(now)] or self._listings
        outcomes = await asyncio.gather(*(_list(backend, listings, exchange) for backend, listings in asked))
        lists, failures = [], []
        for (backend, _), outcome in zip(asked, outcomes, strict=True):
            if isinstance(outcome, Listing):
                lists.append((backend, outcome))
            else:
                failures.append(outcome)
        if not lists:
            raise failures[0]
        return [each for each in lists if each[1].status == HTTPStatus.OK] or lists[:1]

    def _united(self, lists: _Lists) -> _Read:
        if [id(each) for _, each in lists] != [id(each) for _, each in self._read.lists]:
            names = list_cards(self._parts.policies, _read_all(lists), self._max_body_bytes)
            self._read = _Read(lists, names, write_list(each.entry for each in names.values()))
        return self._read

    def _body(self, read: _Read, tenant: Tenant, model_id: str | None) -> bytes:
        """Raises GatewayError 404, or 503 where a server that is away has that model."""
        names = read.names
        if tenant.models is not None:
            names = {name: each for name, each in names.items() if tenant.may_use(each.served)}
        if model_id is None:
            return read.whole if tenant.models is None else write_list(each.entry for each in names.values())
        if model_id in names:
            return bytes(names[model_id].entry)
        served = self._parts.policies.aliases.get(model_id, model_id)
        away = self._away(read, served) if tenant.may_use(served) else None
        raise unknown_model(model_id, names) if away is None else away

    def _away(self, read: _Read, served: str) -> GatewayError | None:
        here = [backend for backend, _ in read.lists]
        for backend in self._parts.backends:
            if backend not in here and backend.models.lists(served):
                return as_gateway_error(UpstreamDownError("it gave no list of its models"), backend.models.engine)
        return None


async def _list(backend: Backend, listings: Listings, exchange: Exchange) -> Listing | GatewayError:
    try:
        return await listings.get(exchange.headers, exchange.request_id)
    except UpstreamError as error:
        return as_gateway_error(error, backend.models.engine)


def _read_all(lists: _Lists) -> list[tuple[Backend, Mapping[str, Card]]]:
    """Those that can be read. Raises GatewayError where none can."""
    read: list[tuple[Backend, Mapping[str, Card]]] = []
    unreadable = None
    for backend, each in lists:
        try:
            read.append((backend, read_cards(each.body)))
        except GatewayError as error:
            unreadable = error
    if unreadable is not None and not read:
        raise unreadable
    return read
