"""The log line of one settled exchange. Values only: no picture, no prompt, no key ever comes near it."""

import secrets
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import blake2b
from itertools import zip_longest
from typing import Any

from gateway.domain.errors import GatewayError
from gateway.domain.outcome import Outcome
from gateway.domain.request import VisionRequest
from gateway.domain.resize import OPT_OUT, Preset
from gateway.domain.tenancy import Tenant
from gateway.domain.trim import new_images
from gateway.pipeline.exchange import Exchange
from gateway.pipeline.ladder import declare_rungs
from gateway.pipeline.would_be import WouldBe
from gateway.telemetry.declarations import ONLY_UPSTREAM
from gateway.telemetry.request_log import Picture, RequestRecord
from gateway.wire.declare import declare_images

# Of a picture's hash: not mistaken for another's among millions.
_DIGEST_BYTES = 6
_RESIZE_WORDS = frozenset({OPT_OUT, *Preset})
_NOTHING: dict[str, Any] = {}
_SALT = secrets.token_bytes(16)


def record_of(
    exchange: Exchange, outcome: Outcome, error: GatewayError | None, status: int | None, now: float
) -> RequestRecord:
    """`status` as the client saw it, None where it saw none; `now` is of the clock that the exchange's times are of."""
    request, cost, usage, arrived = exchange.request, exchange.cost, exchange.usage, exchange.arrived
    changed = declare_images(exchange.plans, exchange.trimmed, exchange.encoded_anew)
    time = datetime.now(UTC)
    return RequestRecord(
        time=time,
        request_id=exchange.request_id,
        client_request_id=exchange.client_request_id,
        tenant=exchange.tenant.tenant_class,
        priority=exchange.priority.label,
        deadline_ms=None if exchange.deadline is None else _milliseconds(exchange.deadline - arrived),
        outcome=outcome,
        endpoint=exchange.path[:200],
        method=exchange.method,
        model=exchange.model_name if exchange.model else None,
        asked_model=_asked_model(exchange),
        upstream=_upstream(exchange),
        failed_upstream=exchange.came_from.name if exchange.came_from else None,
        status=status,
        upstream_status=exchange.upstream_status,
        reason=error.reason if error else None,
        code=error.code if error else None,
        message=error.message if error else None,
        short=error.short if error else None,
        is_streaming=bool(request and request.stream),
        is_kept_alive=exchange.is_kept_alive,
        prompt_tokens=cost.prompt_tokens.expected if cost else None,
        visual_tokens=cost.visual_tokens if cost else None,
        output_tokens=cost.output_tokens * cost.answers if cost else None,
        actual_prompt_tokens=usage.prompt_tokens if usage else None,
        actual_output_tokens=usage.completion_tokens if usage else None,
        counted_output_tokens=exchange.counted_tokens,
        images=len(request.images) if request else 0,
        images_changed=changed.decode() if changed else None,
        body_bytes=exchange.body_bytes,
        pressure=round(sum(exchange.relieved.pressure[::2]), 3) if exchange.relieved else None,
        rungs=declare_rungs(exchange) or None,
        queue_ms=_milliseconds(exchange.queue_seconds),
        first_event_ms=_milliseconds(exchange.first_event_at - arrived) if exchange.first_event_at else None,
        total_ms=_milliseconds(exchange.ended - arrived),
        arrived=round(time.timestamp() - (now - arrived), 4),
        offered_ms=None if exchange.queued is None else _milliseconds(exchange.queued - arrived),
        tenant_id=_tenant_id(exchange.tenant),
        asked_priority=_asked_priority(exchange),
        is_return=exchange.is_return,
        prompts=request.prompts if request else 1,
        answers=cost.answers if cost else 1,
        max_tokens=_asked_tokens(exchange),
        text_tokens=cost.text_tokens if cost else None,
        prompt_token_ids=request.prompt_token_ids if request else 0,
        truncate_prompt_tokens=request.truncate_prompt_tokens if request else None,
        asked_resize=exchange.resize_preset if exchange.resize_preset in _RESIZE_WORDS else None,
        limits=exchange.limits,
        capacity=exchange.capacity,
        **(_NOTHING if exchange.would_be is None else _shadow_fields(exchange.would_be)),
        **(_image_fields(exchange, request) if request and request.images else _NOTHING),
    )


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 3)


def _asked_priority(exchange: Exchange) -> str | None:
    asked = exchange.asked_priority
    if asked is None and exchange.request is not None:
        asked = exchange.request.priority
    return None if asked is None else asked.label


def _asked_tokens(exchange: Exchange) -> int | None:
    """The client's own bound, also where pressure lowered it."""
    if exchange.relieved is not None and exchange.relieved.cap is not None:
        return exchange.relieved.asked_tokens
    return exchange.request.max_tokens if exchange.request else None


def _tenant_id(tenant: Tenant) -> str | None:
    """None where the class says it already."""
    return None if tenant.name in {"", tenant.tenant_class} else _pseudonym(tenant.name)


@lru_cache(maxsize=2048)
def _pseudonym(name: str) -> str:
    """Names of tenants whom the operator did not name come from their keys: a salt of this process alone makes it
    useless to guess at them.
    """
    return blake2b(name.encode(), digest_size=4, key=_SALT).hexdigest()


def _shadow_fields(would_be: WouldBe) -> dict[str, Any]:
    images, refusal = declare_images(would_be.plans, would_be.trimmed), would_be.refusal
    return {
        "shadow": would_be.fate,
        "shadow_reason": None if refusal is None else refusal.reason,
        "shadow_wait_ms": _milliseconds(would_be.wait_seconds),
        "shadow_images": images.decode() or None,
        "shadow_rungs": would_be.rungs or None,
    }


def _image_fields(exchange: Exchange, request: VisionRequest) -> dict[str, Any]:
    return {
        "text_bytes": request.text_bytes,
        "messages": len(request.messages),
        "pictures": _pictures(exchange, request),
        "new_images": len(new_images(request.messages)),
    }


def _pictures(exchange: Exchange, request: VisionRequest) -> list[Picture | None]:
    pictures: list[Picture | None] = [None] * len(request.images)
    digests = [digest[:_DIGEST_BYTES].hex() for digest, _ in exchange.sent_images]
    plans = exchange.plans if exchange.would_be is None else exchange.would_be.plans
    for plan, digest in zip_longest(plans, digests):
        info, is_low = plan.info, request.images[plan.ordinal].detail == "low"
        size = info.size
        pictures[plan.ordinal] = Picture(digest, info.format, size.width, size.height, plan.tokens, is_low)
    return pictures


def _asked_model(exchange: Exchange) -> str | None:
    """Where another served: by a name that the gateway knows, never the client's text."""
    fallback = exchange.fallback
    return None if fallback is None else fallback.home.models.served(fallback.asked.model).name


def _upstream(exchange: Exchange) -> str | None:
    """The server that got it, or before which it asked for a place."""
    name, has_met_it = exchange.backend.name, exchange.sent_at is not None or exchange.queued is not None
    return name if has_met_it and name != ONLY_UPSTREAM else None
