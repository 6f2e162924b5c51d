"""Every route of vLLM 0.32, and what the gateway does with it; and those that are the gateway's own and take bodies.

A route is open only where its body is read and its cost known. Routes that can carry media and are not read yet,
and routes for operators, are closed; a route nobody knows does not exist.
"""

from dataclasses import dataclass
from enum import StrEnum

from gateway.domain.errors import Code, GatewayError

PREFLIGHT_PATH = "/gateway/preflight"
TRY_PATH = "/gateway/try"
TOKENIZE_PATH = "/tokenize"
COUNT_TOKENS_PATH = "/v1/messages/count_tokens"


class Kind(StrEnum):
    """How a route is served."""

    CHAT = "chat"
    BATCH = "batch"
    MESSAGES = "messages"
    MESSAGE_TOKENS = "message_tokens"
    COMPLETIONS = "completions"
    EMBEDDINGS = "embeddings"
    GENERIC = "generic"
    MODELS = "models"
    PREFLIGHT = "preflight"
    TRY = "try"
    TOKENS = "tokens"
    CLOSED = "closed"
    WRONG_METHOD = "wrong_method"
    UNKNOWN = "unknown"


ANSWERED_HERE = frozenset({Kind.PREFLIGHT, Kind.TRY, Kind.TOKENS})
"""No place in the engine's line is needed for these."""


@dataclass(frozen=True, slots=True)
class Route:
    """Where a request leads.

    `methods` are those that the path answers (for `Allow`), `why` is the sentence of a closed route, `model_id` the
    model asked for; None asks for the list.
    """

    kind: Kind
    path: str
    methods: tuple[str, ...] = ()
    why: str = ""
    model_id: str | None = None

    @property
    def refusal(self) -> GatewayError | None:
        """The error that ends the request here, or None."""
        if self.kind is Kind.CLOSED:
            return GatewayError(Code.PERMISSION_DENIED, f"`{self.path}` is closed here: {self.why}")
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
        ("/v1/completions", Kind.COMPLETIONS, "POST"),
        ("/v1/embeddings", Kind.EMBEDDINGS, "POST"),
        (TOKENIZE_PATH, Kind.TOKENS, "POST"),
        (COUNT_TOKENS_PATH, Kind.TOKENS, "POST"),
        ("/detokenize", Kind.GENERIC, "POST"),
        ("/v1/models", Kind.MODELS, "GET"),
        (PREFLIGHT_PATH, Kind.PREFLIGHT, "POST"),
        (TRY_PATH, Kind.TRY, "POST"),
    )
}

_USE_CHAT = "its images are not yet inspected. Use /v1/chat/completions."
_USE_EMBEDDINGS = "its media is not yet inspected. For text, use /v1/embeddings."
_AUDIO = "audio is not yet supported."
_OPERATOR = "it is for operators, who reach vLLM directly."
_SCALE_OUT = "it takes prepared model inputs whose cost cannot be checked."

_OPERATOR_PATHS = (
    "/tokenizer_info",
    "/v1/load_lora_adapter",
    "/v1/unload_lora_adapter",
    "/load",
    "/kv_event_sources",
    "/scale_elastic_ep",
    "/is_scaling_elastic_ep",
    "/server_info",
    "/sleep",
    "/wake_up",
    "/is_sleeping",
    "/pause",
    "/resume",
    "/is_paused",
    "/abort_requests",
    "/update_weights",
    "/release_kv_cache_memory",
    "/reset_prefix_cache",
    "/reset_mm_cache",
    "/reset_encoder_cache",
    "/collective_rpc",
    "/start_profile",
    "/stop_profile",
    "/init_weight_transfer_engine",
    "/shutdown_weight_transfer_engine",
    "/start_weight_update",
    "/start_draft_weight_update",
    "/finish_weight_update",
    "/update_weight_version",
    "/weight_info",
    "/weight_checker",
    "/get_world_size",
)

_CLOSED = dict.fromkeys(_OPERATOR_PATHS, _OPERATOR) | {
    "/v1/responses": "its images, and histories stored on the server, are not yet inspected. Use /v1/chat/completions.",
    "/cohere/v2/chat": _USE_CHAT,
    "/v1/systemone": _USE_CHAT,
    "/generative_scoring": _USE_CHAT,
    "/invocations": "it stands for any other route by the shape of its body. Call that route itself.",
    "/ping": "health is answered on /livez and /readyz.",
    "/v2/embed": _USE_EMBEDDINGS,
    "/pooling": _USE_EMBEDDINGS,
    "/classify": _USE_EMBEDDINGS,
    "/score": _USE_EMBEDDINGS,
    "/v1/score": _USE_EMBEDDINGS,
    "/rerank": _USE_EMBEDDINGS,
    "/v1/rerank": _USE_EMBEDDINGS,
    "/v2/rerank": _USE_EMBEDDINGS,
    "/v1/audio/transcriptions": _AUDIO,
    "/v1/audio/translations": _AUDIO,
    "/v1/realtime": _AUDIO,
    "/cohere/v2/chat/render": _SCALE_OUT,
    "/v1/messages/render": _SCALE_OUT,
    "/v1/completions/render": _SCALE_OUT,
    "/v1/chat/completions/render": _SCALE_OUT,
    "/v1/completions/derender": _SCALE_OUT,
    "/v1/chat/completions/derender": _SCALE_OUT,
}
_CLOSED_BELOW = {
    "/v1/responses/": _CLOSED["/v1/responses"],
    "/inference/": _SCALE_OUT,
    "/fault_tolerance/": _OPERATOR,
}
_MODEL_PREFIX = "/v1/models/"


def classify(method: str, path: str) -> Route:
    """What to do with a request. `path` is decoded, as ASGI hands it out; a trailing slash makes another path."""
    route = _OPEN.get(path)
    if route is not None:
        return _if_allowed(route, method)
    model_id = path.removeprefix(_MODEL_PREFIX)
    if path.startswith(_MODEL_PREFIX) and model_id and not model_id.endswith("/"):
        return _if_allowed(Route(Kind.MODELS, path, ("GET",), model_id=model_id), method)
    why = _CLOSED.get(path) or next((why for start, why in _CLOSED_BELOW.items() if path.startswith(start)), None)
    return Route(Kind.UNKNOWN, path) if why is None else Route(Kind.CLOSED, path, why=why)


def passes_in_shadow(route: Route) -> bool:
    """What clients of vLLM may call although it ends here in earnest. Never what is for operators, nor what is unknown:
    it would go out under the gateway's own key.
    """
    if route.kind is Kind.CLOSED:
        return route.why != _OPERATOR
    return route.kind is Kind.WRONG_METHOD and route.path not in {PREFLIGHT_PATH, TRY_PATH}


def sent_on(route: Route) -> Route:
    """A route of Kind.TOKENS for a client that does not want the gateway's own count."""
    kind = Kind.MESSAGE_TOKENS if route.path == COUNT_TOKENS_PATH else Kind.GENERIC
    return Route(kind, route.path, route.methods)


def _if_allowed(route: Route, method: str) -> Route:
    return route if method in route.methods else Route(Kind.WRONG_METHOD, route.path, route.methods)
