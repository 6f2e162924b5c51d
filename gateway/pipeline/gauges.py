"""What the gauges of /metrics show, read from their owners at scrape time."""

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from gateway.domain.calibration import CalibrationState
from gateway.domain.holdings import HoldingsStatistics
from gateway.domain.pressure import Pressure, Rung
from gateway.domain.quantities import Resource
from gateway.domain.tenancy import Tenant
from gateway.ledger.base import SharedStanding
from gateway.ledger.byte_budget import ByteBudget, Seats
from gateway.pipeline.backend import Backend
from gateway.pipeline.exchange import Parts
from gateway.telemetry.declarations import LANES, OF_ALL

Cells = dict[tuple[str, ...], float]
Reading = float | Mapping[str, float] | Cells


def gauge_readers(
    parts: Parts, seats: Seats, bodies: ByteBudget, decodes: ByteBudget
) -> dict[str, Callable[[], Reading]]:
    """By the declared name of the metric. To be called inside the event loop."""
    backends, loop = parts.backends, asyncio.get_running_loop()

    def of_each(read: Callable[[Backend], float]) -> Callable[[], Reading]:
        return lambda: {backend.name: float(read(backend)) for backend in backends}

    def capacity() -> Cells:
        own = {
            "seats": seats.capacity,
            "body_bytes": bodies.statistics().capacity,
            "decode_bytes": decodes.statistics().capacity,
        }
        return _by_resource(backends, lambda holdings: holdings.capacity) | _of_all(own)

    def held() -> Cells:
        own = {
            "seats": seats.taken,
            "body_bytes": bodies.statistics().held,
            "decode_bytes": decodes.statistics().held,
        }
        return _by_resource(backends, lambda holdings: holdings.held) | _of_all(own)

    return {
        "queue_depth": of_each(lambda backend: backend.gate.statistics().admission.queue_depth),
        "queue_cost_tokens": of_each(lambda backend: backend.gate.statistics().admission.queue_cost_tokens),
        "capacity": capacity,
        "held": held,
        "overcommit_blocks": of_each(lambda backend: backend.gate.holdings().overcommit_blocks),
        "overlap_blocks": of_each(lambda backend: backend.gate.holdings().overlap_blocks),
        "upstream_up": of_each(lambda backend: backend.poller.state.is_up),
        "upstream_healthy": of_each(lambda backend: backend.is_healthy(parts.clock())),
        "upstream_kv_usage_ratio": of_each(_kv_usage),
        "upstream_preemptions_total": lambda: _preemptions(backends),
        "ceiling_ratio": of_each(lambda backend: backend.follower.ceiling_ratio),
        "upstream_foreign_requests": of_each(lambda backend: backend.follower.live.foreign_requests),
        "upstream_foreign_kv_blocks": of_each(lambda backend: backend.follower.live.foreign_blocks),
        "admission_pause_seconds": of_each(lambda backend: backend.follower.pause_seconds),
        "calibration_state": lambda: _calibration_states(backends),
        "calibration_disagreeing_pictures": lambda: _disagreeing(backends),
        "models_of_unknown_family": of_each(_unknown_models),
        "upstream_requests_in_flight": of_each(lambda backend: backend.upstream.statistics().in_flight),
        "upstream_retries_total": of_each(lambda backend: backend.upstream.statistics().retried),
        "pressure_ratio": lambda: _pressures(backends, lambda pressure: pressure.ratio),
        "pressure_unmet_ratio": lambda: _pressures(backends, lambda pressure: pressure.unmet),
        "pressure_rung_in_force": lambda: _rungs_in_force(parts),
        "ledger_gateways": lambda: _standings(backends, lambda standing: standing.gateways),
        "ledger_cut_off": lambda: _standings(backends, lambda standing: standing.is_cut_off),
        "ledger_failures_total": lambda: _standings(backends, lambda standing: standing.failures),
        "event_loop_tasks": lambda: float(len(asyncio.all_tasks(loop))),
        "log_lines_dropped_total": lambda: parts.log.statistics().dropped,
    }


def quota_shares(tenants: Iterable[Tenant], now: float) -> Cells:
    """Of tenants that have one, by class and quantity: that of who used most of his."""
    cells: Cells = {}
    for tenant in tenants:
        for quantity, share in (tenant.quota.used_shares(now) if tenant.quota else {}).items():
            key = tenant.tenant_class, quantity.label
            cells[key] = max(share, cells.get(key, 0.0))
    return cells


def _by_resource(backends: Sequence[Backend], read: Callable[[HoldingsStatistics], Sequence[int | None]]) -> Cells:
    cells: Cells = {}
    for backend in backends:
        amounts = read(backend.gate.statistics().holdings)
        for resource, amount in zip(Resource, amounts, strict=True):
            cells[resource.label, backend.name] = math.nan if amount is None else amount
    return cells


def _of_all(amounts: Mapping[str, int]) -> Cells:
    return {(resource, OF_ALL): amount for resource, amount in amounts.items()}


def _pressures(backends: Sequence[Backend], read: Callable[[Pressure], float]) -> Cells:
    return {
        (lane, backend.name): read(backend.gate.pressure(on_images=bool(on_images)))
        for backend in backends
        for on_images, lane in enumerate(LANES)
    }


def _rungs_in_force(parts: Parts) -> Cells:
    cells: Cells = {
        (rung.value, lane, backend.name): 0.0 for rung in Rung for lane in LANES for backend in parts.backends
    }
    if parts.relief is not None:
        for backend in parts.backends:
            for on_images, lane in enumerate(LANES):
                for rung in parts.relief.look(backend.name, on_images=bool(on_images)).in_force:
                    cells[rung, lane, backend.name] = 1.0
    return cells


def _calibration_states(backends: Sequence[Backend]) -> Cells:
    return {
        (model, backend.name, state.value): float(result.state is state)
        for backend in backends
        for model, result in backend.calibrator.results.items()
        for state in CalibrationState
    }


def _disagreeing(backends: Sequence[Backend]) -> Cells:
    return {
        (model, backend.name): float(len(result.disagreeing))
        for backend in backends
        for model, result in backend.calibrator.results.items()
    }


def _standings(backends: Sequence[Backend], read: Callable[[SharedStanding], float]) -> dict[str, float]:
    """Of the upstreams whose budget is shared."""
    standings = {backend.name: backend.gate.standing for backend in backends}
    return {name: float(read(standing)) for name, standing in standings.items() if standing is not None}


def _unknown_models(backend: Backend) -> int:
    return sum(backend.models.served(name).is_assumed for name in backend.models.names)


def _kv_usage(backend: Backend) -> float:
    report = backend.poller.state.report
    return math.nan if report is None or report.kv_usage is None else report.kv_usage


def _preemptions(backends: Sequence[Backend]) -> dict[str, float]:
    """Of those that have told it. To Prometheus a zero meanwhile would be a counter that began anew, and the engine's
    count after it as many preemptions of now.
    """
    reports = {backend.name: backend.poller.state.report for backend in backends}
    told = {name: None if report is None else report.preemptions for name, report in reports.items()}
    return {name: float(count) for name, count in told.items() if count is not None}
