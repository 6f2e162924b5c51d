"""What a plan of one vLLM start is made from, and what it says: values, and no arithmetic but their own.

Every amount is in GiB (2^30 bytes) on one GPU unless its name says otherwise. An amount known only within limits is a
Span. How each is found is in the file of its name beside this one; planning.py puts them together.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from gateway.domain.quantities import ceil_div
from gateway.domain.vision.sources import Source

GIB = 1 << 30


class Span(NamedTuple):
    """An amount: what is expected, and between which limits it is expected to be."""

    low: float
    expected: float
    high: float

    @classmethod
    def exact(cls, value: float) -> "Span":
        return cls(value, value, value)

    @classmethod
    def around(cls, expected: float, margin: float) -> "Span":
        """Plus or minus `margin`."""
        return cls(expected - margin, expected, expected + margin)

    @classmethod
    def total(cls, *parts: "Span") -> "Span":
        """Their sum. The parts miss independently of each other, so their distances add up as squares do."""
        expected = sum(part.expected for part in parts)
        below = math.hypot(*(part.expected - part.low for part in parts))
        above = math.hypot(*(part.high - part.expected for part in parts))
        return cls(expected - below, expected, expected + above)

    @classmethod
    def largest(cls, *parts: "Span") -> "Span":
        return cls(*(max(limits) for limits in zip(*parts, strict=True)))

    def __neg__(self) -> "Span":
        return Span(-self.high, -self.expected, -self.low)


class Sliding(NamedTuple):
    """Layers that see only `window` tokens back; `is_chunked` where they see a chunk of that size instead."""

    window: int
    local_layers: int
    is_chunked: bool = False


class Moe(NamedTuple):
    """Experts of a layer, `intermediate` their own width; of the layers behind the
    first `dense_layers` every `every`-th has them, the others are dense.
    """

    experts: int
    top_k: int
    intermediate: int
    shared_intermediate: int = 0
    every: int = 1
    dense_layers: int = 0

    def layers_of(self, layers: int) -> int:
        """How many of a model's layers have experts."""
        return (layers - self.dense_layers) // self.every


class Latent(NamedTuple):
    """Projections of latent attention (MLA): queries, which may have a narrow step of their own (`query_rank`, else 0),
    and the cached value, from which each head gets its key and its value.
    """

    query_rank: int
    cached_rank: int
    plain_dims: int
    rope_dims: int
    value_dims: int


class RopeTable(NamedTuple):
    """A table of sines and cosines that every rank keeps whole."""

    positions: int
    dims: int


