"""What the status page shows, read from the owners at the moment in which it is asked for."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from gateway import __version__
from gateway.domain.holdings import HoldingsStatistics
from gateway.domain.outcome import Reason
from gateway.domain.pressure import Rung
from gateway.domain.quantities import Resource
from gateway.ledger.byte_budget import ByteBudget, Seats
from gateway.ledger.gate import Gate
from gateway.models.served import ServedModel
from gateway.pipeline.backend import Backend
from gateway.pipeline.exchange import Parts
from gateway.telemetry import declarations as declared
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.tables import Histogram
from gateway.wire.status import (
    CalibrationStatus,
    DriftStatus,
    EngineStatus,
    ModelStatus,
    QueueStatus,
    ResourceStatus,
    Status,
    UpstreamStatus,
)

_MOST_MODELS = 100


@dataclass(frozen=True, slots=True)
class StatusReader:
    """`bodies` and `decodes` are the budgets of bytes that all requests share, as are the seats."""

    parts: Parts
    seats: Seats
    bodies: ByteBudget
    decodes: ByteBudget
    is_shadow: bool = False

    def read(self, *, is_draining: bool) -> Status:
        parts, metrics = self.parts, self.parts.metrics
        images = declared.SHADOW_IMAGES if self.is_shadow else declared.IMAGES
        return Status(
            time=datetime.now(UTC),
            version=__version__,
            mode="shadow" if self.is_shadow else "enforce",
            is_draining=is_draining,
            shared=self._shared(),
            upstreams=[_upstream(parts, backend) for backend in parts.backends],
            requests=metrics.counts_by(declared.REQUESTS, "outcome"),
            refused=self._refused(metrics),
            last_refusals=parts.refusals.newest_first(),
            images=metrics.counts_by(images, "action"),
            tokens_saved=metrics.counts_by(declared.TOKENS_SAVED, "action"),
            drift=_drift(metrics.histogram(declared.ESTIMATE_ERROR)),
        )

    def _shared(self) -> list[ResourceStatus]:
        bodies, decodes = self.bodies.statistics(), self.decodes.statistics()
        return [
            ResourceStatus("seats", self.seats.taken, self.seats.capacity),
            ResourceStatus("body_bytes", bodies.held, bodies.capacity),
            ResourceStatus("decode_bytes", decodes.held, decodes.capacity),
        ]

    def _refused(self, metrics: Metrics) -> dict[str, int]:
        """Reasons that were given so far."""
        counts: Mapping[str, int] = metrics.counts_by(declared.REJECTIONS, "reason")
        if self.is_shadow:
            told = metrics.counts_by(declared.SHADOW_DECISIONS, "decision")
            counts = {reason: counts[reason] + told[reason] for reason in Reason}
        return {reason: count for reason, count in counts.items() if count}


def _upstream(parts: Parts, backend: Backend) -> UpstreamStatus:
    now = parts.clock()
    gate, state = backend.gate.statistics(), backend.poller.state
    admission = gate.admission
    return UpstreamStatus(
        name=backend.name,
        state=_state(backend, now),
        trouble=state.trouble,
        version=state.version,
        models=_models(backend),
        resources=_resources(gate.holdings),
        overcommit_blocks=backend.gate.holdings().overcommit_blocks,
        queue=QueueStatus(
            admission.queue_depth,
            backend.gate.policy.requests,
            admission.queue_cost_tokens,
            admission.drain_per_second,
        ),
        in_flight=backend.upstream.statistics().in_flight,
        ceiling_ratio=backend.follower.ceiling_ratio,
        pause_seconds=backend.follower.pause_seconds,
        engine=_engine(backend, now),
        pressure=_pressure(backend.gate),
        rungs=_rungs(parts, backend),
    )


def _state(backend: Backend, now: float) -> str:
    state = backend.poller.state
    if not state.is_up:
        return "loading" if state.is_loading else "down"
    return "up" if backend.is_healthy(now) else "passed_over"


def _models(backend: Backend) -> list[ModelStatus]:
    models = [backend.models.served(name) for name in backend.models.names[:_MOST_MODELS]]
    asked = backend.calibrator.results
    return [
        ModelStatus(
            model.name,
            model.family.name,
            model.family_source.value,
            model.max_model_len,
            _calibration(model) if model.name in asked else None,
        )
        for model in models
    ]


def _calibration(model: ServedModel) -> CalibrationStatus:
    result = model.calibration
    return CalibrationStatus(result.state.value, result.sentence(model.uncalibrated.family.name))


def _resources(holdings: HoldingsStatistics) -> list[ResourceStatus]:
    amounts = zip(Resource, holdings.held, holdings.capacity, strict=True)
    return [ResourceStatus(resource.label, held, capacity) for resource, held, capacity in amounts]


def _engine(backend: Backend, now: float) -> EngineStatus | None:
    state = backend.poller.state
    report = state.report
    if report is None:
        return None
    age_seconds = state.report_age_seconds(now)
    return EngineStatus(report.running, report.waiting, report.kv_usage, report.preemptions, age_seconds)


def _pressure(gate: Gate) -> dict[str, float]:
    return {lane: gate.pressure(on_images=bool(on_images)).ratio for on_images, lane in enumerate(declared.LANES)}


def _rungs(parts: Parts, backend: Backend) -> list[str]:
    if parts.relief is None:
        return []
    looks = [parts.relief.look(backend.name, on_images=on_images) for on_images in (False, True)]
    return [rung.value for rung in Rung if any(rung in look.in_force for look in looks)]


def _drift(ratios: Histogram) -> DriftStatus:
    answers = sum(ratios.counts)
    mean = ratios.total / answers if answers else None
    return DriftStatus(answers, mean, [*ratios.declaration.buckets], [*ratios.counts])
