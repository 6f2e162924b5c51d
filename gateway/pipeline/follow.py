"""What each look at the upstream changes: the served names, the capacities, the ceilings that follow the server."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from gateway.domain.ceiling import BackPressure, Ceiling, Look
from gateway.domain.cost import EngineLimits, growth_room_blocks
from gateway.domain.learning import SequenceCeiling
from gateway.domain.quantities import Amounts, Resource
from gateway.ledger.gate import Gate
from gateway.models.served import Engine, ModelTable, Origin
from gateway.telemetry.declarations import ONLY_UPSTREAM
from gateway.telemetry.metrics import Metrics
from gateway.upstream.state import UpstreamModel, UpstreamState
from gateway.wire.vllm_metrics import EngineReport

_log = logging.getLogger(__name__)

_NOTHING = Amounts()
_TOLD_SHARE = 20
_EVEN_TOKENS_PER_EVENT = 1.2
"""What others take is told in the log from a twentieth of the budget on."""


@dataclass(slots=True)
class EngineFollower:
    """An observer of the poller. Capacities that the operator set are never raised by what is seen.

    `name` is the upstream's, and `log_prefix` tells several of them apart. `kv_blocks` and `sequences` are those
    settings, None where the operator left them to the gateway. `ceiling_ratio` is the share of the static budget that
    is let in just now: of KV blocks, or of sequences where those are not known.
    """

    models: ModelTable
    gate: Gate
    metrics: Metrics
    name: str = ONLY_UPSTREAM
    kv_blocks: int | None = None
    sequences: int | None = None
    clock: Callable[[], float] = time.monotonic
    log_prefix: str = ""
    ceiling: SequenceCeiling = field(default_factory=SequenceCeiling)
    live: Ceiling = field(default_factory=Ceiling)
    ceiling_ratio: float = 1.0
    _back_pressure: BackPressure = field(default_factory=BackPressure)
    _listed: Sequence[UpstreamModel] = ()
    _was_away: bool = False
    _followed_at_seconds: float | None = None
    _starts: int = 0
    _running: int = 0
    _pool_blocks: int = 0
    _engines: int = 1
    _causes: tuple[str, ...] = ()

    def __call__(self, state: UpstreamState) -> None:
        has_started = state.starts != self._starts
        if has_started or (state.is_up and self._was_away):
            # A server that comes back has empty caches, and may have been started with other limits.
            self.models.engine.refuses_stream_options = False
            self.models.engine.image_limit.forget()
            self.models.engine.encoder_tokens.forget()
            self.models.engine.images.forget()
            self.models.engine.named_images.forget()
        self._starts = state.starts
        self._was_away = not state.is_up
        self.models.engine.is_loading = state.is_loading
        self.models.engine.is_up = state.is_up
        if state.models is not self._listed:
            self._listed = state.models
            list_models(self.models, state.models)
            self.metrics.know_models(self.models.names, self.name)
        # A report that could not be renewed is not another look: two equal ones would count as a queue that stands.
        if state.report is None or state.reported_at_seconds == self._followed_at_seconds:
            self.live.missed()
        else:
            self._followed_at_seconds = state.reported_at_seconds
            self._follow(state.report, has_started=has_started)
        if state.report is not None:
            self._set_capacities()
            self._tell(is_up=state.is_up)

    def pushed_back(self, retry_after_seconds: float | None, sequences: int) -> None:
        """The engine turned a request of so many sequences away, which still holds them: 429 or 503."""
        now = self.clock()
        was_paused = self._back_pressure.until > now
        until = self._back_pressure.pushed_back(now, retry_after_seconds)
        self.gate.pause_until(until)
        if not was_paused:
            _log.warning("%sthe upstream turns requests away: nothing is sent for %.1f s", self.log_prefix, until - now)
        if retry_after_seconds is None and self.sequences is None:
            held = self.gate.statistics().holdings.held[Resource.SEQUENCES] + self._of_others().sequences
            kept = held - sequences + self.live.foreign_requests
            self.ceiling.turned_away(max(kept, self._running))
            self._set_capacities()

    @property
    def pause_seconds(self) -> float:
        """For how long nothing will be sent."""
        return max(0.0, self._back_pressure.until - self.clock())

    def _follow(self, report: EngineReport, *, has_started: bool) -> None:
        describe_engine(self.models.engine, report, self.kv_blocks)
        self._pool_blocks, self._engines = _usable_blocks(report), report.engines
        self._running = report.running or 0
        if has_started:
            self.live.started()
        elif report.running is None:
            self.live.missed()
        else:
            self.live.look(self._look(report))
        if self.sequences is None:
            standing = self.gate.standing
            depth = self.gate.statistics().admission.queue_depth + (standing.others_depth if standing else 0)
            running, waiting = report.running or 0, report.waiting or 0
            self.ceiling.observe(running, waiting, depth, report.rejections, kv_usage=report.kv_usage)

    def _look(self, report: EngineReport) -> Look:
        """What the other gateways of the budget hold is ours too: no load of others, and part of what fills it."""
        holdings, others = self.gate.holdings(), self._of_others()
        held, capacity = holdings.held, self.gate.whole().capacity
        limiting = Resource.SEQUENCES if capacity[Resource.KV_BLOCKS] is None else Resource.KV_BLOCKS
        needed_blocks = holdings.needed_blocks + others.kv_blocks
        look = Look(
            running=report.running or 0,
            waiting=report.waiting or 0,
            fill=(needed_blocks if limiting is Resource.KV_BLOCKS else held[limiting] + others.sequences)
            / max(1, capacity[limiting] or 0),
            held_sequences=held[Resource.SEQUENCES] + others.sequences,
            preemptions=report.preemptions,
            kv_usage=report.kv_usage,
            used_blocks=int((report.kv_usage or 0.0) * self._pool_blocks),
            held_blocks=needed_blocks,
        )
        unadmitted = self.gate.unadmitted
        return look if unadmitted == _NOTHING else look.beside(unadmitted.sequences, unadmitted.kv_blocks)

    def _of_others(self) -> Amounts:
        """What the other gateways hold that share the budget."""
        standing = self.gate.standing
        return _NOTHING if standing is None else standing.others_hold

    def _set_capacities(self) -> None:
        engine, most_sequences = self.models.engine, self.sequences or self.ceiling.sequences
        # The operator's number is this gateway's share of the engine: what others take is theirs.
        whole = self.ceiling.sequences if self.sequences is None else None
        blocks, static = None, EngineLimits(kv_blocks=engine.kv_blocks).admission_kv_blocks
        sequences = self.live.sequences(most_sequences, whole, is_kv_known=static is not None)
        self.ceiling_ratio = sequences / most_sequences
        if static is not None:
            blocks = self.live.kv_blocks(static, max(static, self._pool_blocks - growth_room_blocks(self._pool_blocks)))
            self.ceiling_ratio = blocks / static
            self._set_growth_room(engine.kv_blocks or 0, is_whole=blocks == static)
        self.gate.set_capacity(Resource.KV_BLOCKS, blocks)
        self.gate.set_capacity(Resource.ENCODER_TOKENS, engine.encoder_tokens.value)
        self.gate.set_capacity(Resource.SEQUENCES, sequences)

    def _set_growth_room(self, pool_blocks: int, *, is_whole: bool) -> None:
        """None before several engines, for nobody knows which of the answers run together, and where several tokens
        come at once (speculative decoding), for then they do not grow alike; nor beside other gateways, of whose
        answers nothing is known here.
        """
        room = growth_room_blocks(pool_blocks) if is_whole else 0
        is_even = (
            self.gate.standing is None
            and self._engines <= 1
            and self.models.most_tokens_per_event < _EVEN_TOKENS_PER_EVENT
        )
        self.gate.set_growth_room(room if is_even else None)

    def _tell(self, *, is_up: bool) -> None:
        """In the log, when the causes change; not with every step."""
        causes = tuple(self._why_lowered()) if is_up else ()
        if causes == self._causes:
            return
        if causes:
            share = 100 * self.ceiling_ratio
            _log.warning("%sadmission is at %.0f %% of its budget: %s", self.log_prefix, share, "; ".join(causes))
        elif is_up:
            _log.warning("%sadmission is back at its whole budget", self.log_prefix)
        self._causes = causes

    def _why_lowered(self) -> Iterator[str]:
        live = self.live
        if live.is_stale:
            yield "the upstream's metrics cannot be read any more"
        if live.is_starting:
            yield "the upstream was started anew"
        if live.is_pressed:
            yield "the engine preempts, or lets requests wait for KV blocks"
        shares = (live.foreign_requests, self.ceiling.sequences), (live.foreign_blocks, self._pool_blocks)
        if any(foreign and _TOLD_SHARE * foreign >= whole for foreign, whole in shares):
            yield "others use the engine too"


def list_models(table: ModelTable, models: Sequence[UpstreamModel]) -> None:
    """What the upstream's list says."""
    origins = {model.id: Origin(model.root, model.parent) for model in models}
    table.listed({model.id: model.max_model_len for model in models}, origins)


def describe_engine(engine: Engine, report: EngineReport, most_kv_blocks: int | None) -> None:
    """What a report tells of the engine's KV cache; `most_kv_blocks` is the operator's setting."""
    usable = _usable_blocks(report)
    if report.num_gpu_blocks and usable > 0:
        engine.kv_blocks = min(usable, most_kv_blocks or usable)
        # A request runs on one engine, however many share the load.
        engine.kv_blocks_of_one = min(engine.kv_blocks, (report.smallest_engine_blocks or report.num_gpu_blocks) - 1)
        engine.kv_block_tokens = report.block_size or engine.kv_block_tokens
        engine.longest_request_blocks = report.longest_request_blocks
        engine.prefix_caching = report.enable_prefix_caching is not False


def _usable_blocks(report: EngineReport) -> int:
    # vLLM keeps one block of each engine for itself.
    return max(0, (report.num_gpu_blocks or 0) - max(1, report.engines))
