"""What could fail, phase by phase in vLLM's own order, and the verdict that follows.

A phase fails for sure where it has too little even at the better limits, and holds for sure where it has enough at the
worse ones. In between it is too close to say.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gateway.domain.memory.calibration import COPIED_BYTES, SORT_FREE_SINCE, SORTED_BYTES
from gateway.domain.memory.dtypes import model_bytes
from gateway.domain.memory.plan import GIB, Flags, Gpu, Outcome, Phase, PhaseCheck, Span, Terms, Verdict, Version

_CONTEXT = Span(0.2, 0.35, 0.55)
"""Of CUDA itself in this process, which is there before vLLM takes its first reading."""


class Start(NamedTuple):
    """What the phases share out. `kv_block` is one block of the pool, `kv_needed` one request of full length."""

    gpu: Gpu
    flags: Flags
    version: Version
    vocab: int
    terms: Terms
    budget: float
    peak: Span
    graphs_in_budget: bool
    kv_pool: Span
    kv_block: float
    kv_needed: float
    serves_unprofiled: bool
    is_pooling: bool


def phase_checks(start: Start) -> Iterator[PhaseCheck]:
    """Each phase that can fail, in order."""
    terms, total = start.terms, Span.exact(start.gpu.total_gib - start.gpu.foreign_gib)
    loaded = Span.around(terms.loaded, terms.loaded_margin)
    if start.flags.kv_cache_memory_bytes is None:
        yield _check(Phase.SNAPSHOT, Span.exact(start.budget), total)
    yield _check(Phase.LOAD, Span.total(loaded, _CONTEXT), total)
    yield _check(Phase.PROFILE, Span.total(loaded, terms.non_torch, start.peak), total)
    yield _check(Phase.KV_SIZING, Span.exact(start.kv_block), start.kv_pool)
    yield _check(Phase.LENGTH_CHECK, Span.exact(start.kv_needed), start.kv_pool)
    free = _free_beside_pool(start, total, loaded)
    if not start.flags.enforce_eager:
        yield _check(Phase.GRAPHS, terms.graphs, free)
    free = Span.total(free, -terms.graphs)
    if not start.is_pooling:
        yield _check(Phase.SAMPLER_WARMUP, _warmup(start), free)
    if start.serves_unprofiled:
        yield _check(Phase.SERVING, terms.encoder, free)


def verdict_of(start: Start, checks: Sequence[PhaseCheck]) -> Verdict:
    """Where one phase fails for sure, the first that is expected to; else the first that may."""
    if any(check.slack.high < 0 for check in checks):
        failing = next(check for check in checks if check.slack.expected < 0)
        return Verdict(Outcome.DOES_NOT_FIT, failing.phase, _why(failing))
    doubtful = next((check for check in checks if check.slack.low < 0), None)
    if doubtful is not None:
        return Verdict(Outcome.TOO_CLOSE, doubtful.phase, _why(doubtful))
    spare = start.kv_pool.expected - start.kv_needed
    return Verdict(Outcome.FITS, None, f"{spare:.2f} GiB of the KV pool are left beside one request of full length")


def _check(phase: Phase, needed: Span, available: Span) -> PhaseCheck:
    return PhaseCheck(phase, needed, available, Span.total(available, -needed))


_TOLD = {
    Phase.SNAPSHOT: "vLLM wants {needed} GiB to be free at the start, of which it has {available}",
    Phase.LOAD: "weights and CUDA need {needed} GiB of {available}",
    Phase.PROFILE: "the trial run needs {needed} GiB with the weights, of {available}",
    Phase.KV_SIZING: "{available} GiB remain for the KV pool",
    Phase.LENGTH_CHECK: "one request of full length needs {needed} GiB of a KV pool of {available}",
    Phase.GRAPHS: "CUDA graphs need {needed} GiB of the {available} beside the KV pool",
    Phase.SAMPLER_WARMUP: "the sampler's warm-up needs {needed} GiB of the {available} that graphs leave",
    Phase.SERVING: "the vision tower needs {needed} GiB at its peak, and {available} are kept free",
}


def _why(check: PhaseCheck) -> str:
    needed, available = f"{check.needed.expected:.2f}", f"{check.available.expected:.2f}"
    told = _TOLD[check.phase].format(needed=needed, available=available)
    return f"{told}; left are {check.slack.expected:+.2f} GiB ({check.slack.low:+.2f} to {check.slack.high:+.2f})"


def _free_beside_pool(start: Start, total: Span, loaded: Span) -> Span:
    """After the pool was allocated. What the profile took is free again; what was taken off the pool is too."""
    if start.flags.kv_cache_memory_bytes is not None:
        return Span.total(total, -loaded, -start.terms.non_torch, -start.kv_pool, -_CONTEXT)
    kept_free = start.terms.graphs.expected if start.graphs_in_budget else 0.0
    return Span.total(total, Span.exact(kept_free - start.budget), -_CONTEXT, start.peak)


def _warmup(start: Start) -> Span:
    """The sampler once more, for as many rows as there may be sequences."""
    logits = (start.flags.max_num_seqs or 0) * start.vocab
    own = model_bytes(start.flags)
    sizes = (own, 6 + own, COPIED_BYTES + own) if start.version >= SORT_FREE_SINCE else (8.0, 25.0, SORTED_BYTES)
    return Span(*(logits * size / GIB for size in sizes))
