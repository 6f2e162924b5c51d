"""Step 10 of the story: answers go out as they come; refusals go out whole.

Whoever streams the answer owns the exchange: `relay` sees its first event and says how it ended.
"""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from gateway.domain.errors import Code, GatewayError
from gateway.domain.outcome import Reason
from gateway.pipeline import settle
from gateway.pipeline.aliases import served_instead
from gateway.pipeline.exchange import Exchange, Parts
from gateway.pipeline.ladder import declare_rungs
from gateway.pipeline.pricing import visual_bounds
from gateway.pipeline.story import as_gateway_error
from gateway.server.door import Arrival
from gateway.server.receive import Receive
from gateway.upstream.client import Answer
from gateway.upstream.errors import UpstreamError
from gateway.wire.declare import pressure_header, shadow_headers, success_headers
from gateway.wire.errors import error_headers, error_status
from gateway.wire.quota import quota_headers
from gateway.wire.routes import Kind
from gateway.wire.voices import voice_of

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

# What a refused client still sends is read up to here, so that it sees the answer instead of a reset.
_MOST_DRAINED_BYTES = 64 << 20
_KERNEL_BUFFER_BYTES = 64 << 10
_DRAIN_SECONDS = 10.0
_PIECE_BYTES = 64 << 10


async def relay(parts: Parts, exchange: Exchange, answer: Answer, send: Send) -> None:
    """Pass the upstream's answer on, piece by piece, and settle the exchange at its end.

    A break after the first byte becomes an error event inside a stream, and so does an end without the last event;
    any other answer is cut off, because a client must not take half an answer for a whole one: returning with it
    unfinished makes the server close the connection.
    """
    usage_filter = exchange.usage_filter
    passed_on = answer.headers if usage_filter is None else _without_length(answer.headers)
    headers = [*passed_on, *_declared(parts, exchange)]
    exchange.is_answering = True
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    chunk = b""
    try:
        while chunk := await answer.read():
            settle.chunk_passed(parts, exchange, chunk)
            if usage_filter is not None:
                chunk = usage_filter.feed(chunk)
            if answer.is_complete:
                break
            if chunk:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
                chunk = b""
        settle.refuse_half_a_stream(exchange)
    except UpstreamError as error:
        settle.upstream_broke(parts, exchange)
        if exchange.observer is not None:
            event = voice_of(exchange.path).last_event(
                as_gateway_error(error, exchange.models.engine), is_at_border=exchange.observer.is_at_border
            )
            await send({"type": "http.response.body", "body": chunk + _kept_back(exchange) + event})
        elif exchange.is_kept_alive:
            await send({"type": "http.response.body", "body": b""})  # its last event tells as much as has come
    else:
        settle.answered(parts, exchange)
        try:
            await send({"type": "http.response.body", "body": chunk + _kept_back(exchange)})
        finally:
            settle.book(parts, exchange)


def _without_length(headers: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """For a stream out of which an event is taken."""
    return [pair for pair in headers if pair[0] != b"content-length"]


def _kept_back(exchange: Exchange) -> bytes:
    return b"" if exchange.usage_filter is None else exchange.usage_filter.flush()


def _declared(parts: Parts, exchange: Exchange) -> list[tuple[bytes, bytes]]:
    """The headers of a success; an error of the upstream gets the id, and what shadow mode has to say."""
    ids = [(b"x-request-id", echoed_id(exchange))]
    if (quota := exchange.tenant.quota) is not None:
        ids += quota_headers(quota.levels(parts.clock()))
    if (would_be := exchange.would_be) is not None:
        ids += shadow_headers(
            would_be.fate,
            would_be.refusal,
            would_be.wait_seconds,
            plans=would_be.plans,
            trimmed=would_be.trimmed,
            rungs=would_be.rungs,
            overload_status=parts.policies.overload_status,
        )
    if exchange.cost is None or exchange.upstream_status is None or exchange.upstream_status >= 400:
        return ids
    assert exchange.model is not None, "it has a price"
    return ids + success_headers(
        prompt_tokens=exchange.cost.prompt_tokens.expected,
        visual_tokens=exchange.cost.visual_tokens,
        queue_seconds=exchange.queue_seconds,
        plans=exchange.plans,
        trimmed=exchange.trimmed,
        encoded_anew=exchange.encoded_anew,
        rungs=declare_rungs(exchange),
        served=served_instead(exchange) if exchange.alias or exchange.fallback else None,
        bounds=visual_bounds(exchange.model, exchange.cost),
        media_tokens=exchange.cost.media_tokens,
    )


async def send_whole(
    status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes, exchange: Exchange, send: Send
) -> None:
    """An answer that is already there to its last byte; goes out in pieces, for the server copies what it must keep."""
    with_id = [*headers, (b"x-request-id", echoed_id(exchange))]
    exchange.is_answering = True
    await send({"type": "http.response.start", "status": status, "headers": with_id})
    last = max(0, len(body) - 1) // _PIECE_BYTES * _PIECE_BYTES
    for start in range(0, last, _PIECE_BYTES):
        await send({"type": "http.response.body", "body": body[start : start + _PIECE_BYTES], "more_body": True})
    await send({"type": "http.response.body", "body": body[last:]})


async def send_refusal(
    error: GatewayError,
    exchange: Exchange,
    arrival: Arrival,
    receive: Receive,
    send: Send,
    overload_status: int | None,
) -> None:
    """One small answer. A large upload is read to its end first: closing early makes HTTP clients lose the answer."""
    is_read = exchange.received is not None or await _drained(error, arrival, receive)
    body = voice_of(exchange.path).body(error)
    headers = [*error_headers(error, body, random.random()), *_about(exchange)]  # noqa: S311 - spreads clients only
    if not is_read or error.reason is Reason.DRAINING:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": error_status(error, overload_status), "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _drained(error: GatewayError, arrival: Arrival, receive: Receive) -> bool:
    """Read and drop what is still on its way; False where the connection must be closed with the body unread.

    What fits the kernel's buffer needs no reading: the server drops it by itself.
    """
    length = arrival.content_length
    # Who was to wait for a word before sending may send the body or may not: nobody could tell what comes next.
    if arrival.expects_continue or error.code is Code.REQUEST_TIMEOUT:
        return False
    if length is not None and length <= _KERNEL_BUFFER_BYTES:
        return True
    if length is not None and length > _MOST_DRAINED_BYTES:
        return False
    left_bytes = _MOST_DRAINED_BYTES
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_DRAIN_SECONDS):
            while left_bytes > 0:
                message = await receive()
                if message["type"] == "http.disconnect" or not message.get("more_body", False):
                    return True
                left_bytes -= len(message.get("body", b""))
    return False


def _about(exchange: Exchange) -> list[tuple[bytes, bytes]]:
    headers = [(b"x-request-id", echoed_id(exchange)), *pressure_header(declare_rungs(exchange))]
    if (quota := exchange.tenant.quota) is not None:
        headers += quota_headers(quota.levels(exchange.ended))
    if exchange.route.kind is Kind.WRONG_METHOD:
        headers.append((b"allow", ", ".join(exchange.route.methods).encode()))
    return headers


def echoed_id(exchange: Exchange) -> bytes:
    """The client's own id where it sent a safe one, else ours."""
    return (exchange.client_request_id or exchange.request_id).encode()
