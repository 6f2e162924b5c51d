"""vLLM's engine core as a pure simulation: what runs in each step, what waits, what is thrown away and done again.

One step is `schedule(now)`, its duration passing, then `finish(step, now)`. Requests may be added and aborted in
between; an abort takes effect at the end of the step that works on it. First come, first served:

- running sequences are scheduled first, in order; one that needs a KV block when none is free preempts the last
  running one, whose blocks are freed and which is computed again from the start later, from the head of the queue;
- a waiting sequence is admitted only when its whole prompt fits the free blocks, and nothing behind it may overtake:
  a prompt larger than the pool blocks the queue for ever;
- a prompt is cut into chunks of what is left of `max_num_batched_tokens`; an image is encoded whole in the step that
  reaches its first placeholder, or the chunk ends before it.

Source: `v1/core/sched/scheduler.py` of 0.32.
"""

from collections import deque
from dataclasses import dataclass, field

from gateway.emulator.config import EmulatorConfig, StepCost
from gateway.emulator.encoder_cache import EncoderCache
from gateway.emulator.kv import BlockHash, BlockPool, prompt_hashes
from gateway.emulator.kv_groups import BlockTables, Prefix, groups_of
from gateway.emulator.prompt import ImageSpan, Prompt
from gateway.emulator.statistics import EngineStatistics, Gauges, Totals


@dataclass(slots=True, eq=False)
class Sequence:
    """One answer being made. `output_tokens` is how long it will get; `finish_reason` is what it will end with.

    One that `is_pooled` has no answer: it is done when its prompt is computed, which here is its one token.
    """

    prompt: Prompt
    output_tokens: int
    finish_reason: str = "length"
    max_tokens: int = 0
    n: int = 1
    is_pooled: bool = False
    arrived_at: float = 0.0
    scheduled_at: float = 0.0
    first_token_at: float = 0.0
    last_token_at: float = 0.0
    computed: int = 0
    generated: int = 0
    cached_tokens: int = 0
    cache_tokens_created: int = 0
    preemptions: int = 0
    images_started: int = 0
    images_passed: int = 0
    aborted: bool = False
    tables: BlockTables = field(init=False)
    hashes: list[BlockHash] = field(default_factory=list)

    @property
    def total(self) -> int:
        """Tokens that must be in the KV cache before the next one can be made."""
        return len(self.prompt.tokens) + self.generated

    @property
    def is_finished(self) -> bool:
        return self.generated >= self.output_tokens


@dataclass(slots=True)
class Step:
    """What one engine step works on."""

    token_budget: int
    encoder_budget: int
    scheduled: list[tuple[Sequence, int]] = field(default_factory=list)
    prefill_tokens: int = 0
    decode_sequences: int = 0
    encoder_tokens: int = 0
    preempted: bool = False

    def seconds(self, cost: StepCost) -> float:
        return (
            cost.base_seconds
            + self.prefill_tokens * cost.prefill_token_seconds
            + self.decode_sequences * cost.decode_sequence_seconds
            + self.encoder_tokens * cost.encoder_token_seconds
        )


Emission = tuple[Sequence, int, str | None]
"""A token made: its sequence, its place from 0 on, and the finish reason if it is the last."""


