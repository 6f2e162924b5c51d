"""Flags under which a stated goal fits, with the least loss: one step after another until it does, and then every step
taken back that turns out not to be needed. So for each number of cards at hand that the model divides over.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from gateway.domain.geometry import Size
from gateway.domain.memory.advice import HIGHEST_UTILISATION
from gateway.domain.memory.defaults import NotPlannableError, settled
from gateway.domain.memory.encoder import IMAGE, VIDEO, family_of
from gateway.domain.memory.holding import image_tokens
from gateway.domain.memory.plan import Flags, Gpu, ModelSpec, Outcome, Phase, Plan, Version
from gateway.domain.memory.planning import make_plan
from gateway.domain.memory.weights import scheme_of
from gateway.domain.quantities import ceil_div
from gateway.domain.vision.qwen_vl import QwenVL

MORE_CARDS = "more cards"
_FP8_KV = "an fp8 KV cache"
_FP8_WEIGHTS = "weights in fp8"
_LESS_ACCURATE = (_FP8_KV, _FP8_WEIGHTS)
_LOWEST_UTILISATION = 0.7
_LEAST_BATCH = 2048
_AFTER_POOL = (Phase.SNAPSHOT, Phase.GRAPHS, Phase.SAMPLER_WARMUP, Phase.SERVING)
"""What a lower share of the card helps; a higher one helps the others."""


@dataclass(frozen=True, slots=True)
class Goal:
    """`users` at once, each with `images` of one size and `context_tokens` of text and answer beside them."""

    users: int
    context_tokens: int
    images: int = 0
    image_size: Size | None = None

    def request_tokens(self, model: ModelSpec, flags: Flags) -> int:
        """One request, in whole blocks. Raises NotPlannableError for images that the model cannot take."""
        images = self.images * image_tokens(model, flags, self.image_size) if self.image_size else 0
        return ceil_div(self.context_tokens + images, flags.block_size) * flags.block_size


@dataclass(frozen=True, slots=True)
class Fitted:
    """`changed` names the steps that were needed, the least loss first. `is_met` False: not even all of them do.
    `others` are the answers of other numbers of cards.
    """

    plan: Plan
    request_tokens: int
    changed: tuple[str, ...]
    is_met: bool
    others: tuple["Fitted", ...] = ()

    @property
    def cards(self) -> int:
        return self.plan.flags.tensor_parallel_size


@dataclass(frozen=True, slots=True)
class Situation:
    """What a step may look at."""

    model: ModelSpec
    gpu: Gpu
    version: Version
    goal: Goal

    def plan(self, flags: Flags) -> Plan:
        return make_plan(self.model, self.gpu, flags, self.version)

    def is_met(self, plan: Plan) -> bool:
        """Even at the lower limits."""
        tokens = self.goal.request_tokens(self.model, plan.flags)
        return (
            plan.verdict.outcome is Outcome.FITS
            and (plan.flags.max_model_len or 0) >= tokens
            and (plan.flags.max_num_seqs or 0) >= self.goal.users
            and plan.kv_blocks.low >= self.goal.users * plan.kv_layout.blocks_of(tokens)
        )


class Step(NamedTuple):
    """One change: the one flag of `Flags` that it is about, and what it makes of them."""

    field: str
    change: Callable[[Situation, Flags], Flags]


def fit(model: ModelSpec, gpu: Gpu, flags: Flags, version: Version, goal: Goal, *, cards: int = 1) -> Fitted:
    """From `flags` as they were given, on the fewest cards that meet the goal with full accuracy; where none do, with
    an fp8 KV cache rather than with weights in fp8. Raises NotPlannableError.
    """
    situation = Situation(model, gpu, version, goal)
    given = flags.tensor_parallel_size
    wider = [ranks for ranks in range(given + 1, min(cards, model.text.heads) + 1) if _divides_over(model, ranks)]
    found = [_fit_on(situation, replace(flags, tensor_parallel_size=ranks)) for ranks in (given, *wider)]
    best = min(found, key=_rank)
    others = tuple(each for each in found if each is not best)
    changed = (*best.changed, MORE_CARDS) if best.cards > given else best.changed
    return replace(best, changed=changed, others=others)


def _divides_over(model: ModelSpec, ranks: int) -> bool:
    """Heads and inner layers are shared out evenly; KV heads too, or each is on as many ranks as another."""
    text, vision = model.text, model.vision
    kv_heads = max(text.kv_heads, 1)
    whole = text.heads % ranks == 0 and text.intermediate % ranks == 0
    return whole and not (kv_heads % ranks and ranks % kv_heads) and (vision is None or vision.heads % ranks == 0)


def _rank(found: Fitted) -> tuple[bool, int, int]:
    """Accuracy is lost to the answers that the goal asks for; what the other steps take away was not asked for. Where
    it is not met, the most cards come closest.
    """
    if not found.is_met:
        return True, 0, -found.cards
    lost = max((at for at, name in enumerate(_LESS_ACCURATE, 1) if name in found.changed), default=0)
    return False, lost, found.cards


def _fit_on(situation: Situation, flags: Flags) -> Fitted:
    """On as many cards as `flags` say."""
    model, goal = situation.model, situation.goal
    start = _wide_enough(situation, settled(flags, model, situation.gpu, situation.version))
    taken: dict[str, Flags] = {}
    plan = situation.plan(start)
    for name, step in STEPS.items():
        if situation.is_met(plan):
            break
        changed = step.change(situation, plan.flags)
        if changed != plan.flags:
            taken[name] = changed
            plan = situation.plan(changed)
    is_met = situation.is_met(plan)
    if is_met:
        taken = _needed(situation, start, taken)
        plan = situation.plan(_with(start, taken))
    return Fitted(plan, goal.request_tokens(model, plan.flags), tuple(taken), is_met)


def _wide_enough(situation: Situation, flags: Flags) -> Flags:
    """A goal above what was given is a wish too: the context and the sequences that it needs. Raises
    NotPlannableError where the model has no such context.
    """
    goal = situation.goal
    needed, own = goal.request_tokens(situation.model, flags), situation.model.text.max_positions
    if own is not None and needed > own:
        raise NotPlannableError(
            f"one request of the goal has {needed:,} tokens, and the context of {situation.model.name} is {own:,}"
        )
    length = max(flags.max_model_len or 0, needed)
    limits = flags.limit_mm_per_prompt
    if goal.images and limits.get(IMAGE, goal.images) < goal.images:
        limits = {**limits, IMAGE: goal.images}
    return replace(
        flags,
        max_model_len=length,
        max_num_seqs=max(flags.max_num_seqs or 0, goal.users),
        max_num_batched_tokens=max(flags.max_num_batched_tokens or 0, goal.users),
        limit_mm_per_prompt=limits,
    )


def _needed(situation: Situation, start: Flags, taken: Mapping[str, Flags]) -> dict[str, Flags]:
    """Without those that can be taken back while the others stay as they are, tried from the greatest loss on."""
    kept = dict(taken)
    for name in reversed(list(taken)):
        fewer = {each: flags for each, flags in kept.items() if each != name}
        if situation.is_met(situation.plan(_with(start, fewer))):
            kept = fewer
    return kept


def _with(start: Flags, taken: Mapping[str, Flags]) -> Flags:
    """`start` with the one flag that each of these steps changed."""
    changes: dict[str, Any] = {STEPS[name].field: getattr(flags, STEPS[name].field) for name, flags in taken.items()}
    return replace(start, **changes)


def _no_video(situation: Situation, flags: Flags) -> Flags:
    if situation.model.vision is None:
        return flags
    limits = {**flags.limit_mm_per_prompt, VIDEO: 0}
    if not situation.goal.images:
        limits[IMAGE] = 0
    return replace(flags, limit_mm_per_prompt=limits)


def _fewer_pixels(situation: Situation, flags: Flags) -> Flags:
    """Down to the goal's own size, on the model's grid."""
    family, size = family_of(situation.model, flags), situation.goal.image_size
    if not isinstance(family, QwenVL) or size is None:
        return flags
    pixels = max(family.tokens(size).model_size.pixels, family.min_pixels)
    if pixels >= family.max_pixels:
        return flags
    return replace(flags, mm_processor_kwargs={**flags.mm_processor_kwargs, "max_pixels": pixels})


def _fewer_sequences(situation: Situation, flags: Flags) -> Flags:
    return replace(flags, max_num_seqs=min(flags.max_num_seqs or 0, situation.goal.users))


def _smaller_batches(_: Situation, flags: Flags) -> Flags:
    least = max(_LEAST_BATCH, flags.max_num_seqs or 0)
    return replace(flags, max_num_batched_tokens=min(flags.max_num_batched_tokens or 0, least))


def _shorter(situation: Situation, flags: Flags) -> Flags:
    return replace(flags, max_model_len=situation.goal.request_tokens(situation.model, flags))


def _small_kv(_: Situation, flags: Flags) -> Flags:
    return replace(flags, kv_cache_dtype="fp8")


def _eager(_: Situation, flags: Flags) -> Flags:
    return replace(flags, enforce_eager=True)


def _other_share(situation: Situation, flags: Flags) -> Flags:
    """In steps of two hundredths: up where the pool is short, down where what is outside it is."""
    share = flags.gpu_memory_utilization or 0
    plan = situation.plan(flags)
    step = -0.02 if plan.verdict.phase in _AFTER_POOL else 0.02
    best = flags
    while not situation.is_met(plan) and _LOWEST_UTILISATION <= round(share + step, 2) <= HIGHEST_UTILISATION:
        share = round(share + step, 2)
        best = replace(flags, gpu_memory_utilization=share)
        plan = situation.plan(best)
    return best


def _quantised(situation: Situation, flags: Flags) -> Flags:
    return flags if scheme_of(situation.model, flags) else replace(flags, quantization="fp8")


STEPS: Mapping[str, Step] = {
    "no videos": Step("limit_mm_per_prompt", _no_video),
    "images no larger than the goal's": Step("mm_processor_kwargs", _fewer_pixels),
    "no more sequences than users": Step("max_num_seqs", _fewer_sequences),
    "smaller batches": Step("max_num_batched_tokens", _smaller_batches),
    "a context as long as the goal's": Step("max_model_len", _shorter),
    _FP8_KV: Step("kv_cache_dtype", _small_kv),
    "no CUDA graphs": Step("enforce_eager", _eager),
    "another share of the card": Step("gpu_memory_utilization", _other_share),
    _FP8_WEIGHTS: Step("quantization", _quantised),
}
"""In the order of least loss. What each takes away is in docs/plan.md."""
