"""Starts the emulator: as a process for `vlm-gateway emulate`, or in a thread for a test.

with running_emulator(EmulatorConfig.fast(max_num_seqs=2)) as server:
    httpx.get(server.base_url + "/health")
    server.set_faults(freeze=True)
    server.statistics().running
"""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gateway.emulator.application import Emulator
from gateway.emulator.config import EmulatorConfig
from gateway.emulator.exchange import TRANSPORT_EXTENSION
from gateway.emulator.statistics import EngineStatistics

_SECONDS_FROM_DEATH_TO_EXIT = 1.0
_START_AND_STOP_SECONDS = 10.0


def create_app(config: EmulatorConfig) -> Emulator:
    """The emulated server as an ASGI application, for any ASGI server or in-process client.

    Only `serve` and `running_emulator` let it treat connections as vLLM does: closed after a 500, reset on demand.
    """
    return Emulator(config)


def serve(config: EmulatorConfig, host: str, port: int, *, on_listening: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM, at which every stream in flight ends with the engine's error, as in vLLM."""
    listener = _listen(host, port)
    _Server(Emulator(config), lambda: on_listening(_url_of(listener))).run(sockets=[listener])


class RunningEmulator:
    """A server in another thread, seen from a test."""

    def __init__(self, app: Emulator, server: "_Server", base_url: str) -> None:
        self.base_url = base_url
        self._app = app
        self._server = server

    def statistics(self) -> EngineStatistics:
        """The engine as it is this moment, read from the server's own thread."""
        statistics: EngineStatistics = self._server.call(self._app.statistics)
        return statistics

    def set_faults(self, **changes: Any) -> None:
        """Break or mend something; the names are the fields of `Faults`."""
        self._server.call(lambda: self._app.set_faults(changes))

    def forget_pictures(self) -> None:
        """The processor's cache is empty from now on."""
        self._server.call(self._app.forget_pictures)


@contextmanager
def running_emulator(config: EmulatorConfig | None = None) -> Iterator[RunningEmulator]:
    """A server on a free port of 127.0.0.1; the block runs when it answers, and it is gone afterwards."""
    app = Emulator(config or EmulatorConfig.fast())
    has_started = threading.Event()
    server = _Server(app, has_started.set)
    listener = _listen("127.0.0.1", 0)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="emulator", daemon=True)
    thread.start()
    try:
        if not has_started.wait(_START_AND_STOP_SECONDS):
            raise TimeoutError("the emulator did not start")
        yield RunningEmulator(app, server, _url_of(listener))
    finally:
        server.request_stop()
        thread.join(_START_AND_STOP_SECONDS)
        listener.close()


class _Protocol(HttpToolsProtocol):
    """Lets the application reach its connection, which ASGI hides: vLLM closes it after a 500."""

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {TRANSPORT_EXTENSION: {"transport": self.transport}}


class _Server(uvicorn.Server):
    """Uvicorn with an emulator inside; can be stopped from another thread at once."""

    def __init__(self, app: Emulator, on_started: Callable[[], None]) -> None:
        super().__init__(uvicorn.Config(app, http=_Protocol, loop="uvloop", ws="none", log_level="error"))
        self._app = app
        self._loop: asyncio.AbstractEventLoop | None = None
        self._on_started = on_started
        app.on_death = self._exit_soon

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._loop = asyncio.get_running_loop()
        self._on_started()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal: vLLM's default shutdown timeout is 0, so what is in flight ends with an error event.

        It comes between any two instructions of the loop, which must not find the engine dead where it was alive.
        """
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._app.state.driver.die)
        super().handle_exit(sig, frame)

    def call(self, function: Callable[[], Any]) -> Any:
        """Run a function on the server's loop and return what it returns."""

        async def run() -> Any:
            return function()

        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(_START_AND_STOP_SECONDS)

    def request_stop(self) -> None:
        """Drop every connection and leave."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._drop_connections)
        self.should_exit = True

    def _exit_soon(self) -> None:
        asyncio.get_running_loop().call_later(_SECONDS_FROM_DEATH_TO_EXIT, self._drop_connections)

    def _drop_connections(self) -> None:
        self.should_exit = True
        for connection in list(self.server_state.connections):
            connection.transport.abort()


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    return listener


def _url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
