"""What takes most of a card, and what each flag would give back: plans with one thing changed, side by side."""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from gateway.domain.memory.defaults import NotPlannableError
from gateway.domain.memory.encoder import IMAGE, VIDEO, family_of
from gateway.domain.memory.plan import Flags, Plan
from gateway.domain.memory.planning import make_plan
from gateway.domain.memory.weights import scheme_of
from gateway.domain.vision.qwen_vl import QwenVL

ENOUGH_PIXELS = 1280 * 1280
"""Small print stays readable at this area."""
FEW_TOKENS = 2048
HIGHEST_UTILISATION = 0.95
_WORTH_GIB = 0.005
_ABOUT = 0.95
WEIGHTS, ENCODER, SAMPLER, LANGUAGE_MODEL, GRAPHS, NON_TORCH = (
    "weights",
    "encoder profile",
    "sampler profile",
    "language model profile",
    "CUDA graphs",
    "non-torch",
)


class Relief(NamedTuple):
    """One change: how it is written, what is lost by it, how much larger the KV pool gets, and how much less the
    largest term takes.
    """

    flag: str
    loss: str
    pool_gib: float
    top_term_gib: float


class Change(NamedTuple):
    flag: str
    loss: str
    flags: Flags


def shares(plan: Plan) -> dict[str, float]:
    """What takes the card beside the KV pool, in GiB. Of the profile only the part that makes its peak."""
    terms = plan.terms
    return {
        WEIGHTS: terms.loaded,
        peak_term(plan): plan.peak.expected,
        GRAPHS: terms.graphs.expected,
        NON_TORCH: terms.non_torch.expected,
    }


def peak_term(plan: Plan) -> str:
    terms = plan.terms
    llm = max(terms.sampler.expected, terms.language_model.expected)
    if terms.encoder.expected > llm + terms.encoder_cache and not plan.flags.skip_mm_profiling:
        return ENCODER
    return SAMPLER if terms.sampler.expected >= terms.language_model.expected else LANGUAGE_MODEL


def top_term(plan: Plan) -> str:
    """The largest of them."""
    found = shares(plan)
    return max(found, key=lambda name: found[name])


def reliefs(plan: Plan) -> list[Relief]:
    """What each flag would give, the least loss first; what gives nothing is left out."""
    top = top_term(plan)
    before = shares(plan)[top]
    found = []
    for change in changes(plan):
        try:
            other = make_plan(plan.model, plan.gpu, change.flags, plan.version)
        except NotPlannableError:
            continue
        pool = other.kv_pool.expected - plan.kv_pool.expected
        freed = before - _same_term(other, top)
        if pool > _WORTH_GIB or freed > _WORTH_GIB:
            found.append(Relief(change.flag, change.loss, pool, freed))
    return found


def best_for_top_term(found: list[Relief]) -> Relief | None:
    """What takes most off the largest term; of those that take about as much, the one that costs least."""
    most = max((each.top_term_gib for each in found), default=0.0)
    return next((each for each in found if each.top_term_gib >= _ABOUT * most and most > _WORTH_GIB), None)


def _same_term(plan: Plan, name: str) -> float:
    """Where another term makes the peak now, that one is what remains of it."""
    found = shares(plan)
    return found.get(name, plan.peak.expected)


def changes(plan: Plan) -> Iterator[Change]:
    """One flag at a time, in the order of what is lost by it."""
    flags, profile = plan.flags, plan.encoder_profile
    if VIDEO in profile.max_tokens:
        without = replace(flags, limit_mm_per_prompt={**flags.limit_mm_per_prompt, VIDEO: 0})
        yield Change("--limit-mm-per-prompt '{\"video\": 0}'", "videos", without)
    family = family_of(plan.model, flags)
    if IMAGE in profile.max_tokens and isinstance(family, QwenVL) and family.max_pixels > ENOUGH_PIXELS:
        options = {**flags.mm_processor_kwargs, "max_pixels": ENOUGH_PIXELS}
        shown = f"--mm-processor-kwargs '{{\"max_pixels\": {ENOUGH_PIXELS}}}'"
        yield Change(shown, "detail above 1280 x 1280 in area", replace(flags, mm_processor_kwargs=options))
    sequences = flags.max_num_seqs or 1
    useful = max(1, min(sequences // 2, int(plan.concurrency)))
    if useful < sequences:
        yield Change(f"--max-num-seqs {useful}", "more answers at once", replace(flags, max_num_seqs=useful))
    if (flags.max_num_batched_tokens or 0) > FEW_TOKENS:
        smaller = replace(flags, max_num_batched_tokens=FEW_TOKENS, max_num_seqs=min(sequences, FEW_TOKENS))
        yield Change(f"--max-num-batched-tokens {FEW_TOKENS}", "speed of long prompts", smaller)
    yield from _costlier_changes(plan)


def _costlier_changes(plan: Plan) -> Iterator[Change]:
    flags, ranks = plan.flags, plan.flags.tensor_parallel_size
    if not flags.enforce_eager:
        yield Change("--enforce-eager", "speed of every answer", replace(flags, enforce_eager=True))
    if (flags.gpu_memory_utilization or 1) < HIGHEST_UTILISATION:
        higher = replace(flags, gpu_memory_utilization=HIGHEST_UTILISATION)
        yield Change(f"--gpu-memory-utilization {HIGHEST_UTILISATION}", "room for what was not foreseen", higher)
    if scheme_of(plan.model, flags) is None:
        yield Change("--quantization fp8", "some accuracy", replace(flags, quantization="fp8"))
    yield Change(f"--tensor-parallel-size {2 * ranks}", "more cards", replace(flags, tensor_parallel_size=2 * ranks))
