"""The log line of one settled exchange. Values only: no picture, no prompt, no key ever comes near it."""

import secrets
import time
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import blake2b
from itertools import zip_longest
from typing import Any

from msgspec.structs import replace

from gateway.domain.errors import GatewayError
from gateway.domain.media import MediaKind, counts_by_kind
from gateway.domain.outcome import Outcome
from gateway.domain.request import VisionRequest
from gateway.domain.resize import OPT_OUT, Preset
from gateway.domain.tenancy import Tenant
from gateway.domain.trim import new_images
from gateway.pipeline.exchange import Exchange
from gateway.pipeline.ladder import declare_rungs
from gateway.pipeline.pricing import visual_bounds
from gateway.pipeline.would_be import WouldBe
from gateway.telemetry.declarations import ONLY_UPSTREAM
from gateway.telemetry.request_log import Picture, RequestRecord
from gateway.wire.declare import declare_images

# Of a picture's hash: not mistaken for another's among millions.
_DIGEST_BYTES = 6
_RESIZE_WORDS = frozenset({OPT_OUT, *Preset})
_SALT = secrets.token_bytes(16)


def record_of(
    exchange: Exchange, outcome: Outcome, error: GatewayError | None, status: int | None, now: float
) -> RequestRecord:
    """`status` as the client saw it, None where it saw none; `now` is of the clock that the exchange's times are of."""
    request, cost, usage, arrived = exchange.request, exchange.cost, exchange.usage, exchange.arrived
    record = RequestRecord(
        time=datetime.now(UTC),
        request_id=exchange.request_id,
        outcome=outcome,
        endpoint=exchange.path[:200],
        method=exchange.method,
        tenant=exchange.tenant.tenant_class,
        tenant_id=_tenant_id(exchange.tenant),
        priority=exchange.priority.label,
        model=exchange.model.name if exchange.model else None,
        status=status,
        upstream_status=exchange.upstream_status,
        is_streaming=request is not None and request.stream,
        prompt_tokens=cost.prompt_tokens.expected if cost else None,
        visual_tokens=cost.visual_tokens if cost else None,
        output_tokens=cost.output_tokens * cost.answers if cost else None,
        actual_prompt_tokens=usage.prompt_tokens if usage else None,
        actual_output_tokens=usage.completion_tokens if usage else None,
        used=exchange.used,
        body_bytes=exchange.body_bytes,
        queue_ms=_milliseconds(exchange.queue_seconds),
        first_event_ms=_milliseconds(exchange.first_event_at - arrived) if exchange.first_event_at else None,
        total_ms=_milliseconds(exchange.ended - arrived),
        arrived=round(time.time() - (now - arrived), 4),
        offered_ms=None if exchange.queued is None else _milliseconds(exchange.queued - arrived),
        max_tokens=_asked_tokens(exchange),
        text_tokens=cost.text_tokens if cost else None,
        limits=exchange.limits,
        capacity=exchange.capacity,
    )
    rare = _rare_fields(exchange, error)
    return replace(record, **rare) if rare else record


def _rare_fields(exchange: Exchange, error: GatewayError | None) -> dict[str, Any]:
    """What most lines leave out: to name all the fields every time costs twice as much."""
    fields: dict[str, Any] = {}
    if error is not None:
        fields |= {"reason": error.reason, "code": error.code, "message": error.message, "short": error.short}
    if exchange.request is not None:
        fields |= _request_fields(exchange, exchange.request)
    if exchange.fetch_seconds:
        fields["fetch_ms"] = _milliseconds(exchange.fetch_seconds)
    if exchange.cost is not None and exchange.cost.answers != 1:
        fields["answers"] = exchange.cost.answers
    if exchange.cost is not None and exchange.model is not None:
        bounds = visual_bounds(exchange.model, exchange.cost)
        fields |= {} if bounds is None else {"visual_tokens_least": bounds.lower, "visual_why": bounds.why}
    if exchange.counted_tokens is not None:
        fields["counted_output_tokens"] = exchange.counted_tokens
    if exchange.relieved is not None:
        fields["pressure"] = round(sum(exchange.relieved.pressure[::2]), 3)
        fields["rungs"] = declare_rungs(exchange) or None
    if exchange.would_be is not None:
        fields |= _shadow_fields(exchange.would_be)
    return fields | _header_fields(exchange) | _server_fields(exchange)


