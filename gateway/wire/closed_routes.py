"""Routes of vLLM 0.32 that the gateway closes, why, and which of them its operator may open."""

from collections.abc import Mapping

INVOCATIONS_PATH = "/invocations"

_USE_CHAT = "its images are not inspected. Use /v1/chat/completions."
_AUDIO = "audio files and speech are not inspected."
OPERATOR = "it is for operators, who reach vLLM directly."
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
_SOCKET_PATH = "/v1/realtime"
CLOSED: Mapping[str, str] = dict.fromkeys(_OPERATOR_PATHS, OPERATOR) | {
    "/cohere/v2/chat": _USE_CHAT,
    "/v1/systemone": _USE_CHAT,
    "/generative_scoring": _USE_CHAT,
    INVOCATIONS_PATH: "it stands for any other route by the shape of its body. Call that route itself.",
    "/ping": "health is answered on /livez and /readyz.",
    "/v1/audio/transcriptions": _AUDIO,
    "/v1/audio/translations": _AUDIO,
    _SOCKET_PATH: "it is a WebSocket, and there are none here.",
    "/cohere/v2/chat/render": _SCALE_OUT,
    "/v1/messages/render": _SCALE_OUT,
    "/v1/completions/render": _SCALE_OUT,
    "/v1/chat/completions/render": _SCALE_OUT,
    "/v1/responses/render": _SCALE_OUT,
    "/v1/completions/derender": _SCALE_OUT,
    "/v1/chat/completions/derender": _SCALE_OUT,
}
_CLOSED_BELOW = {"/inference/": _SCALE_OUT, "/fault_tolerance/": OPERATOR}


def why_closed(path: str) -> str | None:
    """The sentence about a closed route; None for any other path."""
    return CLOSED.get(path) or next((why for start, why in _CLOSED_BELOW.items() if path.startswith(start)), None)


def can_be_opened(path: str) -> bool:
    """Some operator may want it: it is closed, and not because it cannot be served at all."""
    return path != _SOCKET_PATH and path not in _CLOSED_BELOW and why_closed(path) is not None


def closed_sentence(path: str, why: str) -> str:
    """What its client is told, with what would open it."""
    path = path[:200]
    opening = f" `routes.open: [{path}]` in the gateway's settings would open it." if can_be_opened(path) else ""
    return f"`{path}` is closed here: {why}{opening}"
