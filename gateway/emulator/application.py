"""The emulated server as one bare ASGI application: routes, and what becomes of errors and disconnects."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from gateway.emulator import metrics
from gateway.emulator.anthropic import count_tokens, messages
from gateway.emulator.config import EmulatorConfig
from gateway.emulator.errors import ApiError, DetailError, internal_error, queue_full
from gateway.emulator.exchange import Exchange
from gateway.emulator.generation import batch_completions, chat_completions, completions, first_byte_delay
from gateway.emulator.pooling import classify, embed, embeddings, pooling
from gateway.emulator.responses import PREFIX as RESPONSES_PREFIX
from gateway.emulator.responses import create_response, stored_response
from gateway.emulator.schema import parse_json
from gateway.emulator.scoring import rerank, score
from gateway.emulator.server_state import ServerState
from gateway.emulator.statistics import EngineStatistics
from gateway.emulator.tokenization import detokenize, tokenize

Handler = Callable[[ServerState, Exchange], Awaitable[None]]
Generation = Callable[[ServerState, Exchange, Any, bytes], Awaitable[None]]

VERSION = "0.32.0"


class Emulator:
    """ASGI callable. `on_death` is called once when a test kills the engine; whoever serves the app stops then."""

    def __init__(self, config: EmulatorConfig) -> None:
        self.state = ServerState(config)
        self._routes = _routes_of(config)
        self.on_death: Callable[[], None] = lambda: None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        else:
            await self._serve(Exchange(scope, receive, send))

    def statistics(self) -> EngineStatistics:
        return self.state.engine.statistics()

    def set_faults(self, changes: dict[str, Any]) -> None:
        """Break something, or mend it: see faults.py for the names. Raises ValueError for an unknown one."""
        self.state.faults.update(changes)
        self.state.driver.set_frozen(frozen=self.state.faults.freeze)
        if self.state.faults.kill and not self.state.driver.is_dead:
            self.state.driver.die()
            self.on_death()

    def forget_pictures(self) -> None:
        self.state.preprocessor.cache.clear()

    async def _lifespan(self, receive: Any, send: Any) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                await self.state.driver.stop()
                self.state.preprocessor.close()
                await send({"type": "lifespan.shutdown.complete"})
                return
            await send({"type": "lifespan.startup.complete"})

    async def _serve(self, exchange: Exchange) -> None:
        try:
            await self._route(exchange)
        except (ApiError, DetailError) as problem:
            await exchange.respond_problem(problem)
        except asyncio.CancelledError:
            if not exchange.client_left:
                raise
        except Exception as problem:
            if exchange.status:
                raise
            await exchange.respond_problem(internal_error(str(problem)))
            raise
        finally:
            exchange.stop_watching()
            self._count(exchange)

    async def _route(self, exchange: Exchange) -> None:
        path = exchange.path
        if path == "/emulator/faults":
            await self._faults(exchange)
            return
        handlers = self._routes.get(path) or self._handlers_below(path)
        if handlers is None:
            raise self._not_found(path, exchange.header(b"host"))
        handler = handlers.get(exchange.method)
        if handler is None:
            raise DetailError(405, "Method Not Allowed", ((b"allow", ", ".join(handlers).encode()),))
        await handler(self.state, exchange)

    async def _faults(self, exchange: Exchange) -> None:
        body = await exchange.body()
        if exchange.method == "DELETE":
            self.state.faults.clear()
            self.set_faults({})
        elif exchange.method == "POST":
            try:
                self.set_faults(parse_json(body, "application/json"))
            except ValueError as problem:
                raise DetailError(400, str(problem)) from problem
        await exchange.respond_json(200, self.state.faults.as_dict())

    def _count(self, exchange: Exchange) -> None:
        handler = exchange.path if exchange.path in self._routes else "none"
        self.state.http_requests[handler, exchange.method, f"{exchange.status // 100}xx"] += 1

    def _handlers_below(self, path: str) -> dict[str, Handler] | None:
        """Of a path that ends with an id, or with what becomes of it."""
        head, _, rest = path.removeprefix(RESPONSES_PREFIX).partition("/")
        is_below = path.startswith(RESPONSES_PREFIX) and RESPONSES_PREFIX.rstrip("/") in self._routes
        if not is_below or not head or rest not in {"", "cancel"}:
            return None
        return {"POST": stored_response} if rest else {"GET": stored_response}

    def _not_found(self, path: str, host: str) -> DetailError:
        """404, or the framework's redirect for a trailing slash."""
        if path.endswith("/") and path.rstrip("/") in self._routes:
            return DetailError(307, None, ((b"location", f"http://{host}{path.rstrip('/')}".encode()),))
        return DetailError(404, "Not Found")


async def _health(state: ServerState, exchange: Exchange) -> None:
    await exchange.respond(503 if state.driver.is_dead else 200, b"")