@dataclass(frozen=True, slots=True)
class TextSpec:
    """The language model. `latent_dims` is the width of the one cached value of latent attention (MLA), else None, and
    `latent` its projections where they are known.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    is_tied: bool = False
    has_qkv_bias: bool = False
    has_qk_norm: bool = False
    moe: Moe | None = None
    sliding: Sliding | None = None
    latent_dims: int | None = None
    latent: Latent | None = None
    max_positions: int | None = None
    rope: tuple[RopeTable, ...] = ()
    params: int | None = None

    @property
    def full_layers(self) -> int:
        """Layers whose KV grows with the context."""
        return self.layers - (self.sliding.local_layers if self.sliding else 0)


@dataclass(frozen=True, slots=True)
class VisionSpec:
    """The vision tower. `unit_patches` patches become one token (merge x merge); `is_gated` counts three matrices in
    its MLP, else two. `deepstack_levels` are layers of the language model that it feeds beside its input. Of `params`,
    `replicated_params` are whole on every rank.
    """

    kind: str
    depth: int
    hidden: int
    heads: int
    intermediate: int
    patch: int
    merge: int = 1
    temporal_patch: int = 1
    is_gated: bool = False
    deepstack_levels: int = 0
    params: int | None = None
    replicated_params: int = 0
    max_image_tokens: int | None = None

    @property
    def unit_patches(self) -> int:
        return self.merge * self.merge


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """One checkpoint. `source` says where its numbers come from. `file_bytes` is the size of its weight files where
    they were looked at; `quantization` names how it is quantised, None: not at all. `unsupported` says why a plan of
    it would be wrong (states of linear attention, encoder-decoder), None: it would not. `family` prices its images
    (domain/vision), set up by the `processor` files that were found. `is_pooling`: it embeds or ranks, and
    samples nothing.
    """

    name: str
    source: str
    text: TextSpec
    vision: VisionSpec | None = None
    dtype: str = "bfloat16"
    quantization: str | None = None
    file_bytes: int | None = None
    unsupported: str | None = None
    is_pooling: bool = False
    family: str | None = None
    processor: tuple[Source, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Gpu:
    """One card, of which a plan uses as many as there are ranks. `total_gib` as torch sees it, not as it is sold;
    `foreign_gib` is held by other processes. `has_tower_kernel`: vLLM has an attention kernel for vision towers on it
    that keeps no matrix of scores. `assumed` is the card that was taken where the name leaves open which.
    """

    name: str
    total_gib: float
    foreign_gib: float = 0.0
    has_tower_kernel: bool = True
    assumed: str | None = None


class Version(NamedTuple):
    """Of vLLM."""

    major: int
    minor: int
    patch: int = 0

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


NEWEST = Version(0, 32)
"""The version whose sources were read."""


@dataclass(frozen=True, slots=True)
class Flags:
    """What `vllm serve` was told, each under its own name there. None: not told, so its default holds, which depends on
    the version and the card (defaults.py fills it in). `limit_mm_per_prompt` counts by modality; one that is not named
    has no limit, and `sized_modalities` are those whose size was limited beside their count; `profiled_image` has width
    and height of images, 0 where one is not limited.
    """

    gpu_memory_utilization: float | None = None
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    dtype: str = "auto"
    kv_cache_dtype: str = "auto"
    quantization: str | None = None
    block_size: int = 16
    enforce_eager: bool = False
    limit_mm_per_prompt: Mapping[str, int] = field(default_factory=dict)
    sized_modalities: tuple[str, ...] = ()
    profiled_image: tuple[int, int] | None = None
    mm_processor_kwargs: Mapping[str, object] = field(default_factory=dict)
    mm_encoder_tp_mode: str = "weights"
    skip_mm_profiling: bool = False
    runner: str = "auto"
    disable_hybrid_kv_cache_manager: bool = False
    kv_cache_memory_bytes: int | None = None
    cpu_offload_gb: float = 0.0
    speculative_config: object = None


class Phase(StrEnum):
    """What vLLM does while it starts, in its order; the values are those of the cases files."""

    SNAPSHOT = "memory_snapshot"
    LOAD = "load_weights"
    PROFILE = "profile_run"
    KV_SIZING = "kv_cache_sizing"
    LENGTH_CHECK = "max_model_len_check"
    GRAPHS = "cuda_graph_capture"
    SAMPLER_WARMUP = "sampler_warmup"
    SERVING = "runtime_encoder"


class Outcome(StrEnum):
    FITS = "fits"
    TOO_CLOSE = "too close"
    DOES_NOT_FIT = "does not fit"


@dataclass(frozen=True, slots=True)
class PhaseCheck:
    """One phase: `needed` of what is `available`; `slack` is what would be left, which is below nothing where it
    fails.
    """

    phase: Phase
    needed: Span
    available: Span
    slack: Span


@dataclass(frozen=True, slots=True)
class Verdict:
    """`phase` is the one that fails or may fail, None where the plan fits. `why` says it with its numbers."""

    outcome: Outcome
    phase: Phase | None
    why: str

    def __str__(self) -> str:
        return f"{self.outcome} in {self.phase}" if self.outcome is Outcome.DOES_NOT_FIT else str(self.outcome)


@dataclass(frozen=True, slots=True)
class EncoderProfile:
    """What vLLM sends through the vision tower while it profiles. `modality` is None where nothing is sent. `patches`
    are all items together; `budget_tokens` is the encoder budget, of computing and of the cache.
    """

    modality: str | None
    items: int
    tokens_per_item: int
    patches: int
    budget_tokens: int
    max_tokens: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Terms:
    """What takes memory. `weights` without `rotary` and `buffers`, which vLLM's log line counts in with them, as it
    does `rounding`, the allocator's; the sum is known to `loaded_margin`. `encoder_cache` is kept while the language
    model is profiled.
    """

    loaded_margin: float
    weights: float
    rotary: float
    buffers: float
    rounding: float
    non_torch: Span
    encoder: Span
    encoder_cache: float
    language_model: Span
    sampler: Span
    graphs: Span

    @property
    def loaded(self) -> float:
        """As vLLM logs it: "Model loading took ..."."""
        return self.weights + self.rotary + self.buffers + self.rounding


class KvLayout(NamedTuple):
    """How a model's pages are laid out and counted on one rank (kv.py): `groups` of layers, each of which takes blocks
    of its own out of one pool, `local_groups` of them of sliding layers. `bytes_per_block` is a block of one group,
    `bytes_per_token` all layers.

    `in_flight_tokens` may be computed and not yet given back, which sliding layers keep beside their window.
    `is_group_aware` says how vLLM prints the tokens of a pool with several groups.
    """

    groups: int
    block_tokens: int
    bytes_per_block: int
    bytes_per_token: int
    local_groups: int = 0
    sliding: Sliding | None = None
    in_flight_tokens: int = 0
    is_group_aware: bool = True

    def blocks_of(self, tokens: int) -> int:
        """Blocks that one request of so many tokens holds at most, over all groups."""
        blocks = (self.groups - self.local_groups) * ceil_div(tokens, self.block_tokens)
        if self.sliding is not None:
            blocks += self.local_groups * self._local_blocks(self.sliding, tokens)
        return blocks

    def _local_blocks(self, sliding: Sliding, tokens: int) -> int:
        if sliding.is_chunked:
            return ceil_div(min(sliding.window + self.in_flight_tokens, tokens), self.block_tokens)
        # One more: a window need not begin where a block does.
        return ceil_div(min(sliding.window - 1 + self.in_flight_tokens, tokens), self.block_tokens) + 1

    def blocks_in(self, pool_gib: float) -> int:
        return max(0, int(pool_gib * GIB // self.bytes_per_block))

    def tokens_in(self, blocks: int, max_model_len: int) -> int:
        """As vLLM's log line prints them."""
        if not self.local_groups:
            return blocks * self.block_tokens
        if not self.is_group_aware:
            return blocks // self.groups * self.block_tokens
        return int(blocks / self.blocks_of(max_model_len) * max_model_len)


class TokenSpan(NamedTuple):
    """Tokens of the KV pool as vLLM prints them."""

    low: int
    expected: int
    high: int


@dataclass(frozen=True, slots=True)
class Plan:
    """`flags` are complete: defaults are filled in. `peak` is the profile's, the largest of what comes one after the
    other; `graphs_in_budget` where this version takes the graphs off the KV pool. `kv_pool` may be below nothing, as
    vLLM prints it too. `kv_needed` is one request of `max_model_len`. `notes` say what was assumed or left out.
    """

    model: ModelSpec
    gpu: Gpu
    flags: Flags
    version: Version
    budget: float
    terms: Terms
    encoder_profile: EncoderProfile
    peak: Span
    graphs_in_budget: bool
    kv_layout: KvLayout
    kv_pool: Span
    kv_blocks: TokenSpan
    kv_tokens: TokenSpan
    kv_needed: float
    checks: tuple[PhaseCheck, ...]
    verdict: Verdict
    notes: tuple[str, ...] = ()

    @property
    def concurrency(self) -> float:
        """Requests of `max_model_len` that the pool holds at once, as vLLM prints it."""
        return max(0.0, self.kv_pool.expected) / self.kv_needed
