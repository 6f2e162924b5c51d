"""Step 1 of the story: the body of a request into one buffer, at a minimum rate, under the byte limits.

The caller has reserved the bytes before the first `receive()`: uvicorn stops reading a socket until then, so an
unreserved body stays in the kernel's buffers and TCP slows its sender down.
"""

import asyncio
import zlib
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from gateway.domain.errors import Code, GatewayError

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]

GRACE_SECONDS = 10.0
_WINDOW_BITS = {b"gzip": 16 + zlib.MAX_WBITS, b"deflate": zlib.MAX_WBITS}
CODINGS = frozenset(_WINDOW_BITS)


class ClientLeftError(Exception):
    """The client closed the connection before its request was complete."""


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """`max_bytes` on the wire, `max_decoded_bytes` after it; `min_bytes_per_second` after a grace of ten seconds
    (0: take your time).
    """

    max_bytes: int
    max_decoded_bytes: int
    min_bytes_per_second: int


async def receive_body(receive: Receive, content_length: int | None, limits: BodyLimits) -> bytes | bytearray:
    """The whole body as it came.

    Raises GatewayError REQUEST_TOO_LARGE (413) and REQUEST_TIMEOUT (408), ClientLeftError when the client goes.
    """
    loop = asyncio.get_running_loop()
    start = loop.time()
    at_bytes = 0
    try:
        async with asyncio.timeout(GRACE_SECONDS if limits.min_bytes_per_second else None) as deadline:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientLeftError
            first = message.get("body", b"")
            if not message.get("more_body", False):
                return _checked(first, limits.max_bytes)
            buffer = bytearray(content_length or 0)
            while True:
                chunk = message.get("body", b"")
                end = at_bytes + len(chunk)
                if end > limits.max_bytes:
                    raise too_large(end, limits.max_bytes)
                buffer[at_bytes:end] = chunk
                at_bytes = end
                if not message.get("more_body", False):
                    return buffer
                if limits.min_bytes_per_second:
                    deadline.reschedule(start + GRACE_SECONDS + at_bytes / limits.min_bytes_per_second)
                # Both names would keep the last chunk alive while the next one is awaited.
                message = chunk = None  # type: ignore[assignment]
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientLeftError
    except TimeoutError:
        raise GatewayError(
            Code.REQUEST_TIMEOUT,
            f"Only {at_bytes} bytes of the body came in {loop.time() - start:.0f} s; the gateway expects at least "
            f"{limits.min_bytes_per_second} bytes per second. Send the request again over a faster connection.",
        ) from None


async def decode_body(body: bytes | bytearray, coding: bytes, max_decoded_bytes: int) -> bytes | bytearray:
    """Undo one of `CODINGS`, in a thread. Raises GatewayError 413 for what becomes too long, 400 for damaged data."""
    return await asyncio.to_thread(_inflate, body, coding, max_decoded_bytes)


def _inflate(body: bytes | bytearray, coding: bytes, max_decoded_bytes: int) -> bytes:
    decoder = zlib.decompressobj(_WINDOW_BITS[coding])
    try:
        decoded = decoder.decompress(body, max_decoded_bytes + 1)
    except zlib.error as error:
        raise GatewayError(Code.INVALID_REQUEST, f"The body is not valid {coding.decode()}: {error}.") from None
    if len(decoded) > max_decoded_bytes:
        raise too_large(len(decoded), max_decoded_bytes)
    if not decoder.eof or decoder.unused_data:
        raise GatewayError(
            Code.INVALID_REQUEST, f"The body is not one complete {coding.decode()} stream: cut short or with a tail."
        )
    return decoded


def too_large(body_bytes: int, max_bytes: int) -> GatewayError:
    return GatewayError(
        Code.REQUEST_TOO_LARGE,
        f"The request body has at least {body_bytes} bytes; the limit is {max_bytes}. Send smaller or fewer images: "
        "pictures of earlier turns can be left out, and the model sees nothing beyond its own resolution.",
    )


def _checked(body: bytes, max_bytes: int) -> bytes:
    if len(body) > max_bytes:
        raise too_large(len(body), max_bytes)
    return body
