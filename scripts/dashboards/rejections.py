"""What was refused and why, whether it can be served later, and what was done to refuse less."""

from gateway.domain.outcome import Reason
from scripts.dashboards import promql
from scripts.dashboards.dashboards import Dashboard
from scripts.dashboards.panels import Query, Row, bars, graph, heatmap, number, quantiles
from scripts.dashboards.promql import of

FOR_WANT_OF_ROOM = (
    Reason.QUEUE_FULL,
    Reason.QUEUE_BYTES,
    Reason.WOULD_MISS_DEADLINE,
    Reason.DEADLINE_PASSED,
    Reason.KV_BUDGET,
    Reason.ENCODER_BUDGET,
    Reason.PREPROCESS_BUDGET,
    Reason.HOST_MEMORY,
    Reason.SHED_PRIORITY,
    Reason.UPSTREAM_DOWN,
    Reason.UPSTREAM_LOADING,
    Reason.UPSTREAM_BACKPRESSURE,
)
"""Nothing is wrong with the request: it would be served with more room, or a server that is there."""

_REJECTIONS = "gateway_rejections_total"


def _by(label: str) -> Query:
    return Query(promql.only_if_any(promql.rate(f"{_REJECTIONS}{of('model')}", label)), f"{{{{{label}}}}}")


_TOTALS = Row(
    "In this time range",
    [
        number(
            "Refusals",
            "Requests that got no answer from a model, with the reason in x-gateway-reason.",
            Query(promql.total(f"{_REJECTIONS}{of('model')}"), "refusals"),
            unit="short",
        ),
        number(
            "Of all requests",
            "Share of all requests that were refused.",
            Query(
                promql.ratio(
                    promql.total(f"{_REJECTIONS}{of('model')}"), promql.total(f"gateway_requests_total{of('model')}")
                ),
                "refused",
            ),
            unit="percentunit",
            red_from=0.1,
            most=1,
            runbook="VlmGatewayRejectRatioHigh",
        ),
        number(
            "For want of room",
            "Refusals of requests that were right in themselves: no place, no time, no server. More hardware or less "
            "traffic would have served them.",
            Query(promql.total(f"{_REJECTIONS}{of('model', reason=FOR_WANT_OF_ROOM)}"), "no room"),
            unit="short",
            runbook="VlmGatewayRejectRatioHigh",
        ),
        number(
            "Told when to come back",
            "Refusals that named a time in Retry-After.",
            Query(promql.total(f"gateway_retry_after_seconds_count{of()}"), "with Retry-After"),
            unit="short",
        ),
        bars(
            "Refusals by reason",
            "All reasons that occurred; docs/runbook.md says what each asks for.",
            Query(promql.only_if_any(promql.total(f"{_REJECTIONS}{of('model')}", "reason")), "{{reason}}"),
            unit="short",
            width=24,
            runbook="Reasons of refusals",
        ),
    ],
)

_RATES = Row(
    "By what",
    [
        graph(
            "By reason",
            "The label is the x-gateway-reason of the answer.",
            _by("reason"),
            unit="reqps",
            width=12,
            runbook="Reasons of refusals",
        ),
        graph("By model", "Names that no server lists count as other.", _by("model"), unit="reqps", width=12),
        graph("By tenant class", "The names that settings give to keys.", _by("tenant_class"), unit="reqps"),
        graph("By priority", "As the request was served, not as it asked for.", _by("priority"), unit="reqps"),
        graph(
            "Images refused, by cause",
            "One for each request that was refused for an image; the label is the error's code.",
            Query(promql.only_if_any(promql.rate(f"gateway_image_errors_total{of()}", "code")), "{{code}}"),
            unit="cps",
            runbook="Reasons of refusals",
        ),
    ],
)