def _header_fields(exchange: Exchange) -> dict[str, Any]:
    """What the client asked for beside its body."""
    fields: dict[str, Any] = {}
    if exchange.client_request_id is not None:
        fields["client_request_id"] = exchange.client_request_id
    if exchange.deadline is not None:
        fields["deadline_ms"] = _milliseconds(exchange.deadline - exchange.arrived)
    if exchange.resize_preset in _RESIZE_WORDS:
        fields["asked_resize"] = exchange.resize_preset
    if exchange.asked_priority is not None:
        fields["asked_priority"] = exchange.asked_priority.label
    if exchange.is_return:
        fields["is_return"] = True
    return fields


def _request_fields(exchange: Exchange, request: VisionRequest) -> dict[str, Any]:
    fields = _image_fields(exchange, request) if request.images else {}
    if request.media:
        fields |= _media_fields(exchange, request)
    if request.prompts != 1:
        fields["prompts"] = request.prompts
    if request.prompt_token_ids:
        fields["prompt_token_ids"] = request.prompt_token_ids
    if request.truncate_prompt_tokens is not None:
        fields["truncate_prompt_tokens"] = request.truncate_prompt_tokens
    if request.priority is not None:
        fields["asked_priority"] = request.priority.label
    return fields


def _server_fields(exchange: Exchange) -> dict[str, Any]:
    """Where it went on its way: the server that got it, or before which it asked for a place."""
    fields: dict[str, Any] = {}
    name, has_met_it = exchange.backend.name, exchange.sent_at is not None or exchange.queued is not None
    if has_met_it and name != ONLY_UPSTREAM:
        fields["upstream"] = name
    if exchange.came_from is not None:
        fields["failed_upstream"] = exchange.came_from.name
    if exchange.alias is not None:
        fields["asked_model"] = exchange.alias
    elif exchange.fallback is not None:
        # By a name that the gateway knows, never the client's text.
        fields["asked_model"] = exchange.fallback.home.models.served(exchange.fallback.asked.model).name
    if exchange.is_kept_alive:
        fields["is_kept_alive"] = True
    return fields


def _milliseconds(seconds: float) -> float:
    """To the microsecond, in a third of the time that `round` takes."""
    return int(seconds * 1_000_000 + 0.5) / 1000


def _asked_tokens(exchange: Exchange) -> int | None:
    """The client's own bound, also where pressure lowered it."""
    if exchange.relieved is not None and exchange.relieved.cap is not None:
        return exchange.relieved.asked_tokens
    return exchange.request.max_tokens if exchange.request else None


def _tenant_id(tenant: Tenant) -> str | None:
    """None where the class says it already."""
    if tenant.name in {"", tenant.tenant_class}:
        return None
    return tenant.name if tenant.is_named else _pseudonym(tenant.name)


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
    changed = declare_images(exchange.plans, exchange.trimmed, exchange.encoded_anew)
    return {
        "images": len(request.images),
        "images_changed": changed.decode() or None,
        "text_bytes": request.text_bytes,
        "messages": len(request.messages),
        "pictures": _pictures(exchange, request),
        "new_images": len(new_images(request.conversations)),
    }


def _media_fields(exchange: Exchange, request: VisionRequest) -> dict[str, Any]:
    counts = counts_by_kind(request.media)
    return {
        "videos": counts[MediaKind.VIDEO],
        "audios": counts[MediaKind.AUDIO],
        "media_tokens": exchange.cost.media_tokens if exchange.cost else 0,
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
