"""`vlm-gateway serve`: the gateway itself, one process or several on one port."""

import asyncio
import gc
import logging
import logging.config
import os
import resource
import signal
import socket
from functools import partial
from types import FrameType
from typing import Annotated

import typer
import uvicorn

from gateway.access import listening_of
from gateway.app import Application
from gateway.cli.check.doubts import doubts_of
from gateway.cli.check.surroundings import look_around
from gateway.cli.options import (
    Assignments,
    ConfigFile,
    UpstreamAddresses,
    mistakes_told,
    read_settings,
    refuse_bad_keys,
    upstream_flags,
)
from gateway.cli.workers import Workers, settings_of_many
from gateway.imaging.heap import keep_freed_memory
from gateway.server.http_protocol import GatewayProtocol
from gateway.settings import Settings
from gateway.settings.secrets import secrets_of
from gateway.telemetry.logs import logging_config

logger = logging.getLogger(__name__)


WorkerCount = Annotated[
    int,
    typer.Option(
        "--workers",
        min=1,
        help="Processes on the port, which share the budget through ledger.redis_url. Each has its metrics on one of "
        "the next ports.",
    ),
]


def serve(
    upstream: UpstreamAddresses = None,
    host: Annotated[
        str | None,
        typer.Option("--host", help="Address to listen on. Default: 127.0.0.1; all where keys are configured."),
    ] = None,
    port: Annotated[int | None, typer.Option("--port", help="Port to listen on. Default: 8080.")] = None,
    mode: Annotated[
        str | None,
        typer.Option(
            "--mode",
            help="shadow: send everything on as it comes and only tell what would be decided. Default: enforce.",
        ),
    ] = None,
    workers: WorkerCount = 1,
    config: ConfigFile = None,
    assignments: Assignments = None,
) -> None:
    """Serve: admit, queue or refuse requests in front of vLLM, be it one server or several.

    `vlm-gateway serve --upstream http://127.0.0.1:8000` needs nothing else: models, limits and capacity are discovered
    or learned. Point your SDK's base_url at http://HOST:8080/v1. Without keys (`vlm-gateway key create`) only this
    machine may come, unless --host says otherwise.

    With --mode shadow it can be put before a production server to see what it would do: x-gateway-shadow headers,
    gateway_shadow metrics and the request log tell, and `vlm-gateway replay` reads the log.

    Settings come from flags, then GATEWAY_SECTION__NAME in the environment, then the --config file.
    """
    own = {"mode": mode, "server.host": host, "server.port": None if port is None else str(port)}
    flags = upstream_flags(upstream) | own
    settings = read_settings(config, assignments, flags).settings
    logs_by = partial(logging_config, settings.log.level, settings.log.format, secrets_of(settings))
    # A process that others are forked from has no threads: a lock that one of them held would never be free there.
    logging.config.dictConfig(logs_by(writes_at_once=workers > 1))
    if workers > 1:
        settings = settings_of_many(settings, workers)
    with mistakes_told():
        application = Application(settings, processes=workers)
    refuse_bad_keys(settings)
    if settings.is_shadow:
        logger.warning("shadow mode: nothing is queued, refused or changed; what would be decided is only told")
    for doubt in doubts_of(settings, look_around(settings, os.environ)):
        logger.warning("hardly meant: %s", doubt)
    listening = listening_of(settings)
    logger.info("listening on %s:%d: %s", listening.host, settings.server.port, listening.why)
    _let_files_be_opened(settings.server.seats)
    _settle_memory()
    server = _Server(application, settings, listening.host)
    if workers > 1:
        Workers(workers, listening.host, settings.server.port, partial(server.run_below, logs_by())).run()
    server.run()


_FILES_PER_SEAT = 2  # a connection on each side


def _settle_memory() -> None:
    # What the start has made lives for ever; the garbage collector need not visit it with every full collection.
    gc.collect()
    gc.freeze()
    # Requests leave no cycles behind: looking for some after every 700 objects costs a twentieth of the CPU (measured).
    gc.set_threshold(_NEW_OBJECTS_PER_COLLECTION)
    keep_freed_memory()


def _let_files_be_opened(seats: int) -> None:
    """Takes all that the system allows: shells and service managers start with 1,024, which ends below the seats, and
    whoever comes then is told that the upstream cannot be reached.
    """
    _, allowed = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, allowed))
    needed = _FILES_PER_SEAT * seats
    if allowed != resource.RLIM_INFINITY and allowed < needed:
        logger.warning(
            "%d files may be open at once, and server.seats=%d can take %d: raise the limit (ulimit -n) or set fewer "
            "seats",
            allowed,
            seats,
            needed,
        )


_LEAVE_SECONDS = 2
_NEW_OBJECTS_PER_COLLECTION = 10_000


class _Server(uvicorn.Server):
    """Uvicorn that drains at a signal (server/draining.py) and goes on listening meanwhile, so that whoever still comes
    is served or told. Supervisors repeat SIGTERM, which changes nothing; Ctrl-C has no grace, and pressed twice it
    ends the process at once.
    """

    def __init__(self, application: Application, settings: Settings, host: str) -> None:
        tls = application.tls
        super().__init__(
            uvicorn.Config(
                application,
                host=host,
                port=settings.server.port,
                loop="uvloop",
                http=GatewayProtocol,
                ws="none",
                proxy_headers=False,
                access_log=False,
                log_config=None,
                server_header=False,
                timeout_keep_alive=settings.server.keep_alive_seconds,
                timeout_graceful_shutdown=_LEAVE_SECONDS,
                ssl_context_factory=None if tls is None else lambda _config, _default: tls,
            )
        )
        self._application = application
        self._was_interrupted = False
        self._parent: int | None = None

    def run_below(self, logs: dict[str, object], sockets: list[socket.socket]) -> None:
        """As one of several processes, which ends when the one that started it is gone."""
        logging.config.dictConfig(logs)
        self._parent = os.getppid()
        self.run(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        is_again = self._was_interrupted and sig == signal.SIGINT
        if is_again or not self._application.is_started():
            super().handle_exit(sig, frame)
            return
        logger.info("%s: draining", signal.Signals(sig).name)
        self._was_interrupted |= sig == signal.SIGINT
        self._application.end(has_grace=sig != signal.SIGINT)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        # Before all else: without a handler the signal would end the process.
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._application.reload)
        await super().startup(sockets)

    async def on_tick(self, counter: int) -> bool:
        if self._parent is not None and os.getppid() != self._parent:
            self._parent = None
            self.handle_exit(signal.SIGTERM, None)
        self.should_exit |= self._application.is_over
        return await super().on_tick(counter)