_QUOTAS = Row(
    "Keys and quotas of tenants",
    [
        graph(
            "Quota used",
            "Share of what a tenant may have: by the minute, and inside at once. Of a class with several tenants, that "
            "of the one who used most. At 1 its requests are refused.",
            Query(
                promql.highest(f"gateway_tenant_quota_used_ratio{of()}", "tenant_class", "quota"),
                "{{tenant_class}} {{quota}}",
            ),
            unit="percentunit",
            width=12,
            runbook="Reasons of refusals",
        ),
        graph(
            "Keys in use",
            "Keys of clients that are let in; 0 where none are configured. Stale: the file of them is bad at so many "
            "gateways, where older keys are in use.",
            Query(promql.highest(f"gateway_keys{of()}"), "keys"),
            Query(promql.summed(f"gateway_keys_stale{of()}"), "gateways with stale keys"),
            runbook="VlmGatewayKeysStale",
            unit="short",
        ),
        graph(
            "Reading the keys file anew",
            "Failed: the file is bad, and the keys that there were stay; the log says why.",
            Query(promql.rate(f"gateway_key_reloads_total{of()}", "result"), "{{result}}"),
            unit="cps",
            runbook="VlmGatewayKeysStale",
        ),
    ],
)

_WAITING = Row(
    "Waiting and coming back",
    [
        graph(
            "Queue wait",
            "From joining the line to being admitted or refused.",
            *quantiles("gateway_queue_wait_seconds", 0.5, 0.99),
            unit="s",
            width=12,
            runbook="VlmGatewayQueueWaitHigh",
        ),
        heatmap(
            "Queue waits",
            "How many waited for how long.",
            promql.buckets("gateway_queue_wait_seconds"),
            unit="s",
            width=12,
        ),
        graph(
            "Retry-After given",
            "The time that refusals named. 60 s without a promise means that no place was in sight.",
            *quantiles("gateway_retry_after_seconds", 0.5, 0.9),
            unit="s",
            width=12,
        ),
        heatmap(
            "Times to come back",
            "How many refusals named which time.",
            promql.buckets("gateway_retry_after_seconds"),
            unit="s",
            width=12,
        ),
        graph(
            "Streams begun while they wait",
            "Streams that got their status and a comment before their turn (streaming.keep_alive_after_seconds); a "
            "refusal is then their last event.",
            Query(promql.rate(f"gateway_streams_kept_alive_total{of()}"), "kept alive"),
            unit="cps",
        ),
        graph(
            "Changed or refused under pressure",
            "Requests that a rung of the ladder (settings: pressure) shrank, shortened, sent to another model or "
            "refused.",
            Query(promql.only_if_any(promql.rate(f"gateway_pressure_requests_total{of()}", "rung")), "{{rung}}"),
            unit="reqps",
        ),
        graph(
            "Refused by the model server itself",
            "Answers of 4xx and 503 that vLLM gave; the gateway passed them on.",
            Query(
                promql.only_if_any(
                    promql.rate(f"gateway_requests_total{of('model', outcome='upstream_refused')}", "model")
                ),
                "{{model}}",
            ),
            unit="reqps",
        ),
    ],
)

_SHADOW = Row(
    "Shadow mode",
    [
        graph(
            "Gateways in shadow mode",
            "They refuse nothing; what they would have done stands beside.",
            Query(promql.summed(f"gateway_shadow_mode{of()}"), "in shadow mode"),
            unit="short",
        ),
        graph(
            "What would have become of requests",
            "In shadow mode: admitted, queued, undecided (it goes on unread), or the reason of a refusal.",
            Query(
                promql.only_if_any(promql.rate(f"gateway_shadow_decisions_total{of('model')}", "decision")),
                "{{decision}}",
            ),
            unit="reqps",
            width=16,
        ),
    ],
)

REJECTIONS = Dashboard(
    "vlm-gateway-rejections",
    "vlm-gateway / Rejections",
    "What was refused and why, how long requests waited, and when clients were told to come back.",
    ("job", "instance", "model"),
    [_TOTALS, _RATES, _QUOTAS, _WAITING, _SHADOW],
)
