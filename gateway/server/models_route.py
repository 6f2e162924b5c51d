"""`GET /v1/models` and `/v1/models/{id}`: the upstream's own list, and one entry of it, which vLLM does not serve.

Of several upstreams, what those list that are up, each name once. A tenant gets to see those that it may ask for.
"""

import asyncio
from collections.abc import Sequence
from http import HTTPStatus

import msgspec

from gateway.domain.errors import Code, GatewayError, unknown_model
from gateway.pipeline import settle
from gateway.pipeline.backend import Backend
from gateway.pipeline.exchange import Exchange, Parts
from gateway.pipeline.story import as_gateway_error
from gateway.server.answers import Send, send_whole
from gateway.upstream.errors import UpstreamError
from gateway.upstream.listing import Listing, Listings


class _Entry(msgspec.Struct):
    id: str


class _List(msgspec.Struct):
    data: list[msgspec.Raw]
    object: str = "list"


_Entries = dict[str, msgspec.Raw]
_list_decoder = msgspec.json.Decoder(_List)
_entry_decoder = msgspec.json.Decoder(_Entry)


class ModelsRoute:
    """Answers both. Lists are read once, however many ask for one of their entries."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._listings = [(backend, Listings(backend.upstream, parts.clock)) for backend in parts.backends]
        self._read: tuple[Sequence[Listing], _Entries] = (), {}

    async def answer(self, exchange: Exchange, send: Send) -> None:
        """Raises GatewayError 404 for an id that no upstream lists, 502 to 504 where none gives a list."""
        lists = await self._lists(exchange)
        exchange.upstream_status = lists[0].status
        headers, body = lists[0].headers, lists[0].body
        model_id = exchange.route.model_id
        tenant = exchange.tenant
        is_part = model_id is not None or tenant.models is not None
        if lists[0].status == HTTPStatus.OK and (is_part or len(lists) > 1):
            entries = self._entries(lists)
            if tenant.models is not None:
                entries = {name: entry for name, entry in entries.items() if tenant.may_use(name)}
            body = msgspec.json.encode(_List([*entries.values()])) if model_id is None else _entry(entries, model_id)
            headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        settle.answered(self._parts, exchange)
        try:
            await send_whole(lists[0].status, headers, body, exchange, send)
        finally:
            settle.book(self._parts, exchange)

    async def _lists(self, exchange: Exchange) -> Sequence[Listing]:
        """Those that came and are good; else one that says why not. Raises GatewayError where none came."""
        now = self._parts.clock()
        asked = [each for each in self._listings if each[0].is_healthy(now)] or self._listings
        outcomes = await asyncio.gather(*(_list(backend, listings, exchange) for backend, listings in asked))
        lists = [outcome for outcome in outcomes if isinstance(outcome, Listing)]
        failures = [outcome for outcome in outcomes if isinstance(outcome, GatewayError)]
        if not lists:
            raise failures[0]
        return [each for each in lists if each.status == HTTPStatus.OK] or lists[:1]

    def _entries(self, lists: Sequence[Listing]) -> _Entries:
        if [*map(id, lists)] != [*map(id, self._read[0])]:
            self._read = lists, _united(lists)
        return self._read[1]


async def _list(backend: Backend, listings: Listings, exchange: Exchange) -> Listing | GatewayError:
    try:
        return await listings.get(exchange.headers, exchange.request_id)
    except UpstreamError as error:
        return as_gateway_error(error, backend.models.engine)


def _united(lists: Sequence[Listing]) -> _Entries:
    """Each name once, as the first says it. Raises GatewayError where none can be read."""
    entries: _Entries = {}
    unreadable = None
    for each in lists:
        try:
            read = _read_entries(each.body)
        except GatewayError as error:
            unreadable = error
        else:
            entries = entries | {name: entry for name, entry in read.items() if name not in entries}
    if unreadable is not None and not entries:
        raise unreadable
    return entries


def _read_entries(body: bytes) -> _Entries:
    try:
        return {_entry_decoder.decode(entry).id: entry for entry in _list_decoder.decode(body).data}
    except (msgspec.DecodeError, RecursionError) as error:
        raise GatewayError(Code.UPSTREAM_ERROR, f"The model server's list of models is unreadable: {error}") from None


def _entry(entries: _Entries, model_id: str) -> bytes:
    if model_id in entries:
        return bytes(entries[model_id])
    raise unknown_model(model_id, entries)
