"""The routes that make no engine work: health, metrics, version, the status page. FastAPI lives here and beside it."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Annotated, Any, Protocol

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse
from starlette.exceptions import HTTPException

from gateway import __version__
from gateway.domain.errors import Code, GatewayError
from gateway.server.loopback import refuse_strangers
from gateway.server.openapi.answers import errors_of
from gateway.server.openapi.document import complete
from gateway.server.openapi.page import PAGE_HEADERS, page_of
from gateway.server.page_access import PageAccess
from gateway.server.page_routes import add_page_routes
from gateway.server.refusals import error_response

DRAIN_PATH = "/gateway/drain"
_MOST_DRAIN_SECONDS = 3600.0
_NOT_NOW: dict[int | str, Any] = {503: {"description": "Not now; `reason` says why.", "model": dict[str, str]}}
_ONLY_FROM_HERE: dict[int | str, Any] = {int(status): errors_of()[status] for status in ("400", "403")}


class Control(Protocol):
    """What these routes need to know; app.py provides it."""

    def is_started(self) -> bool: ...

    def why_not_ready(self) -> str | None:
        """None when requests can be served; else the reason in a sentence."""
        ...

    def remarks(self) -> list[str]:
        """A sentence about each thing that is amiss, though requests may be served."""
        ...

    def drain(self) -> None: ...

    def call_off_drain(self) -> None: ...

    def is_drained(self) -> bool: ...

    async def until_drained(self) -> None: ...

    def in_flight(self) -> int: ...

    def metrics_page(self, accept: str) -> tuple[bytes, str]: ...

    def status(self) -> bytes:
        """What the status page shows, as JSON."""
        ...


def create_control_app(control: Control, page_access: PageAccess, *, has_drain_route: bool = False) -> FastAPI:
    """Everything that is not proxied, errors in OpenAI's shape included."""
    # FastAPI's own pages of documentation fetch their scripts from the internet.
    app = FastAPI(title="vlm-gateway", version=__version__, docs_url=None, redoc_url=None)

    @app.get("/livez")
    async def livez() -> dict[str, str]:
        return {"status": "alive"}

    @app.get("/startupz", responses=_NOT_NOW)
    async def startupz(response: Response) -> dict[str, str]:
        return _verdict(response, None if control.is_started() else "the gateway is still starting")

    @app.get("/readyz", responses=_NOT_NOW)
    async def readyz(response: Response) -> dict[str, str]:
        return _verdict(response, control.why_not_ready(), control.remarks())

    app.add_api_route("/health", readyz, include_in_schema=False)

    @app.get("/version")
    async def version() -> dict[str, str]:
        return {"version": __version__}

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics(request: Request) -> Response:
        page, content_type = control.metrics_page(request.headers.get("accept", ""))
        return Response(page, headers={"content-type": content_type})

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return Response(page_of(app.openapi()), media_type="text/html", headers=PAGE_HEADERS)

    if has_drain_route:
        _add_drain_route(app, control)
    add_page_routes(app, page_access, control.status)
    app.add_exception_handler(HTTPException, _as_openai_error)
    app.add_exception_handler(RequestValidationError, _as_bad_request)
    app.add_exception_handler(GatewayError, _as_it_is)
    _document(app)
    return app


def _add_drain_route(app: FastAPI, control: Control) -> None:
    @app.post(DRAIN_PATH, responses=_ONLY_FROM_HERE)
    async def drain(
        request: Request, timeout_seconds: Annotated[float, Query(ge=0, le=_MOST_DRAIN_SECONDS)] = 30.0
    ) -> dict[str, str | int]:
        """Takes this gateway out of service and answers when nothing is in flight any more, or after the timeout.

        For a preStop hook of the model server beside it; only from this host.
        """
        refuse_strangers(request.client, request.headers)
        control.drain()
        return await _drained(control, timeout_seconds)

    @app.delete(DRAIN_PATH, responses=_ONLY_FROM_HERE)
    async def call_off_drain(request: Request) -> dict[str, str | int]:
        """Takes it into service again."""
        refuse_strangers(request.client, request.headers)
        control.call_off_drain()
        return {"status": "serving", "in_flight": control.in_flight()}


async def _drained(control: Control, timeout_seconds: float) -> dict[str, str | int]:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_seconds):
            await control.until_drained()
    return {"status": "drained" if control.is_drained() else "draining", "in_flight": control.in_flight()}


def _document(app: FastAPI) -> None:
    """Of the routes that are answered beside this application too. Mistakes are 400 here, and in OpenAI's shape."""
    document = app.openapi()
    for item in document["paths"].values():
        for operation in item.values():
            operation["responses"].pop("422", None)
    complete(document)


def _verdict(response: Response, why_not: str | None, troubles: Sequence[str] = ()) -> dict[str, str]:
    if why_not is None:
        return {"status": "ok", "but": "; ".join(troubles)} if troubles else {"status": "ok"}
    response.status_code = 503
    return {"status": "unavailable", "reason": why_not}


async def _as_openai_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        refusal = GatewayError(Code.METHOD_NOT_ALLOWED, f"{request.method} is not allowed for {request.url.path}.")
    else:
        refusal = GatewayError(Code.NOT_FOUND, f"There is no {request.url.path} here. See /docs for what there is.")
    return error_response(refusal, error.headers or {})


async def _as_bad_request(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"]))
    return error_response(GatewayError(Code.INVALID_REQUEST, f"`{where}`: {first['msg']}."), {})


async def _as_it_is(_: Request, error: Exception) -> Response:
    assert isinstance(error, GatewayError)
    return error_response(error, {})
