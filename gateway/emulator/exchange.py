"""One HTTP request and its answer on bare ASGI: body in, JSON or events out, and what vLLM does to the connection."""

import asyncio
import functools
import socket
import struct
from typing import Any

from gateway.emulator.answers import dump
from gateway.emulator.errors import ApiError, DetailError

TRANSPORT_EXTENSION = "emulator.transport"
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_VARY = (b"vary", b"Origin")


class Exchange:
    """The request's headers and body, and the one answer that it gets."""

    def __init__(self, scope: Any, receive: Any, send: Any) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.query: str = scope.get("query_string", b"").decode("latin-1")
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        extension = scope.get("extensions", {}).get(TRANSPORT_EXTENSION, {})
        self._transport: asyncio.Transport | None = extension.get("transport")
        self._receive = receive
        self._send = send
        self._watcher: asyncio.Future[Any] | None = None
        self.status = 0
        self.is_complete = False
        self.client_left = False

    def header(self, name: bytes, default: str = "") -> str:
        value = self.headers.get(name)
        return default if value is None else value.decode("latin-1")

    async def body(self) -> bytes:
        """The whole body. From then on this task is cancelled when the client leaves."""
        pieces = []
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self.client_left = True
                raise asyncio.CancelledError
            pieces.append(message.get("body", b""))
            if not message.get("more_body", False):
                break
        self._watch()
        return b"".join(pieces)

    async def respond(self, status: int, body: bytes, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        """The whole answer. After a 500 the connection is closed, unannounced, as vLLM does."""
        head = [(b"content-length", b"%d" % len(body)), *headers]
        await self._start(status, head if status == 500 else [*head, _VARY])
        self.is_complete = True
        await self._send({"type": "http.response.body", "body": body})
        if status == 500:
            self._close()

    async def respond_json(self, status: int, value: object, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        await self.respond(status, dump(value), ((b"content-type", b"application/json"), *headers))

    async def respond_problem(self, problem: ApiError | DetailError) -> None:
        if isinstance(problem, DetailError) and problem.detail is None:
            await self.respond(problem.status, b"", problem.headers)
        elif isinstance(problem, DetailError):
            await self.respond_json(problem.status, {"detail": problem.detail}, problem.headers)
        else:
            await self.respond_json(problem.status, problem.as_json())

    async def start_events(self) -> None:
        """Status and headers of a stream leave at once, whatever becomes of the request."""
        await self._start(200, [(b"content-type", b"text/event-stream; charset=utf-8"), _VARY])

    async def event(self, event: bytes) -> None:
        await self._send({"type": "http.response.body", "body": event, "more_body": True})

    async def end_events(self) -> None:
        self.is_complete = True
        await self._send({"type": "http.response.body", "body": b""})

    def cut(self) -> None:
        """End the answer in its middle, as a fault behind its head does."""
        self.is_complete = True
        self._close()

    def reset(self) -> None:
        """Drop the connection with a TCP reset."""
        if self._transport is not None:
            raw: socket.socket = self._transport.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            self._transport.abort()

    def stop_watching(self) -> None:
        if self._watcher is not None:
            self._watcher.cancel()

    async def _start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.status = status
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _watch(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._watcher = asyncio.ensure_future(self._receive())
        self._watcher.add_done_callback(functools.partial(self._on_disconnect, task))

    def _on_disconnect(self, task: "asyncio.Task[Any]", watcher: "asyncio.Future[Any]") -> None:
        if not watcher.cancelled() and not self.is_complete:
            self.client_left = True
            task.cancel()
