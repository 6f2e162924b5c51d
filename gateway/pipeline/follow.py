"""What each look at the upstream changes: the served names, the capacities, the learned ceilings."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from gateway.domain.cost import EngineLimits
from gateway.domain.learning import SequenceCeiling
from gateway.domain.quantities import Resource
from gateway.ledger.gate import Gate
from gateway.models.served import Engine, ModelTable
from gateway.telemetry.metrics import Metrics
from gateway.upstream.state import UpstreamModel, UpstreamState
from gateway.wire.vllm_metrics import EngineReport


@dataclass(slots=True)
class EngineFollower:
    """An observer of the poller. Capacities that the operator set are never raised by what is seen.

    `kv_blocks` and `sequences` are those settings, None where the operator left them to the gateway.
    """

    models: ModelTable
    gate: Gate
    metrics: Metrics
    kv_blocks: int | None = None
    sequences: int | None = None
    ceiling: SequenceCeiling = field(default_factory=SequenceCeiling)
    _listed: Sequence[UpstreamModel] = ()
    _was_up: bool = False
    _followed_at_seconds: float | None = None

    def __call__(self, state: UpstreamState) -> None:
        if state.is_up and not self._was_up:
            # A server that comes back has empty caches, and may have been started with other limits.
            self.models.engine.image_limit.forget()
            self.models.engine.encoder_tokens.forget()
            self.models.engine.images.forget()
        self._was_up = state.is_up
        self.models.engine.is_loading = state.is_loading
        if state.models is not self._listed:
            self._listed = state.models
            self.models.listed(dict(state.models))
            self.metrics.know_models(self.models.names)
        # A report that could not be renewed is not another look: two equal ones would count as a queue that stands.
        if state.report is not None and state.reported_at_seconds != self._followed_at_seconds:
            self._followed_at_seconds = state.reported_at_seconds
            self._follow(state.report)

    def _follow(self, report: EngineReport) -> None:
        engine = self.models.engine
        describe_engine(engine, report, self.kv_blocks)
        limits = EngineLimits(kv_blocks=engine.kv_blocks, kv_block_tokens=engine.kv_block_tokens)
        self.gate.set_capacity(Resource.KV_BLOCKS, limits.admission_kv_blocks)
        self.gate.set_capacity(Resource.ENCODER_TOKENS, engine.encoder_tokens.value)
        if self.sequences is None:
            depth = self.gate.statistics().admission.queue_depth
            self.ceiling.observe(report.running or 0, report.waiting or 0, depth)
            self.gate.set_capacity(Resource.SEQUENCES, self.ceiling.sequences)


def describe_engine(engine: Engine, report: EngineReport, most_kv_blocks: int | None) -> None:
    """What a report tells of the engine's KV cache; `most_kv_blocks` is the operator's setting."""
    # vLLM keeps one block of each engine for itself.
    usable = (report.num_gpu_blocks or 0) - max(1, report.engines)
    if report.num_gpu_blocks and usable > 0:
        engine.kv_blocks = min(usable, most_kv_blocks or usable)
        # A request runs on one engine, however many share the load.
        engine.kv_blocks_of_one = min(engine.kv_blocks, (report.smallest_engine_blocks or report.num_gpu_blocks) - 1)
        engine.kv_block_tokens = report.block_size or engine.kv_block_tokens
        engine.prefix_caching = report.enable_prefix_caching is not False
