"""Lines of a request log, as replay reads them."""

from typing import Any

from gateway.domain.cost import EngineLimits
from gateway.domain.outcome import Outcome, Reason
from gateway.domain.quantities import Bounds
from gateway.replay.lines import Line
from gateway.telemetry.request_log import Picture

MODEL = "Qwen/Qwen2.5-VL-7B-Instruct"
LIMITS = EngineLimits(max_model_len=32_768, kv_blocks=1000)
CAPACITY = (950, 128, None, 40_000_000)


def line(arrived: float = 0.0, **fields: Any) -> Line:
    """A stream of 10 tokens that came at once and took one second; 160 tokens of text."""
    usual: dict[str, Any] = {
        "outcome": Outcome.FINISHED,
        "endpoint": "/v1/chat/completions",
        "model": MODEL,
        "is_streaming": True,
        "body_bytes": 500,
        "max_tokens": 64,
        "prompt_tokens": 160,
        "text_tokens": Bounds.exact(160),
        "limits": LIMITS,
        "capacity": CAPACITY,
        "upstream_status": 200,
        "actual_output_tokens": 10,
        "offered_ms": 0.0,
        "first_event_ms": 100.0,
        "total_ms": 1000.0,
    }
    usual |= fields
    usual["outcome"] = Outcome(usual["outcome"])
    if usual.get("reason"):
        usual["reason"] = Reason(usual["reason"])
    if usual["text_tokens"]:
        usual["text_tokens"] = Bounds(*usual["text_tokens"])
    return Line(arrived=arrived, **usual)


def refused(arrived: float = 0.0, **fields: Any) -> Line:
    """Refused before its body was read."""
    unread: dict[str, Any] = dict.fromkeys(("text_tokens", "limits", "offered_ms", "upstream_status", "model"))
    unread |= {"outcome": Outcome.REFUSED, "reason": "queue_full", "first_event_ms": None, "total_ms": 1.0}
    return line(arrived, **unread | {"actual_output_tokens": None, "capacity": None} | fields)


def picture(width: int = 112, height: int = 112, digest: str | None = "a", **fields: Any) -> Picture:
    return Picture(digest, "jpeg", width, height, 16, **fields)


def shown(*pictures: Picture | None, new: int = 1, **fields: Any) -> dict[str, Any]:
    """Fields of a line with these pictures, the last `new` of which came after the last answer."""
    messages = 1 if new == len(pictures) else 3
    return {
        "images": len(pictures), "pictures": list(pictures), "new_images": new, "messages": messages, "text_bytes": 480,
    } | fields  # fmt: skip
