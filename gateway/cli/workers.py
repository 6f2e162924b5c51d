"""Several processes of one gateway on one port, for `serve --workers`: started, watched, told and ended together.

The port's socket is opened here, and all of them take connections from it, so none is lost when one of them ends. Each
has a port of its own beside that, the next numbers after the port, because its metrics are its own.
"""

import contextlib
import logging
import os
import signal
import socket
import time
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

from pydantic import SecretStr

from gateway.cli.options import fail
from gateway.settings import Settings

logger = logging.getLogger(__name__)

_AGAIN_SECONDS = 5.0
"""One that ends sooner after its start would end again and again."""
_SECRET_BYTES = 32
_TOLD = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

Serve = Callable[[list[socket.socket]], None]


def settings_of_many(settings: Settings, workers: int) -> Settings:
    """What several processes need to be one gateway. Ends the program where they cannot be."""
    if settings.is_shadow:
        fail("--workers needs mode enforce: in shadow mode nothing is held, so there is nothing to share.")
    if settings.ledger.redis_url is None:
        fail(
            f"--workers {workers} needs ledger.redis_url: each process admits requests by itself, so without a budget "
            f"that they share the model server would get {workers} times what it can take. Start a Redis (7 or later) "
            "beside the gateway and name it, as redis://127.0.0.1:6379, or leave --workers out."
        )
    ledger = settings.ledger.model_copy(update={"gateways": max(workers, settings.ledger.gateways)})
    secret = settings.isolation.secret or SecretStr(os.urandom(_SECRET_BYTES).hex())
    isolation = settings.isolation.model_copy(update={"secret": secret})
    return settings.model_copy(update={"ledger": ledger, "isolation": isolation})


def listen(host: str, port: int) -> socket.socket:
    """Ends the program where the port is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        why = os.strerror(error.errno or 0)
        fail(f"{host}:{port} cannot be listened on: {why}. With --workers N the next N ports are used too.")


class Workers:
    """The processes; `serve` is what each of them does, with the sockets that it listens on."""

    def __init__(self, count: int, host: str, port: int, serve: Serve) -> None:
        self._serve = serve
        self._listener = listen(host, port)
        self._own = [listen(host, port + number) for number in range(1, count + 1)]
        self._started: dict[int, tuple[int, float]] = {}
        self._is_ending = False
        self._exit_code = 0

    def run(self) -> NoReturn:
        """Returns with none of them left: the program's end."""
        for told in _TOLD:
            signal.signal(told, self._tell)
        for number in range(len(self._own)):
            self._start(number)
        while self._started:
            process_id, status = os.wait()
            self._ended(process_id, os.waitstatus_to_exitcode(status))
        raise SystemExit(self._exit_code)

    def _start(self, number: int) -> None:
        process_id = os.fork()
        if process_id:
            self._started[process_id] = number, time.monotonic()
            if self._is_ending:  # told while this one was being made
                _send(process_id, signal.SIGTERM)
            return
        # Out of the terminal's group: Ctrl-C comes from here, once.
        os.setpgrp()
        for told in _TOLD:
            signal.signal(told, signal.SIG_IGN if told is signal.SIGHUP else signal.SIG_DFL)
        own = self._own[number]
        for other in self._own:
            if other is not own:
                other.close()
        self._serve([self._listener, own])
        raise SystemExit(0)

    def _tell(self, number: int, _frame: FrameType | None) -> None:
        self._is_ending |= number != signal.SIGHUP
        for process_id in list(self._started):
            _send(process_id, number)

    def _ended(self, process_id: int, exit_code: int) -> None:
        number, started = self._started.pop(process_id)
        if self._is_ending:
            return
        logger.error("worker %d ended with %d", number + 1, exit_code)
        if time.monotonic() - started >= _AGAIN_SECONDS:
            self._start(number)
            return
        self._exit_code = 1
        self._tell(signal.SIGTERM, None)


def _send(process_id: int, number: int) -> None:
    """To one that may just have ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process_id, number)
