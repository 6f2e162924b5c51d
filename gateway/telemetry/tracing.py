"""Traces, where the extra `otel` is installed and `tracing.enabled` is set: a span for each request, as a child of the
client's, with the time in line and the time at the model server below it. Names are those of OpenTelemetry's
conventions for generative AI (gen_ai.*, 1.37); what they have no name for is under `gateway.`. No content, ever.

Where spans go, and how many are kept, is said by OpenTelemetry's own variables (OTEL_EXPORTER_OTLP_ENDPOINT,
OTEL_TRACES_SAMPLER, OTEL_SERVICE_NAME).
"""

from collections.abc import Iterator

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import SpanKind, Status, StatusCode, Tracer, format_trace_id, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from gateway import __version__
from gateway.domain.outcome import Outcome
from gateway.telemetry.request_log import RequestRecord
from gateway.telemetry.trace import Headers

_PROVIDER = "vllm"
_CARRIED = (b"traceparent", b"tracestate")
_OPERATIONS = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "text_completion",
    "/v1/embeddings": "embeddings",
}
_NANOSECONDS = 1_000_000_000
_propagator = TraceContextTextMapPropagator()


class Trace:
    """The span of one request, from its beginning. `id` is told to others only where the trace is kept."""

    __slots__ = ("_context", "_span", "_tracer", "id")

    def __init__(self, tracer: Tracer, parent: Context) -> None:
        self._tracer = tracer
        self._span = span = tracer.start_span("request", parent, kind=SpanKind.SERVER)
        self._context = set_span_in_context(span, parent)
        context = span.get_span_context()
        self.id = format_trace_id(context.trace_id) if context.trace_flags.sampled else None

    def onward(self, headers: Headers) -> list[tuple[bytes, bytes]]:
        """Those of the request to the model server, whose own spans then are below this one."""
        carrier: dict[str, str] = {}
        _propagator.inject(carrier, self._context)
        kept = [header for header in headers if header[0] not in _CARRIED]
        return [*kept, *((name.encode(), value.encode()) for name, value in carrier.items())]

    def end(self, record: RequestRecord) -> None:
        """The request has ended, as its line in the log says."""
        if not self._span.is_recording():
            return
        self._span.update_name(name_of(record))
        self._span.set_attributes(attributes_of(record))
        if record.outcome not in {Outcome.FINISHED, Outcome.CLIENT_LEFT}:
            self._span.set_status(Status(StatusCode.ERROR, record.reason or record.outcome))
        self._add_parts(record)
        self._span.end(_at(record, record.total_ms))

    def _add_parts(self, record: RequestRecord) -> None:
        for name, kind, begun_ms, ended_ms in parts_of(record):
            span = self._tracer.start_span(name, self._context, kind=kind, start_time=_at(record, begun_ms))
            if kind is SpanKind.CLIENT and record.first_event_ms is not None:
                span.add_event("gen_ai.first_token", timestamp=_at(record, record.first_event_ms))
            span.end(_at(record, ended_ms))


class Tracing:
    """One for each process. `exporter` takes finished spans in batches, from a thread of its own."""

    def __init__(self, exporter: SpanExporter | None = None) -> None:
        resource = Resource.create({SERVICE_NAME: "vlm-gateway"} | _service_name_of_the_environment())
        self._provider = TracerProvider(resource=resource)
        self._provider.add_span_processor(BatchSpanProcessor(exporter or OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("vlm-gateway", __version__)

    def begin(self, headers: Headers) -> Trace:
        """A request came with these headers."""
        carrier = {name.decode(): value.decode("latin-1") for name, value in headers if name in _CARRIED}
        return Trace(self._tracer, _propagator.extract(carrier, Context()))

    def close(self) -> None:
        """Sends what is still here. Blocking."""
        self._provider.shutdown()


def name_of(record: RequestRecord) -> str:
    operation = _OPERATIONS.get(record.endpoint)
    if operation is None:
        return record.method
    return operation if record.model is None else f"{operation} {record.model}"


def attributes_of(record: RequestRecord) -> dict[str, AttributeValue]:
    """Without those that are not known."""
    found: dict[str, AttributeValue | None] = {
        "gen_ai.operation.name": _OPERATIONS.get(record.endpoint),
        "gen_ai.provider.name": _PROVIDER,
        "gen_ai.request.model": record.model,
        "gen_ai.request.max_tokens": record.max_tokens,
        "gen_ai.usage.input_tokens": record.actual_prompt_tokens,
        "gen_ai.usage.output_tokens": record.actual_output_tokens,
        "error.type": record.reason,
        "http.request.method": record.method,
        "http.response.status_code": record.status,
        "url.path": record.endpoint if record.endpoint in _OPERATIONS else None,
        "gateway.request_id": record.request_id,
        "gateway.outcome": record.outcome,
        "gateway.priority": record.priority,
        "gateway.tenant_class": record.tenant,
        "gateway.predicted.input_tokens": record.prompt_tokens,
        "gateway.predicted.visual_tokens": record.visual_tokens,
        "gateway.reserved.output_tokens": record.output_tokens,
        "gateway.images": record.images,
    }
    return {name: value for name, value in found.items() if value is not None}


def parts_of(record: RequestRecord) -> Iterator[tuple[str, SpanKind, float, float]]:
    """Name, kind, beginning and end (ms since it came) of what lies within the span of a request."""
    if record.offered_ms is None:
        return
    assert record.queue_ms is not None
    assert record.total_ms is not None
    let_in_ms = min(record.offered_ms + record.queue_ms, record.total_ms)
    yield "wait in line", SpanKind.INTERNAL, record.offered_ms, let_in_ms
    if record.upstream_status is not None:
        yield "model server", SpanKind.CLIENT, let_in_ms, record.total_ms


def _at(record: RequestRecord, milliseconds: float | None) -> int:
    assert record.arrived is not None
    assert milliseconds is not None
    return int((record.arrived + milliseconds / 1000) * _NANOSECONDS)


def _service_name_of_the_environment() -> dict[str, str]:
    """Resource.create reads it too, but what is given goes before what is read."""
    named = Resource.create().attributes.get(SERVICE_NAME)
    return {} if named is None or str(named).startswith("unknown_service") else {SERVICE_NAME: str(named)}
