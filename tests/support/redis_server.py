"""A real redis-server on a free port, which a test starts, stops, starts anew and lets hang."""

import contextlib
import pathlib
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator

from tests.support.processes import free_port

_START_SECONDS = 30


class RedisServer:
    """It keeps nothing on disk, so one that is started anew is empty."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / "redis.log").open("ab") as log:
            self._process = subprocess.Popen(command, cwd=self._folder, stdout=log, stderr=subprocess.STDOUT)
        give_up_at = time.monotonic() + _START_SECONDS
        while not self._answers():
            assert time.monotonic() < give_up_at, (self._folder / "redis.log").read_text()
            time.sleep(0.01)

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
        return False

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def hang(self, *, on: bool) -> None:
        """It takes connections and answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP if on else signal.SIGCONT)


@contextlib.contextmanager
def running_redis(folder: pathlib.Path) -> Iterator[RedisServer]:
    assert shutil.which("redis-server")
    server = RedisServer(folder)
    server.start()
    try:
        yield server
    finally:
        server.kill()
