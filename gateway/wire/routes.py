"""Every route of vLLM 0.32, and what the gateway does with it; and those that are the gateway's own and take bodies.

A route is open only where its body is read and its cost known. What is closed, and why, stands in closed_routes.py;
its operator may open some of it. A route nobody knows does not exist.
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from gateway.domain.errors import Code, GatewayError
from gateway.wire.closed_routes import INVOCATIONS_PATH, OPERATOR, closed_sentence, why_closed

PREFLIGHT_PATH = "/gateway/preflight"
TRY_PATH = "/gateway/try"
TOKENIZE_PATH = "/tokenize"
COUNT_TOKENS_PATH = "/v1/messages/count_tokens"


class Kind(StrEnum):
    """How a route is served."""

    # Looked up several times with each request: an enumeration's own hash is a call of Python.
    __hash__ = str.__hash__

    CHAT = "chat"
    BATCH = "batch"
    MESSAGES = "messages"
    RESPONSES = "responses"
    STORED_RESPONSE = "stored_response"
    MESSAGE_TOKENS = "message_tokens"
    COMPLETIONS = "completions"
    EMBEDDINGS = "embeddings"
    POOLING = "pooling"
    COHERE_EMBED = "cohere_embed"
    SCORE = "score"
    RERANK = "rerank"
    TOKENIZE = "tokenize"
    INVOCATIONS = "invocations"
    GENERIC = "generic"
    MODELS = "models"
    PREFLIGHT = "preflight"
    TRY = "try"
    TOKENS = "tokens"
    OPENED = "opened"
    CLOSED = "closed"
    WRONG_METHOD = "wrong_method"
    UNKNOWN = "unknown"


ANSWERED_HERE = frozenset({Kind.PREFLIGHT, Kind.TRY, Kind.TOKENS})
"""No place in the engine's line is needed for these."""
WITHOUT_BODY = frozenset({Kind.MODELS, Kind.STORED_RESPONSE})
WITH_OWNER = frozenset({Kind.RESPONSES, Kind.STORED_RESPONSE, Kind.PREFLIGHT})
"""It makes a difference there who it was that asks."""


@dataclass(frozen=True, slots=True)
class Route:
    """Where a request leads.

    `methods` are those that the path answers (for `Allow`), `why` is the sentence of a closed route, `model_id` the
    model asked for; None asks for the list. `response_id` names the stored answer of Kind.STORED_RESPONSE.
    """

    kind: Kind
    path: str
    methods: tuple[str, ...] = ()
    why: str = ""
    model_id: str | None = None
    response_id: str | None = None

    @property
    def refusal(self) -> GatewayError | None:
        """The error that ends the request here, or None."""
        if self.kind is Kind.CLOSED:
            return GatewayError(Code.PERMISSION_DENIED, closed_sentence(self.path, self.why))
        if self.kind is Kind.WRONG_METHOD:
            allowed = ", ".join(self.methods)
            return GatewayError(Code.METHOD_NOT_ALLOWED, f"`{self.path}` answers {allowed} only.")
        if self.kind is Kind.UNKNOWN:
            return GatewayError(Code.NOT_FOUND, f"There is no route `{self.path[:200]}` here.")
        return None


_OPEN = {
    path: Route(kind, path, (method,))
    for path, kind, method in (
        ("/v1/chat/completions", Kind.CHAT, "POST"),
        ("/v1/chat/completions/batch", Kind.BATCH, "POST"),
        ("/v1/messages", Kind.MESSAGES, "POST"),
        ("/v1/responses", Kind.RESPONSES, "POST"),
        ("/v1/completions", Kind.COMPLETIONS, "POST"),
        ("/v1/embeddings", Kind.EMBEDDINGS, "POST"),
        ("/v2/embed", Kind.COHERE_EMBED, "POST"),
        ("/pooling", Kind.POOLING, "POST"),
        ("/classify", Kind.POOLING, "POST"),
        ("/score", Kind.SCORE, "POST"),
        ("/v1/score", Kind.SCORE, "POST"),
        ("/rerank", Kind.RERANK, "POST"),
        ("/v1/rerank", Kind.RERANK, "POST"),
        ("/v2/rerank", Kind.RERANK, "POST"),
        (TOKENIZE_PATH, Kind.TOKENS, "POST"),
        (COUNT_TOKENS_PATH, Kind.TOKENS, "POST"),
        ("/detokenize", Kind.GENERIC, "POST"),
        ("/v1/models", Kind.MODELS, "GET"),
        (PREFLIGHT_PATH, Kind.PREFLIGHT, "POST"),
        (TRY_PATH, Kind.TRY, "POST"),
    )
}

RARELY_ASKED = (
    "/v1/chat/completions/batch", "/v1/messages", "/v1/responses", "/v2/embed", "/pooling", "/classify", "/score",
    "/v1/score", "/rerank", "/v1/rerank", "/v2/rerank", TRY_PATH, INVOCATIONS_PATH,
)  # fmt: skip
"""Most gateways never see these."""
_INVOCATIONS = Route(Kind.INVOCATIONS, INVOCATIONS_PATH, ("POST",))
_MODEL_PREFIX = "/v1/models/"
_RESPONSE_PREFIX = "/v1/responses/"
_CANCEL = "/cancel"


_NOTHING_OPENED: frozenset[str] = frozenset()


def classify(method: str, path: str, opened: Collection[str] = _NOTHING_OPENED) -> Route:
    """What to do with a request. `path` is decoded, as ASGI hands it out; a trailing slash makes another path.
    `opened` are closed routes that the operator has opened.
    """
    route = _OPEN.get(path)
    if route is not None:
        return _if_allowed(route, method)
    model_id = path.removeprefix(_MODEL_PREFIX)
    if path.startswith(_MODEL_PREFIX) and model_id and not model_id.endswith("/"):
        return _if_allowed(Route(Kind.MODELS, path, ("GET",), model_id=model_id), method)
    if path in opened:
        return _if_allowed(_INVOCATIONS, method) if path == INVOCATIONS_PATH else Route(Kind.OPENED, path)
    why = why_closed(path)
    if why is not None:
        return Route(Kind.CLOSED, path, why=why)
    response_id = path.removeprefix(_RESPONSE_PREFIX).removesuffix(_CANCEL)
    if path.startswith(_RESPONSE_PREFIX) and response_id and "/" not in response_id:
        method_of = "POST" if path.endswith(_CANCEL) else "GET"
        return _if_allowed(Route(Kind.STORED_RESPONSE, path, (method_of,), response_id=response_id), method)
    return Route(Kind.UNKNOWN, path)


def open_routes() -> tuple[Route, ...]:
    """Those that have one path."""
    return tuple(_OPEN.values())


def passes_in_shadow(route: Route) -> bool:
    """What clients of vLLM may call although it ends here in earnest. Never what is for operators, nor what is unknown:
    it would go out under the gateway's own key.
    """
    if route.kind is Kind.CLOSED:
        return route.why != OPERATOR
    return route.kind is Kind.WRONG_METHOD and route.path not in {PREFLIGHT_PATH, TRY_PATH}


def sent_on(route: Route) -> Route:
    """A route of Kind.TOKENS for a client that does not want the gateway's own count."""
    kind = Kind.MESSAGE_TOKENS if route.path == COUNT_TOKENS_PATH else Kind.TOKENIZE
    return Route(kind, route.path, route.methods)


def _if_allowed(route: Route, method: str) -> Route:
    return route if method in route.methods else Route(Kind.WRONG_METHOD, route.path, route.methods)
