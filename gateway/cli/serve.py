"""`vlm-gateway serve`: the gateway itself, one process."""

import logging
import logging.config
import signal
from types import FrameType
from typing import Annotated

import typer
import uvicorn

from gateway.app import Application
from gateway.cli.options import Assignments, ConfigFile, fail, read_settings
from gateway.models.configure import ModelSettingsError
from gateway.settings import Settings
from gateway.telemetry.logs import logging_config

logger = logging.getLogger(__name__)


def serve(
    upstream: Annotated[
        str | None, typer.Option("--upstream", help="Address of the vLLM server, e.g. http://127.0.0.1:8000.")
    ] = None,
    host: Annotated[str | None, typer.Option("--host", help="Address to listen on. Default: all.")] = None,
    port: Annotated[int | None, typer.Option("--port", help="Port to listen on. Default: 8080.")] = None,
    config: ConfigFile = None,
    assignments: Assignments = None,
) -> None:
    """Serve: admit, queue or refuse requests in front of one vLLM server.

    `vlm-gateway serve --upstream http://127.0.0.1:8000` needs nothing else: models, limits and capacity are discovered
    or learned. Point your SDK's base_url at http://HOST:8080/v1.

    Settings come from flags, then GATEWAY_SECTION__NAME in the environment, then the --config file.
    """
    flags = {"upstream.url": upstream, "server.host": host, "server.port": None if port is None else str(port)}
    settings = read_settings(config, assignments, flags).settings
    logging.config.dictConfig(logging_config(settings.log.level))
    try:
        application = Application(settings)
    except ModelSettingsError as error:
        fail(f"The models cannot be read:\n{error}")
    _warn_of_what_is_not_there_yet(settings)
    _Server(application, settings).run()


def _warn_of_what_is_not_there_yet(settings: Settings) -> None:
    if settings.images.remote.policy == "inline":
        logger.warning("images.remote.policy: fetching images is not yet supported; such parts are refused")


class _Server(uvicorn.Server):
    """Uvicorn, with the gateway told to drain before its sockets close."""

    def __init__(self, application: Application, settings: Settings) -> None:
        super().__init__(
            uvicorn.Config(
                application,
                host=settings.server.host,
                port=settings.server.port,
                loop="uvloop",
                http="httptools",
                ws="none",
                access_log=False,
                log_config=None,
                server_header=False,
                timeout_keep_alive=settings.server.keep_alive_seconds,
                timeout_graceful_shutdown=settings.server.drain_seconds,
            )
        )
        self._application = application

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        logger.info("%s: draining", signal.Signals(sig).name)
        self._application.drain()
        super().handle_exit(sig, frame)
