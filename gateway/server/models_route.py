"""`GET /v1/models` and `/v1/models/{id}`: the upstream's own list, and one entry of it, which vLLM does not serve."""

from http import HTTPStatus

import msgspec

from gateway.domain.errors import Code, GatewayError
from gateway.pipeline import settle
from gateway.pipeline.exchange import Exchange, Parts
from gateway.pipeline.story import as_gateway_error
from gateway.server.answers import Send, send_whole
from gateway.upstream.errors import UpstreamError
from gateway.upstream.listing import Listing, Listings

_MOST_NAMED = 20


class _Entry(msgspec.Struct):
    id: str


class _List(msgspec.Struct):
    data: list[msgspec.Raw]


_list_decoder = msgspec.json.Decoder(_List)
_entry_decoder = msgspec.json.Decoder(_Entry)


class ModelsRoute:
    """Answers both. A list is read once, however many ask for one of its entries."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._listings = Listings(parts.backends[0].upstream, parts.clock)
        self._read: tuple[Listing, dict[str, msgspec.Raw]] | None = None

    async def answer(self, exchange: Exchange, send: Send) -> None:
        """Raises GatewayError 404 for an id that the upstream does not list, 502 to 504 where it gives no list."""
        try:
            listing = await self._listings.get(exchange.headers, exchange.request_id)
        except UpstreamError as error:
            raise as_gateway_error(error, exchange.models.engine) from error
        exchange.upstream_status = listing.status
        headers, body = listing.headers, listing.body
        model_id = exchange.route.model_id
        if model_id is not None and listing.status == HTTPStatus.OK:
            body = _entry(self._entries(listing), model_id)
            headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        settle.answered(self._parts, exchange)
        try:
            await send_whole(listing.status, headers, body, exchange, send)
        finally:
            settle.book(self._parts, exchange)

    def _entries(self, listing: Listing) -> dict[str, msgspec.Raw]:
        if self._read is None or self._read[0] is not listing:
            self._read = listing, _read_entries(listing.body)
        return self._read[1]


def _read_entries(body: bytes) -> dict[str, msgspec.Raw]:
    try:
        return {_entry_decoder.decode(entry).id: entry for entry in _list_decoder.decode(body).data}
    except (msgspec.DecodeError, RecursionError) as error:
        raise GatewayError(Code.UPSTREAM_ERROR, f"The model server's list of models is unreadable: {error}") from None


def _entry(entries: dict[str, msgspec.Raw], model_id: str) -> bytes:
    if model_id in entries:
        return bytes(entries[model_id])
    listed = ", ".join(name[:200] for name in sorted(entries)[:_MOST_NAMED]) or "none"
    more = f" and {len(entries) - _MOST_NAMED} more" if len(entries) > _MOST_NAMED else ""
    raise GatewayError(Code.MODEL_NOT_FOUND, f"There is no model {model_id[:200]!r}; there are: {listed}{more}.")
