"""What the lines of one start say: numbers by name, each with the line it was read from, and how far the start came."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple

from gateway.domain.doctor.fields import value_of


class Stage(IntEnum):
    """What vLLM was at. A line in the log says that the stage before it is over."""

    NOTHING = 0
    ARGUMENTS = 1
    DEVICE = 2
    LOADING = 3
    PROFILING = 4
    KV_SIZING = 5
    CAPTURING = 6
    WARMING_UP = 7
    STARTING_HTTP = 8
    SERVING = 9

    @property
    def words(self) -> str:
        return _STAGE_WORDS[self]


_STAGE_WORDS: Mapping[int, str] = {
    Stage.NOTHING: "before its first line",
    Stage.ARGUMENTS: "reading arguments and the model's configuration",
    Stage.DEVICE: "opening the device",
    Stage.LOADING: "loading weights",
    Stage.PROFILING: "the profile run",
    Stage.KV_SIZING: "sizing the KV cache",
    Stage.CAPTURING: "allocating the KV cache and capturing CUDA graphs",
    Stage.WARMING_UP: "warming up the sampler",
    Stage.STARTING_HTTP: "opening the HTTP server",
    Stage.SERVING: "serving",
}


class Term(StrEnum):
    """A number of the log. GiB are 2^30 bytes on one GPU, also where vLLM wrote GB."""

    TOTAL_GIB = "total_gib"
    FREE_GIB = "free_at_start_gib"
    UTILISATION = "gpu_memory_utilization"
    BUDGET_GIB = "budget_gib"
    WEIGHTS_GIB = "weights_gib"
    LOAD_SECONDS = "load_seconds"
    NON_TORCH_GIB = "non_torch_gib"
    WEIGHTS_AND_NON_TORCH_GIB = "weights_and_non_torch_gib"
    TORCH_PEAK_GIB = "torch_peak_gib"
    ACTIVATION_GIB = "activation_peak_gib"
    PROFILE_SECONDS = "profile_seconds"
    ENCODER_BUDGET = "encoder_budget_tokens"
    ENCODER_ITEMS = "encoder_profiled_items"
    BATCHED_TOKENS = "max_num_batched_tokens"
    CONTEXT = "max_model_len"
    KV_GIB = "kv_cache_gib"
    KV_TOKENS = "kv_cache_tokens"
    KV_BLOCKS = "num_gpu_blocks"
    BLOCK_TOKENS = "block_size"
    CONCURRENCY = "max_concurrency"
    CONCURRENCY_CONTEXT = "max_concurrency_context"
    GRAPHS_GIB = "cuda_graphs_gib"
    GRAPHS_ESTIMATE_GIB = "cuda_graphs_estimate_gib"
    START_SECONDS = "start_seconds"


_SMALLEST_DECIDES = frozenset(
    {Term.TOTAL_GIB, Term.FREE_GIB, Term.KV_GIB, Term.KV_TOKENS, Term.KV_BLOCKS, Term.CONCURRENCY, Term.BUDGET_GIB}
)
"""Of ranks that differ, vLLM goes by the one that has least; of all other numbers the largest is what must fit."""


class Reading(NamedTuple):
    """`value` is that of the rank which decides, `other` the farthest from it that was seen."""

    value: float
    other: float
    line: int


@dataclass(slots=True)
class OutOfMemory:
    """What torch says when an allocation fails. `others_gib` is held by other processes, where it says so."""

    line: int
    stage: Stage
    tried_gib: float
    total_gib: float | None = None
    free_gib: float | None = None
    in_use_gib: float | None = None


class Sighting(NamedTuple):
    """The first line that shows a failure, with the words that the pattern cut out of it."""

    line: int
    stage: Stage
    text: str
    words: Mapping[str, str]


@dataclass(slots=True)
class Start:
    """One start of vLLM, or what the log has of it. Only the reader writes it.

    `flags` are what the operator gave (names with underscores), `config` what vLLM printed as its configuration. `seen`
    are the failures, by kind in the order of the log; `frames` what tracebacks passed through, `last_error` the last
    exception (else line of level ERROR) before it served that is no known failure.
    """

    first_line: int
    last_line: int = 0
    version: str | None = None
    engine: str | None = None
    platform: str | None = None
    model: str | None = None
    architecture: str | None = None
    profiled_modality: str | None = None
    stage: Stage = Stage.NOTHING
    flags: dict[str, Any] = field(default_factory=dict)
    unknown_flags: list[str] = field(default_factory=list)
    config: dict[str, str] = field(default_factory=dict)
    readings: dict[Term, Reading] = field(default_factory=dict)
    seen: dict[str, Sighting] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    frames: set[str] = field(default_factory=set)
    last_error: Sighting | None = None
    out_of_memory: OutOfMemory | None = None
    marks: set[str] = field(default_factory=set)

    def get(self, term: Term) -> float | None:
        reading = self.readings.get(term)
        return None if reading is None else reading.value

    def setting(self, name: str) -> Any:
        """What vLLM ran with: as given, else as its configuration says; None where neither does."""
        return self.flags[name] if name in self.flags else value_of(self.config.get(name, "None"))

    def read(self, term: Term, value: float, line: int) -> None:
        """Keep one more reading: ranks print the same line, each with its own number."""
        before = self.readings.get(term)
        if before is None:
            self.readings[term] = Reading(value, value, line)
            return
        values = (before.value, before.other, value)
        decides = min if term in _SMALLEST_DECIDES else max
        other = max if decides is min else min
        self.readings[term] = Reading(decides(values), other(values), before.line)

    def reach(self, stage: Stage) -> None:
        self.stage = max(self.stage, stage)
