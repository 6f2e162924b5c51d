"""A hub of one's own: answers `huggingface_hub` as the real one does for files of repositories, and remembers who came.

A repository is files by name; `gated` and `private` ones are open to the token alone.
"""

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMMIT = "1f0c2a5b" * 5
TOKEN = "hf_of_a_reader"


@dataclass
class HubServer:
    """`asked` has method, path and `authorization` of each request. `is_down`: nothing but 503."""

    repositories: dict[str, Mapping[str, Any]]
    gated: frozenset[str] = frozenset()
    private: frozenset[str] = frozenset()
    is_down: bool = False
    url: str = ""
    asked: list[tuple[str, str, str | None]] = field(default_factory=list)

    def files(self) -> list[str]:
        """Names of the files whose content was fetched, in turn; the library asks for more than files."""
        return [path.rpartition("/")[2] for method, path, _ in self.asked if method == "GET" and "/resolve/" in path]

    def answer(self, method: str, path: str, authorization: str | None) -> tuple[int, dict[str, str], bytes]:
        self.asked.append((method, path, authorization))
        if self.is_down:
            return 503, {}, b""
        repository, _, rest = path.lstrip("/").partition("/resolve/")
        revision, _, name = rest.partition("/")
        may_read = authorization == f"Bearer {TOKEN}"
        if repository in self.gated and not may_read:
            return 401, {"X-Error-Code": "GatedRepo"}, b""
        if repository not in self.repositories or (repository in self.private and not may_read):
            return 401, {"X-Error-Code": "RepoNotFound"}, b""
        if revision not in {"main", COMMIT}:
            return 404, {"X-Error-Code": "RevisionNotFound"}, b""
        headers = {"X-Repo-Commit": COMMIT}
        if name not in self.repositories[repository]:
            return 404, headers | {"X-Error-Code": "EntryNotFound"}, b""
        content = self.repositories[repository][name]
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        return 200, headers | {"ETag": f'"{hashlib.sha256(body).hexdigest()}"'}, body


@contextmanager
def hub_server(repositories: Mapping[str, Mapping[str, Any]], **kinds: frozenset[str]) -> Iterator[HubServer]:
    hub = HubServer(dict(repositories), **kinds)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._answer()

        def do_GET(self) -> None:
            self._answer()

        def _answer(self) -> None:
            status, headers, body = hub.answer(self.command, self.path, self.headers["authorization"])
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Silence."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        hub.url = f"http://127.0.0.1:{server.server_address[1]}"
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
