"""What the gauges of /metrics show, read from their owners at scrape time."""

import math
from collections.abc import Callable, Mapping

from gateway.domain.quantities import Resource
from gateway.ledger.byte_budget import ByteBudget, Seats
from gateway.ledger.gate import Gate
from gateway.pipeline.follow import EngineFollower
from gateway.telemetry.request_log import RequestLog
from gateway.upstream.client import UpstreamClient
from gateway.upstream.poll import Poller

Reading = float | Mapping[str, float]


def gauge_readers(
    gate: Gate,
    seats: Seats,
    bodies: ByteBudget,
    decodes: ByteBudget,
    poller: Poller,
    follower: EngineFollower,
    upstream: UpstreamClient,
    log: RequestLog,
) -> dict[str, Callable[[], Reading]]:
    """By the declared name of the metric."""

    def kv_usage() -> float:
        report = poller.state.report
        return math.nan if report is None or report.kv_usage is None else report.kv_usage

    def preemptions() -> float:
        report = poller.state.report
        return 0 if report is None else report.preemptions or 0

    def capacity() -> dict[str, float]:
        engine = gate.statistics().holdings.capacity
        return {r.label: math.nan if engine[r] is None else float(engine[r] or 0) for r in Resource} | {
            "seats": seats.capacity,
            "body_bytes": bodies.statistics().capacity,
            "decode_bytes": decodes.statistics().capacity,
        }

    def held() -> dict[str, float]:
        engine = gate.statistics().holdings.held
        return {r.label: float(engine[r]) for r in Resource} | {
            "seats": seats.taken,
            "body_bytes": bodies.statistics().held,
            "decode_bytes": decodes.statistics().held,
        }

    return {
        "queue_depth": lambda: gate.statistics().admission.queue_depth,
        "queue_cost_tokens": lambda: gate.statistics().admission.queue_cost_tokens,
        "capacity": capacity,
        "held": held,
        "overcommit_blocks": lambda: gate.statistics().holdings.overcommit_blocks,
        "upstream_up": lambda: float(poller.state.is_up),
        "upstream_kv_usage_ratio": kv_usage,
        "upstream_preemptions_total": preemptions,
        "ceiling_ratio": lambda: follower.ceiling_ratio,
        "upstream_foreign_requests": lambda: follower.live.foreign_requests,
        "upstream_foreign_kv_blocks": lambda: follower.live.foreign_blocks,
        "admission_pause_seconds": lambda: follower.pause_seconds,
        "upstream_requests_in_flight": lambda: upstream.statistics().in_flight,
        "upstream_retries_total": lambda: upstream.statistics().retried,
        "log_lines_dropped_total": lambda: log.statistics().dropped,
    }
