"""The model servers as the gateway sees them: there or not, working or not, and what else they do and run on."""

from scripts.dashboards import promql
from scripts.dashboards.dashboards import Dashboard
from scripts.dashboards.panels import Panel, Query, Row, graph, number
from scripts.dashboards.promql import of

_LEGEND = "{{upstream}}"


def _gauge(title: str, description: str, metric: str, unit: str = "short", runbook: str | None = None) -> Panel:
    """Of each upstream, over all gateways."""
    query = promql.summed(f"{metric}{of('upstream')}", "upstream")
    return graph(title, description, Query(query, _LEGEND), unit=unit, runbook=runbook)


_STATE = Row(
    "State",
    [
        number(
            "Up",
            "1 where the server's HTTP side answers every gateway; not proof that its engine works.",
            Query(promql.lowest(f"gateway_upstream_up{of('upstream')}", "upstream"), _LEGEND),
            unit="short",
            width=12,
            most=1,
            runbook="VlmGatewayUpstreamDown",
        ),
        number(
            "Healthy",
            "0 while requests go to others where there are some: down, failing, or owing answers without working.",
            Query(promql.lowest(f"gateway_upstream_healthy{of('upstream')}", "upstream"), _LEGEND),
            unit="short",
            width=12,
            most=1,
            runbook="VlmGatewayUpstreamUnhealthy",
        ),
    ],
)

_WORK = Row(
    "Work",
    [
        _gauge("Requests in flight", "Sent, and not answered to the end.", "gateway_upstream_requests_in_flight"),
        graph(
            "KV usage",
            "From 0 to 1, as the engine last reported.",
            Query(promql.highest(f"gateway_upstream_kv_usage_ratio{of('upstream')}", "upstream"), _LEGEND),
            unit="percentunit",
            runbook="VlmGatewayBudgetExhausted",
        ),
        graph(
            "Preemptions",
            "Requests that the engine threw out of its KV cache to make room for others.",
            Query(
                promql.only_if_any(
                    promql.total_per_step(f"gateway_upstream_preemptions_total{of('upstream')}", "upstream")
                ),
                _LEGEND,
            ),
            unit="short",
            runbook="VlmGatewayPreemptions",
        ),
        _gauge(
            "Requests of others",
            "At the engine, beyond those that the gateway sent, as far as they stand for three looks.",
            "gateway_upstream_foreign_requests",
            runbook="VlmGatewayPreemptions",
        ),
        _gauge(
            "KV blocks of others",
            "In use at the engine beyond those held here, likewise.",
            "gateway_upstream_foreign_kv_blocks",
            runbook="VlmGatewayPreemptions",
        ),
        _gauge(
            "Gateways of one budget",
            "That share what the server can take, where ledger.redis_url is set.",
            "gateway_ledger_gateways",
        ),
        _gauge(
            "Cut off from the shared budget",
            "1: Redis is silent, and the gateway uses a fixed share.",
            "gateway_ledger_cut_off",
        ),
        graph(
            "Calls without an answer",
            "To the shared budget in Redis.",
            Query(
                promql.only_if_any(promql.rate(f"gateway_ledger_failures_total{of('upstream')}", "upstream")), _LEGEND
            ),
            unit="short",
        ),
        graph(
            "Pause",
            "Nothing is sent for so long, because the server turned requests away (429 or 503).",
            Query(promql.highest(f"gateway_admission_pause_seconds{of('upstream')}", "upstream"), _LEGEND),
            unit="s",
        ),
    ],
)

_FAULTS = Row(
    "Faults",
    [
        graph(
            "Sent elsewhere",
            "Requests that another server got because this one failed before a byte of its answer came.",
            Query(
                promql.only_if_any(promql.rate(f"gateway_sent_elsewhere_total{of('upstream')}", "upstream")), _LEGEND
            ),
            unit="reqps",
            runbook="VlmGatewayUpstreamUnhealthy",
        ),
        graph(
            "Sent again",
            "Requests repeated on a fresh connection, because an idle one had been closed.",
            Query(
                promql.only_if_any(promql.rate(f"gateway_upstream_retries_total{of('upstream')}", "upstream")), _LEGEND
            ),
            unit="reqps",
        ),
        graph(
            "No answer, or not all of it",
            "Requests that ended as upstream_broke, of all servers.",
            Query(promql.rate(f"gateway_requests_total{of('model', outcome='upstream_broke')}"), "broke"),
            unit="reqps",
            runbook="VlmGatewayUpstreamUnhealthy",
        ),
    ],
)

_CARD = ("instance", "gpu")
_GPUS = Row(
    "GPUs",
    [
        graph(
            "GPU memory",
            "In use, and in all, by card, where a gateway reads it (gpu.source). vLLM takes its share at its start.",
            Query(promql.highest(f"gateway_gpu_memory_used_bytes{of()}", *_CARD), "used {{instance}} {{gpu}}"),
            Query(promql.highest(f"gateway_gpu_memory_total_bytes{of()}", *_CARD), "in all {{instance}} {{gpu}}"),
            unit="bytes",
            width=12,
            runbook="VlmGatewayGpuMemoryHigh",
        ),
        graph(
            "GPU busy",
            "Share of the last moment in which anything ran on the card: of time, not of what the card could do.",
            Query(promql.highest(f"gateway_gpu_busy_ratio{of()}", *_CARD), "{{instance}} {{gpu}}"),
            unit="percentunit",
            width=12,
            most=1,
        ),
    ],
)

UPSTREAM = Dashboard(
    "vlm-gateway-upstream",
    "vlm-gateway / Upstream",
    "The model servers: there or not, working or not, under what load, with what faults, on what GPUs.",
    ("job", "instance", "model", "upstream"),
    [_STATE, _WORK, _FAULTS, _GPUS],
)
