"""The first look: how many requests, how many of them well, how fast, and who is there to serve them."""

from scripts.dashboards import promql
from scripts.dashboards.dashboards import Dashboard
from scripts.dashboards.panels import Query, Row, bars, graph, heatmap, number, quantiles
from scripts.dashboards.promql import of

_BROKEN = ("upstream_broke", "gateway_fault")
_NOT_SERVED = ("upstream_refused", "upstream_broke", "client_left", "gateway_fault")


def _share(*outcomes: str) -> str:
    """Of the requests of the time range."""
    some = promql.total(f"gateway_requests_total{of('model', outcome=outcomes)}")
    return promql.ratio(some, promql.total(f"gateway_requests_total{of('model')}"))


_NOW = Row(
    "In this time range",
    [
        number(
            "Requests",
            "All requests that ended, refused ones too.",
            Query(promql.total(f"gateway_requests_total{of('model')}"), "requests"),
            unit="short",
        ),
        number(
            "Served in full",
            "Share of requests whose answer came to its end.",
            Query(_share("finished"), "served"),
            unit="percentunit",
            most=1,
        ),
        number(
            "Refused",
            "Share of requests that the gateway refused, for whatever reason; the dashboard Rejections says which.",
            Query(_share("refused"), "refused"),
            unit="percentunit",
            red_from=0.1,
            most=1,
            runbook="VlmGatewayRejectRatioHigh",
        ),
        number(
            "Broken",
            "Share of requests that ended in a fault of a model server or of the gateway itself.",
            Query(_share(*_BROKEN), "broken"),
            unit="percentunit",
            red_from=0.01,
            most=1,
            runbook="VlmGatewayFault",
        ),
        number(
            "Gateways",
            "Gateways that are scraped just now.",
            Query(f"count(gateway_build_info{of()})", "gateways"),
            unit="short",
            runbook="VlmGatewayAbsent",
        ),
        number(
            "Healthy upstreams",
            "Model servers that get requests, as each gateway sees them: two gateways before one server count twice.",
            Query(promql.summed(f"gateway_upstream_healthy{of('upstream')}"), "healthy"),
            unit="short",
            runbook="VlmGatewayAllUpstreamsDown",
        ),
    ],
)

_RED = Row(
    "Rate, errors, duration",
    [
        graph(
            "Requests by outcome",
            "finished: answered in full; refused: by the gateway; upstream_refused: by the model server; "
            "upstream_broke: no answer, or not all of it; client_left: the client hung up; gateway_fault: a fault of "
            "the gateway.",
            Query(promql.only_if_any(promql.rate(f"gateway_requests_total{of('model')}", "outcome")), "{{outcome}}"),
            unit="reqps",
        ),
        graph(
            "Requests by model",
            "Names that no server lists count as other.",
            Query(promql.only_if_any(promql.rate(f"gateway_requests_total{of('model')}", "model")), "{{model}}"),
            unit="reqps",
        ),
        graph(
            "Requests by endpoint",
            "Paths that are no endpoint count as other.",
            Query(promql.only_if_any(promql.rate(f"gateway_requests_total{of('model')}", "endpoint")), "{{endpoint}}"),
            unit="reqps",
        ),
        graph(
            "Not served, and not refused by the gateway",
            "Answers that the model server refused or broke off, clients that left, faults of the gateway.",
            Query(
                promql.only_if_any(
                    promql.rate(f"gateway_requests_total{of('model', outcome=_NOT_SERVED)}", "outcome", "model")
                ),
                "{{outcome}} {{model}}",
            ),
            unit="reqps",
            width=12,
            runbook="VlmGatewayFault",
        ),
        graph(
            "Queue wait",
            "From joining the line to being admitted or refused; most requests wait for nothing.",
            *quantiles("gateway_queue_wait_seconds", 0.5, 0.99),
            unit="s",
            width=12,
            runbook="VlmGatewayQueueWaitHigh",
        ),
        graph(
            "Time to first token",
            "Of streams: from arrival at the gateway to the first event, waiting included.",
            *quantiles("gateway_time_to_first_token_seconds", 0.5, 0.95, 0.99),
            unit="s",
        ),
        heatmap(
            "Times to first token",
            "How many streams began within which time.",
            promql.buckets("gateway_time_to_first_token_seconds"),
            unit="s",
        ),
        graph(
            "Time that the gateway adds",
            "From the last byte of a request to the first byte sent on, without waiting and without fetching images.",
            *quantiles("gateway_overhead_seconds", 0.5, 0.99),
            unit="s",
        ),
    ],
)