class Engine:
    """The scheduler with its KV pool and encoder cache. No clock, no IO, one caller at a time."""

    def __init__(self, config: EmulatorConfig) -> None:
        self._config = config
        self.pool = BlockPool(config.num_gpu_blocks)
        self._groups = groups_of(config)
        self.encoder_cache = EncoderCache(config.encoder_budget_tokens)
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self._aborted: list[Sequence] = []
        self.totals = Totals()
        self.gauges = Gauges()

    @property
    def has_work(self) -> bool:
        return bool(self.running or self.waiting or self._aborted)

    @property
    def unfinished(self) -> int:
        return len(self.running) + len(self.waiting)

    @property
    def prefilling_prompt_tokens(self) -> int:
        """Whole prompts of all sequences that have no token yet: what `--max-num-queued-tokens` looks at."""
        sequences = (*self.running, *self.waiting)
        return sum(len(sequence.prompt.tokens) for sequence in sequences if not sequence.generated)

    def add(self, sequence: Sequence, now: float) -> None:
        sequence.arrived_at = now
        sequence.tables = BlockTables(self._groups, self.pool)
        if self._config.enable_prefix_caching:
            sequence.hashes = prompt_hashes(sequence.prompt, self._config.block_size)
        self.waiting.append(sequence)

    def abort(self, sequence: Sequence) -> None:
        """The client left. Nothing counts it; its memory returns at the end of the running step."""
        if sequence.aborted or sequence.is_finished:
            return
        sequence.aborted = True
        (self.running if sequence in self.running else self.waiting).remove(sequence)
        self._aborted.append(sequence)

    def schedule(self, now: float) -> Step:
        """Choose the work of the next step. An empty step means that nothing can run until something changes."""
        self._sweep_aborted()
        step = Step(self._config.max_num_batched_tokens, self.encoder_cache.capacity_tokens)
        self._schedule_running(step)
        if not step.preempted:
            self._admit_waiting(step, now)
        if not step.scheduled:
            self._publish()
        return step

    def finish(self, step: Step, now: float) -> list[Emission]:
        """The step's work is done: tokens come out, finished sequences leave, the gauges move."""
        emissions = []
        for sequence, tokens in step.scheduled:
            if sequence.aborted:
                continue
            sequence.computed += tokens
            self._pass_images(sequence)
            if sequence.computed == sequence.total:
                emissions.append(self._emit(sequence, now))
        self.totals.histograms["iteration_tokens_total"].observe(step.prefill_tokens + step.decode_sequences)
        self._sweep_aborted()
        self._publish()
        return emissions

    def statistics(self) -> EngineStatistics:
        return EngineStatistics(
            running=len(self.running),
            waiting=len(self.waiting),
            free_blocks=self.pool.free_blocks,
            total_blocks=self.pool.total_blocks,
            held_encoder_tokens=self.encoder_cache.held_tokens,
            preemptions=self.totals.preemptions,
            finished=self.totals.finished.total(),
            prompt_tokens=self.totals.prompt_tokens,
            generation_tokens=self.totals.generation_tokens,
            published=self.gauges,
        )

    def _schedule_running(self, step: Step) -> None:
        place = 0
        while place < len(self.running) and step.token_budget:
            sequence = self.running[place]
            tokens = min(sequence.total - sequence.computed, step.token_budget)
            tokens, images = self._encoder_share(sequence, tokens, step)
            if tokens:
                if not self._make_room(sequence, tokens, step):
                    return
                self._run(sequence, tokens, images, step)
            place += 1

    def _admit_waiting(self, step: Step, now: float) -> None:
        while self.waiting and step.token_budget and len(self.running) < self._config.max_num_seqs:
            sequence = self.waiting[0]
            prefix = sequence.tables.cached_prefix(sequence.hashes[: (sequence.total - 1) // self._config.block_size])
            if sequence.tables.needed_to_begin(sequence.total, prefix) > self.pool.free_blocks:
                return
            self._start_at(sequence, prefix.length * self._config.block_size)
            tokens = min(sequence.total - sequence.computed, step.token_budget)
            tokens, images = self._encoder_share(sequence, tokens, step)
            if not tokens:
                return
            self._admit(self.waiting.popleft(), prefix, now)
            self._run(sequence, tokens, images, step)

    def _start_at(self, sequence: Sequence, computed: int) -> None:
        """Skip what the prefix cache holds; an image that it holds only in part must be encoded again."""
        sequence.computed = computed
        behind = sum(image.end <= computed for image in sequence.prompt.images)
        sequence.images_started = sequence.images_passed = behind

    def _admit(self, sequence: Sequence, prefix: Prefix, now: float) -> None:
        sequence.tables.begin(prefix)
        self.running.append(sequence)
        if not sequence.preemptions:
            sequence.scheduled_at = now
            sequence.cached_tokens = sequence.computed
            self.totals.prefix_queries += sequence.total if self._config.enable_prefix_caching else 0
            self.totals.prefix_hits += sequence.computed

    def _encoder_share(self, sequence: Sequence, tokens: int, step: Step) -> tuple[int, list[ImageSpan]]:
        """How many of these tokens can run, and the images that they reach: all encoded, or the chunk ends before."""
        reached: list[ImageSpan] = []
        to_encode = to_hold = 0
        for image in sequence.prompt.images[sequence.images_started :]:
            if image.start >= sequence.computed + tokens:
                break
            to_encode += 0 if image.identity in self.encoder_cache else image.length
            to_hold += 0 if self.encoder_cache.is_held(image.identity) else image.length
            if to_encode > step.encoder_budget or not self.encoder_cache.fits(to_hold):
                return max(0, image.start - sequence.computed), reached
            reached.append(image)
        return tokens, reached

    def _make_room(self, sequence: Sequence, tokens: int, step: Step) -> bool:
        """Preempt from the end until the blocks suffice. False if the sequence itself had to go."""
        sequence.tables.let_go(sequence.computed)
        missing = sequence.tables.missing(sequence.computed + tokens)
        while missing > self.pool.free_blocks:
            victim = self.running.pop()
            self._preempt(victim)
            step.preempted = True
            if victim is sequence:
                return False
        return True

    def _run(self, sequence: Sequence, tokens: int, images: list[ImageSpan], step: Step) -> None:
        self._hold_images(sequence, images, step)
        sequence.tables.take(sequence.computed + tokens)
        self._remember_full_blocks(sequence, sequence.computed + tokens)
        step.scheduled.append((sequence, tokens))
        step.token_budget -= tokens
        if sequence.computed < len(sequence.prompt.tokens) or tokens > 1:
            step.prefill_tokens += tokens
        else:
            step.decode_sequences += 1

    def _hold_images(self, sequence: Sequence, images: list[ImageSpan], step: Step) -> None:
        for image in images:
            if image.identity not in self.encoder_cache:
                step.encoder_budget -= image.length
                step.encoder_tokens += image.length
            self.encoder_cache.hold(image.identity, image.length)
        sequence.images_started += len(images)

    def _remember_full_blocks(self, sequence: Sequence, tokens: int) -> None:
        """Full prompt blocks can be shared from the moment they are scheduled: siblings of one step share already."""
        full_blocks = tokens // self._config.block_size
        new = sequence.tables.remember(sequence.hashes, full_blocks, len(sequence.prompt.tokens))
        sequence.cache_tokens_created += new * self._config.block_size

    def _preempt(self, sequence: Sequence) -> None:
        self._free(sequence)
        sequence.preemptions += 1
        self.totals.preemptions += 1
        self.waiting.appendleft(sequence)

    def _free(self, sequence: Sequence) -> None:
        for image in sequence.prompt.images[sequence.images_passed : sequence.images_started]:
            self.encoder_cache.release(image.identity)
        sequence.tables.release()
        sequence.computed = sequence.images_started = sequence.images_passed = 0

    def _pass_images(self, sequence: Sequence) -> None:
        for image in sequence.prompt.images[sequence.images_passed : sequence.images_started]:
            if image.end > sequence.computed:
                return
            self.encoder_cache.release(image.identity)
            sequence.images_passed += 1

    def _emit(self, sequence: Sequence, now: float) -> Emission:
        place = sequence.generated
        self._count_token(sequence, now)
        sequence.generated += 1
        sequence.last_token_at = now
        if not sequence.is_finished:
            return sequence, place, None
        self.running.remove(sequence)
        self._free(sequence)
        self._count_finished(sequence, now)
        return sequence, place, sequence.finish_reason

    def _sweep_aborted(self) -> None:
        for sequence in self._aborted:
            self._free(sequence)
        self._aborted.clear()

    def _publish(self) -> None:
        self.gauges = Gauges(len(self.running), len(self.waiting), self.pool.usage_ratio)

    def _count_token(self, sequence: Sequence, now: float) -> None:
        self.totals.generation_tokens += not sequence.is_pooled
        if sequence.generated:
            self.totals.histograms["inter_token_latency_seconds"].observe(now - sequence.last_token_at)
            return
        sequence.first_token_at = now
        self.totals.prompt_tokens += len(sequence.prompt.tokens)
        self.totals.cached_prompt_tokens += sequence.cached_tokens
        self.totals.histograms["time_to_first_token_seconds"].observe(now - sequence.arrived_at)

    def _count_finished(self, sequence: Sequence, now: float) -> None:
        self.totals.finished[sequence.finish_reason] += 1
        prompt_tokens = len(sequence.prompt.tokens)
        decode_seconds = now - sequence.first_token_at
        observed = {
            "request_prompt_tokens": prompt_tokens,
            "request_generation_tokens": sequence.generated,
            "request_max_num_generation_tokens": sequence.generated,
            "request_params_n": sequence.n,
            "request_params_max_tokens": sequence.max_tokens,
            "request_time_per_output_token_seconds": decode_seconds / max(1, sequence.generated - 1),
            "e2e_request_latency_seconds": now - sequence.arrived_at,
            "request_queue_time_seconds": sequence.scheduled_at - sequence.arrived_at,
            "request_inference_time_seconds": now - sequence.scheduled_at,
            "request_prefill_time_seconds": sequence.first_token_at - sequence.scheduled_at,
            "request_decode_time_seconds": decode_seconds,
            "request_num_preemptions": sequence.preemptions,
            "request_prefill_kv_computed_tokens": prompt_tokens - sequence.cached_tokens,
        }
        for name, value in observed.items():
            self.totals.histograms[name].observe(value)
