"""Step 1 of the story: the body of a request into one buffer, at a minimum rate, under the byte limits.

There is room for the bytes before `receive` asks for them. Uvicorn reads a socket ahead by little (64 KiB and one read)
until then, so what there is no room for stays in the kernel's buffers and TCP slows its sender down.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, Protocol

from gateway.domain.errors import Code, GatewayError

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]

GRACE_SECONDS = 10.0
# A body that falls behind this loses the room that it has not yet filled.
FAST_GRACE_SECONDS = 0.5
FAST_BYTES_PER_SECOND = 1 << 20


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


class Room(Protocol):
    """Where a body goes: what may be asked of the client next, and what to do to ask for more."""

    @property
    def is_ahead(self) -> bool: ...

    def take_at_once(self, byte_count: int) -> bool: ...

    async def begin(self, *, is_here: bool) -> None: ...

    def has_room(self, come_bytes: int) -> bool: ...

    async def grow(self, come_bytes: int, *, is_fast: bool) -> None: ...

    def fall_back(self, come_bytes: int) -> None: ...

    async def cover(self, byte_count: int) -> None: ...


async def receive_body(
    receive: Receive, content_length: int | None, limits: BodyLimits, room: Room
) -> bytes | bytearray:
    """The whole body as it came, for all of which there is room.

    Raises GatewayError REQUEST_TOO_LARGE (413), REQUEST_TIMEOUT (408) and what `room` raises, ClientLeftError when the
    client goes.
    """
    is_here = _is_here(receive)
    if is_here and content_length is not None and room.take_at_once(content_length):
        return await _all_of_it(receive, room)
    await room.begin(is_here=is_here)
    upload = _Upload(receive, content_length, limits, room)
    if not (is_here and await upload.take()):
        await upload.run()
    await room.cover(len(upload.body))
    return upload.body


async def _all_of_it(receive: Receive, room: Room) -> bytes:
    """A body that was there before it was asked for, as nearly all small ones are."""
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientLeftError
    body: bytes = message.get("body", b"")
    await room.cover(len(body))  # where the server let more come than was announced
    return body


def _is_here(receive: Receive) -> bool:
    """Uvicorn has read the body to its end already: it can be had without a wait, and so without a timer."""
    return getattr(getattr(receive, "__self__", None), "more_body", True) is False


class _Upload:
    """A body on its way. Its time runs from the first `receive`, and not while it has to wait for room."""

    __slots__ = ("_come", "_content_length", "_limits", "_receive", "_room", "_start", "body")

    def __init__(self, receive: Receive, content_length: int | None, limits: BodyLimits, room: Room) -> None:
        self._receive = receive
        self._content_length = content_length
        self._limits = limits
        self._room = room
        self._come = 0
        self._start = 0.0
        self.body: bytes | bytearray = b""

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        self._start = loop.time()
        while True:
            try:
                async with asyncio.timeout_at(self._due()) as deadline:
                    while not await self.take():
                        if not self._room.has_room(self._come):
                            break
                        deadline.reschedule(self._due())
                    else:
                        return
            except TimeoutError:
                if not self._room.is_ahead:
                    raise self._too_slow(loop.time()) from None
                self._fall_back()
            else:
                await self._grow(loop)

    async def take(self) -> bool:
        """The next piece; true when it was the last."""
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientLeftError
        chunk = message.get("body", b"")
        is_last = not message.get("more_body", False)
        end = self._come + len(chunk)
        if end > self._limits.max_bytes:
            raise too_large(end, self._limits.max_bytes)
        if self._come == 0 and is_last:
            self.body = chunk
        else:
            self._keep(chunk, end)
        self._come = end
        return is_last

    def _keep(self, chunk: bytes, end: int) -> None:
        if not isinstance(self.body, bytearray):
            self.body = bytearray()
        self.body[self._come : end] = chunk

    async def _grow(self, loop: asyncio.AbstractEventLoop) -> None:
        asked = loop.time()
        is_fast = asked - self._start <= FAST_GRACE_SECONDS + self._come / FAST_BYTES_PER_SECOND
        await self._room.grow(self._come, is_fast=is_fast)
        self._start += loop.time() - asked
        if self._room.is_ahead and self._content_length is not None:
            # There is room for all of it: filled in place, it is never copied.
            whole = bytearray(self._content_length)
            whole[: self._come] = self.body
            self.body = whole

    def _fall_back(self) -> None:
        self.body = self.body[: self._come]
        self._room.fall_back(self._come)

    def _due(self) -> float | None:
        """When the next piece has to be here; None: whenever it likes."""
        least = self._limits.min_bytes_per_second
        due = self._start + GRACE_SECONDS + self._come / least if least else None
        if not self._room.is_ahead:
            return due
        fast_due = self._start + FAST_GRACE_SECONDS + self._come / FAST_BYTES_PER_SECOND
        return fast_due if due is None else min(due, fast_due)

    def _too_slow(self, now: float) -> GatewayError:
        return GatewayError(
            Code.REQUEST_TIMEOUT,
            f"Only {self._come} bytes of the body came in {now - self._start:.0f} s; the gateway expects at least "
            f"{self._limits.min_bytes_per_second} bytes per second. Send the request again over a faster connection.",
        )


def too_large(body_bytes: int, max_bytes: int) -> GatewayError:
    return GatewayError(
        Code.REQUEST_TOO_LARGE,
        f"The request body has at least {body_bytes} bytes; the limit is {max_bytes}. Send smaller or fewer images: "
        "pictures of earlier turns can be left out, and the model sees nothing beyond its own resolution.",
    )