async def _version(_: ServerState, exchange: Exchange) -> None:
    await exchange.respond_json(200, {"version": VERSION})


async def _load(_: ServerState, exchange: Exchange) -> None:
    """Always 0: vLLM counts only with `--enable-server-load-tracking`."""
    await exchange.respond_json(200, {"server_load": 0})


async def _kv_event_sources(_: ServerState, exchange: Exchange) -> None:
    await exchange.respond_json(200, {})


async def _metrics(state: ServerState, exchange: Exchange) -> None:
    content_type = (b"content-type", b"text/plain; version=1.0.0; charset=utf-8")
    await exchange.respond(200, metrics.render(state), (content_type,))


async def _models(state: ServerState, exchange: Exchange) -> None:
    created = int(state.started_at)
    permission = {
        "id": "modelperm-0000000000000000",
        "object": "model_permission",
        "created": created,
        "allow_create_engine": False,
        "allow_sampling": True,
        "allow_logprobs": True,
        "allow_search_indices": False,
        "allow_view": True,
        "allow_fine_tuning": False,
        "organization": "*",
        "group": None,
        "is_blocking": False,
    }
    model = {
        "id": state.config.model,
        "object": "model",
        "created": created,
        "owned_by": "vllm",
        "root": state.config.root or state.config.vision.root,
        "parent": None,
        "max_model_len": state.config.max_model_len,
        "permission": [permission],
    }
    await exchange.respond_json(200, {"object": "list", "data": [model]})


def _json_route(handler: Generation, *, generates: bool) -> Handler:
    """A POST route: body, JSON, then the handler. Generating ones meet the faults first."""

    async def serve(state: ServerState, exchange: Exchange) -> None:
        body = await exchange.body()
        if generates:
            if state.faults.take_reset():
                exchange.reset()
                return
            if state.faults.take_unavailable():
                raise queue_full()
            await first_byte_delay(state)
        await handler(state, exchange, parse_json(body, exchange.header(b"content-type")), body)

    return serve


async def _empty_cache(_: ServerState, exchange: Exchange) -> None:
    """Its caches are part of the simulation and stay."""
    await exchange.body()
    await exchange.respond(200, b"")


def _generation_of(data: Any) -> Generation:
    """The route that a body to /invocations is for; what is for none meets the last one's sentence."""
    return chat_completions if isinstance(data, dict) and "messages" in data else completions


def _pooling_of(data: Any) -> Generation:
    keys = data if isinstance(data, dict) else {}
    if "messages" in keys or "input" in keys:
        return embeddings
    return rerank if "query" in keys else score


def _invocations(generation_of: Callable[[Any], Generation]) -> Generation:
    async def serve(state: ServerState, exchange: Exchange, data: Any, body: bytes) -> None:
        await generation_of(data)(state, exchange, data, body)

    return serve


def _posted(handlers: dict[str, Generation]) -> dict[str, dict[str, Handler]]:
    return {path: {"POST": _json_route(handler, generates=True)} for path, handler in handlers.items()}


_GENERATING = _posted(
    {
        "/v1/chat/completions": chat_completions,
        "/v1/chat/completions/batch": batch_completions,
        "/v1/messages": messages,
        "/v1/completions": completions,
        "/v1/responses": create_response,
        "/invocations": _invocations(_generation_of),
    }
)
_POOLING = _posted(
    {
        "/v1/embeddings": embeddings,
        "/v2/embed": embed,
        "/pooling": pooling,
        "/classify": classify,
        "/score": score,
        "/v1/score": score,
        "/rerank": rerank,
        "/v1/rerank": rerank,
        "/v2/rerank": rerank,
        "/invocations": _invocations(_pooling_of),
    }
)
_DEV_MODE: dict[str, dict[str, Handler]] = {
    path: {"POST": _empty_cache} for path in ("/reset_prefix_cache", "/reset_mm_cache", "/reset_encoder_cache")
}
_COUNTING: dict[str, dict[str, Handler]] = {
    "/v1/messages/count_tokens": {"POST": _json_route(count_tokens, generates=False)},
}
_ALWAYS: dict[str, dict[str, Handler]] = {
    "/tokenize": {"POST": _json_route(tokenize, generates=False)},
    "/detokenize": {"POST": _json_route(detokenize, generates=False)},
    "/v1/models": {"GET": _models},
    "/health": {"GET": _health},
    "/ping": {"GET": _health, "POST": _health},
    "/version": {"GET": _version},
    "/load": {"GET": _load},
    "/kv_event_sources": {"GET": _kv_event_sources},
    "/metrics": {"GET": _metrics},
}


def _routes_of(config: EmulatorConfig) -> dict[str, dict[str, Handler]]:
    runner = _POOLING if config.runner == "pooling" else _GENERATING | _COUNTING
    return {**runner, **_ALWAYS, **(_DEV_MODE if config.dev_mode else {})}