_STATE = Row(
    "State",
    [
        graph(
            "KV blocks held",
            "Share of the budget, by upstream; above 1 where answers grew beyond what was reserved for them.",
            Query(
                promql.ratio(
                    promql.summed(f"gateway_held{of('upstream', resource='kv_blocks')}", "upstream"),
                    promql.summed(f"gateway_capacity{of('upstream', resource='kv_blocks')}", "upstream"),
                ),
                "{{upstream}}",
            ),
            unit="percentunit",
            runbook="VlmGatewayBudgetExhausted",
        ),
        graph(
            "Requests that wait",
            "In the line before each upstream.",
            Query(promql.summed(f"gateway_queue_depth{of('upstream')}", "upstream"), "{{upstream}}"),
            unit="short",
            runbook="VlmGatewayQueueWaitHigh",
        ),
        graph(
            "Versions",
            "Gateways by version.",
            Query(f"count by (version) (gateway_build_info{of()})", "{{version}}"),
            unit="short",
        ),
        graph(
            "Gateways that drain",
            "Told to drain, or to end: not ready, and soon refusing. Each should be gone or called off within minutes.",
            Query(promql.summed(f"gateway_draining{of()}"), "draining"),
            unit="short",
            runbook="VlmGatewayDraining",
        ),
        graph(
            "Log lines lost",
            "Lines of the request log that a slow or broken output could not take.",
            Query(promql.total_per_step(f"gateway_log_lines_dropped_total{of()}"), "lost"),
            unit="short",
        ),
        graph(
            "Tasks of the event loop",
            "Some for each request inside, and a few dozen for ever. What grows while nothing is inside is a leak.",
            Query(promql.highest(f"gateway_event_loop_tasks{of()}"), "tasks"),
            unit="short",
        ),
        graph(
            "Models without series",
            "Served model names beyond the first hundred; they count as other.",
            Query(promql.highest(f"gateway_models_without_series{of()}"), "models"),
            unit="short",
        ),
    ],
)

_REPORTED = f"gateway_tokens_total{of('model', source='reported', kind='!cached')}"
_ALL = f"gateway_tokens_total{of('model', kind='!cached')}"
_ESTIMATED = f"gateway_tokens_total{of('model', source='estimated', kind='!cached')}"

_USAGE = Row(
    "Tokens of the engine",
    [
        bars(
            "Tokens, by kind",
            "In this time range, as the engine reported them: text, images (visual), videos and audio (media), answers "
            "(output); cached is what of the prompt was in its prefix cache.",
            Query(
                promql.only_if_any(promql.total(f"gateway_tokens_total{of('model', source='reported')}", "kind")),
                "{{kind}}",
            ),
            unit="short",
        ),
        graph(
            "Tokens, by tenant class",
            "Per second, prompts and answers as the engine reported them.",
            Query(promql.only_if_any(promql.rate(_REPORTED, "tenant_class")), "{{tenant_class}}"),
            unit="cps",
        ),
        graph(
            "Tokens that nobody reported",
            "Share of all tokens that the gateway had to estimate: clients that left, answers that broke off.",
            Query(
                promql.ratio(promql.rate(_ESTIMATED), promql.rate(_ALL)),
                "estimated",
            ),
            unit="percentunit",
            most=1,
        ),
    ],
)

OVERVIEW = Dashboard(
    "vlm-gateway-overview",
    "vlm-gateway / Overview",
    "Rate, errors and duration of all requests, and who is there to serve them.",
    ("job", "instance", "model", "upstream"),
    [_NOW, _RED, _STATE, _USAGE],
)
