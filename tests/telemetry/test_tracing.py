"""Spans of requests through a whole gateway, collected in memory, and what the model server is told of them."""

import re

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from gateway.telemetry import tracing
from tests.support.live_gateway import CHAT, chat, live_gateway
from tests.support.model_server import model_server, posts

TRACE_ID, CLIENT_SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
ASKED = {"traceparent": f"00-{TRACE_ID}-{CLIENT_SPAN}-01", "tracestate": "vendor=1"}
OPENMETRICS = {"accept": "application/openmetrics-text; version=1.0.0"}


@pytest.fixture
def exporter(monkeypatch):
    kept = InMemorySpanExporter()
    monkeypatch.setattr(tracing, "OTLPSpanExporter", lambda: kept)
    return kept


@pytest.fixture
async def house(stack, exporter):
    async def house(**sections):
        upstream = await stack.enter_async_context(model_server())
        gateway = await stack.enter_async_context(
            live_gateway(upstream.base_url, tracing={"enabled": True}, **sections)
        )
        await gateway.until_up()
        return gateway, upstream

    return house


async def spans_of(gateway, exporter):
    """By name, once the gateway has handed them over."""
    await gateway.until_released()
    gateway.application._running.proxy._parts.tracing._provider.force_flush()
    return {span.name: span for span in exporter.get_finished_spans()}


async def test_a_request_is_a_child_of_the_clients_span_and_the_model_servers_is_a_child_of_it(house, exporter):
    gateway, upstream = await house()
    answer = await gateway.http.post(CHAT, json=chat("Hello", max_tokens=7), headers=ASKED)
    assert answer.status_code == 200
    spans = await spans_of(gateway, exporter)
    span = spans["chat tiny"]
    assert (f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE_ID, CLIENT_SPAN)
    assert (span.kind, span.status.status_code) == (SpanKind.SERVER, StatusCode.UNSET)
    (told,) = posts(upstream)
    assert told.header("traceparent") == [f"00-{TRACE_ID}-{span.context.span_id:016x}-01"]
    assert told.header("tracestate") == ["vendor=1"]
    for name in ("wait in line", "model server"):
        part = spans[name]
        assert part.parent.span_id == span.context.span_id
        assert span.start_time - 5_000_000 <= part.start_time <= part.end_time <= span.end_time
    attributes = dict(span.attributes)
    assert attributes["gen_ai.operation.name"] == "chat"
    assert attributes["gen_ai.request.model"] == "tiny"
    assert attributes["gen_ai.request.max_tokens"] == 7
    assert attributes["gen_ai.usage.input_tokens"] > 0
    assert attributes["gateway.predicted.input_tokens"] > 0
    assert attributes["http.response.status_code"] == 200


async def test_a_stream_tells_when_its_first_token_came(house, exporter):
    gateway, _ = await house()
    assert (await gateway.chat("Hello", stream=True)).status_code == 200
    part = (await spans_of(gateway, exporter))["model server"]
    (event,) = part.events
    assert event.name == "gen_ai.first_token"
    assert part.start_time <= event.timestamp <= part.end_time


async def test_a_refusal_is_an_error_with_its_reason_and_has_no_parts(house, exporter):
    gateway, _ = await house(server={"seats": 0})
    assert (await gateway.chat("Hello")).status_code == 429
    (span,) = (await spans_of(gateway, exporter)).values()
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "queue_full")
    assert span.attributes["error.type"] == "queue_full"
    assert span.attributes["gateway.outcome"] == "refused"


async def test_no_word_of_a_request_is_in_a_span(house, exporter):
    gateway, _ = await house()
    await gateway.http.post(CHAT, json=chat("a secret word"), headers={"authorization": "Bearer sk-secret"})
    spans = await spans_of(gateway, exporter)
    assert "chat tiny" in spans
    for span in spans.values():
        assert "secret" not in f"{span.name} {dict(span.attributes)} {span.events}"


async def test_one_that_the_client_does_not_keep_is_passed_on_and_not_kept(house, exporter):
    gateway, upstream = await house()
    unsampled = {"traceparent": f"00-{TRACE_ID}-{CLIENT_SPAN}-00"}
    assert (await gateway.http.post(CHAT, json=chat("Hello"), headers=unsampled)).status_code == 200
    assert await spans_of(gateway, exporter) == {}
    (told,) = posts(upstream)
    (parent,) = told.header("traceparent")
    assert re.fullmatch(f"00-{TRACE_ID}-[0-9a-f]{{16}}-00", parent)
    assert "trace_id" not in (await gateway.http.get("/metrics", headers=OPENMETRICS)).text


async def test_without_a_parent_or_with_a_broken_one_a_trace_begins_here(house, exporter):
    gateway, _ = await house()
    await gateway.http.post(CHAT, json=chat("Hello"), headers={"traceparent": "00-nonsense"})
    assert (await spans_of(gateway, exporter))["chat tiny"].parent is None


async def test_waits_in_line_name_the_trace_that_shows_one(house, exporter):
    gateway, _ = await house()
    await gateway.http.post(CHAT, json=chat("Hello"), headers=ASKED)
    await spans_of(gateway, exporter)
    page = (await gateway.http.get("/metrics", headers=OPENMETRICS)).text
    shown = [line for line in page.splitlines() if "trace_id" in line]
    assert shown
    assert all(line.startswith("gateway_queue_wait_seconds_bucket") for line in shown)
    assert f'# {{trace_id="{TRACE_ID}"}}' in shown[0]
    assert "trace_id" not in (await gateway.http.get("/metrics")).text, "the older format has no place for it"


@pytest.mark.parametrize(("path", "name"), [("/v1/models", "GET"), ("/nowhere", "GET")])
async def test_what_is_no_inference_is_named_by_its_method(house, exporter, path, name):
    gateway, _ = await house()
    await gateway.http.get(path)
    assert name in await spans_of(gateway, exporter)


async def test_with_the_log_off_there_are_traces_all_the_same(house, exporter):
    gateway, _ = await house(log={"requests": False})
    await gateway.chat("Hello")
    assert "chat tiny" in await spans_of(gateway, exporter)


def test_the_services_name_may_be_the_operators(monkeypatch, exporter):
    assert tracing.Tracing()._provider.resource.attributes["service.name"] == "vlm-gateway"
    monkeypatch.setenv("OTEL_SERVICE_NAME", "front")
    assert tracing.Tracing()._provider.resource.attributes["service.name"] == "front"
