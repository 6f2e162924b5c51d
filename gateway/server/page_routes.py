"""The status page's own files, and what it shows, which it asks for again and again. Read-only.

Its pictures are tried at /gateway/try, which takes a body and so is one of the proxied routes (try_route.py).
"""

from collections.abc import Callable, Mapping
from importlib.resources import files

from fastapi import FastAPI, Request, Response

from gateway.server.page_access import PageAccess

PAGE_PATH = "/gateway/"
STATE_PATH = "/gateway/state"

_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_FOLDER = files("gateway.server") / "page"
_INDEX = "index.html"


def _read() -> Mapping[str, tuple[bytes, str]]:
    """Path to content and its type; the start fails where the package lacks the folder."""
    paths = {file.name: PAGE_PATH if file.name == _INDEX else f"{PAGE_PATH}{file.name}" for file in _FOLDER.iterdir()}
    return {
        path: ((_FOLDER / name).read_bytes(), f"{_TYPES[name.rpartition('.')[2]]}; charset=utf-8")
        for name, path in paths.items()
    }


_FILES = _read()
PAGE_PATHS = frozenset({PAGE_PATH, PAGE_PATH.rstrip("/"), STATE_PATH, *_FILES})

SAFETY_HEADERS = {
    # Nothing from elsewhere, nothing inline; `blob:` is for the pictures that are tried.
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
}


def add_page_routes(app: FastAPI, access: PageAccess, state: Callable[[], bytes]) -> None:
    """`state` is what the page shows, as JSON."""

    @app.get(PAGE_PATH.rstrip("/"), include_in_schema=False)
    async def to_the_page(request: Request) -> Response:
        access.refuse(request.scope, is_data=False)
        # Relative, so that it is right below a prefix of a proxy too.
        return Response(status_code=308, headers={"location": "gateway/"})

    @app.get(STATE_PATH, include_in_schema=False)
    async def show_state(request: Request) -> Response:
        access.refuse(request.scope, is_data=True)
        return Response(state(), media_type="application/json", headers=SAFETY_HEADERS)

    async def send_file(request: Request) -> Response:
        access.refuse(request.scope, is_data=False)
        content, content_type = _FILES[request.url.path]
        return Response(content, headers={"content-type": content_type, **SAFETY_HEADERS})

    for path in _FILES:
        app.add_api_route(path, send_file, include_in_schema=False)
