"""The log line of one settled exchange. Values only: no picture, no prompt, no key ever comes near it."""

from datetime import UTC, datetime

from gateway.domain.errors import GatewayError
from gateway.domain.outcome import Outcome
from gateway.pipeline.exchange import Exchange
from gateway.telemetry.request_log import RequestRecord
from gateway.wire.declare import declare_images


def record_of(exchange: Exchange, outcome: Outcome, error: GatewayError | None, status: int | None) -> RequestRecord:
    """`status` as the client saw it, None where it saw none."""
    request, cost, usage = exchange.request, exchange.cost, exchange.usage
    changed = declare_images(exchange.plans, exchange.trimmed, exchange.encoded_anew)
    return RequestRecord(
        time=datetime.now(UTC),
        request_id=exchange.request_id,
        client_request_id=exchange.client_request_id,
        tenant=exchange.tenant.tenant_class,
        priority=exchange.priority.label,
        deadline_ms=None if exchange.deadline is None else _milliseconds(exchange.deadline - exchange.arrived),
        outcome=outcome,
        endpoint=exchange.path[:200],
        method=exchange.method,
        model=exchange.model_name if exchange.model else None,
        status=status,
        upstream_status=exchange.upstream_status,
        reason=error.reason if error else None,
        code=error.code if error else None,
        message=error.message if error else None,
        short=error.short if error else None,
        is_streaming=bool(request and request.stream),
        prompt_tokens=cost.prompt_tokens.expected if cost else None,
        visual_tokens=cost.visual_tokens if cost else None,
        output_tokens=cost.output_tokens * cost.answers if cost else None,
        actual_prompt_tokens=usage.prompt_tokens if usage else None,
        actual_output_tokens=usage.completion_tokens if usage else None,
        images=len(request.images) if request else 0,
        images_changed=changed.decode() if changed else None,
        body_bytes=exchange.body_bytes,
        queue_ms=_milliseconds(exchange.queue_seconds),
        first_event_ms=_milliseconds(exchange.first_event_at - exchange.arrived) if exchange.first_event_at else None,
        total_ms=_milliseconds(exchange.ended - exchange.arrived),
    )


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 3)
