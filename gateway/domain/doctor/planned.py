"""What a start measured beside what a plan of the same start says, term by term, and what cannot be true of that model.

The plan is made from the log alone: its flags, its version, the memory of the card that it prints. Where the log does
not say how much memory the card has, only terms that do not depend on it are compared.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from gateway.domain.doctor.advice import utilisation_of
from gateway.domain.doctor.arithmetic import Certainty, Contradiction
from gateway.domain.doctor.measured import Stage, Start, Term
from gateway.domain.doctor.versions import version_of
from gateway.domain.memory.advice import Relief, reliefs
from gateway.domain.memory.plan import NEWEST, Flags, KvLayout, Plan, Span, Version

_CONFIG_NAMES: Mapping[str, str] = {"max_model_len": "max_seq_len"}
"""Where vLLM's configuration line calls a flag by another name."""
_TOKENS_SHARE = 0.015
"""Where ranks differ, the GiB of one may be printed and the tokens of another: 1.1 % was seen (vllm#21348)."""
_KV_ROUNDING_GIB = 0.006


class Row(NamedTuple):
    """`unit` is GiB, tokens, requests or nothing."""

    what: str
    unit: str
    measured: float
    planned: Span

    @property
    def difference(self) -> float:
        return self.measured - self.planned.expected

    @property
    def is_within(self) -> bool:
        """Between the limits of the plan, as far as the log's digits go."""
        return self.planned.low - _KV_ROUNDING_GIB <= self.measured <= self.planned.high + _KV_ROUNDING_GIB


@dataclass(frozen=True, slots=True)
class Comparison:
    """`why_not` says why there is no plan, or not all of it; `reliefs` what single flags would change by the plan, the
    least loss first.
    """

    rows: tuple[Row, ...] = ()
    verdict: str | None = None
    why_not: str | None = None
    contradictions: tuple[Contradiction, ...] = ()
    reliefs: tuple[Relief, ...] = ()


def flags_of(start: Start) -> Flags:
    """What the log says of the flags that a plan asks for; of a kind that the plan does not expect: not said."""
    found: dict[str, Any] = {}
    defaults = Flags()
    for field in fields(Flags):
        value = start.setting(field.name)
        if value is None and field.name in _CONFIG_NAMES:
            value = start.setting(_CONFIG_NAMES[field.name])
        if value is not None and _fits(field.name, value, getattr(defaults, field.name)):
            found[field.name] = value
    found["gpu_memory_utilization"] = utilisation_of(start)
    for name, term in (("max_model_len", Term.CONTEXT), ("max_num_batched_tokens", Term.BATCHED_TOKENS)):
        told = start.get(term)
        if told is not None and told >= 1:
            found[name] = int(told)
    if "dtype" in found:
        found["dtype"] = str(found["dtype"]).removeprefix("torch.")
    return Flags(**found)


def _fits(name: str, value: object, default: object) -> bool:
    """A log may say anything under the name of a flag."""
    if name == "limit_mm_per_prompt":
        return isinstance(value, dict) and all(isinstance(count, int) and count >= 0 for count in value.values())
    if name == "mm_processor_kwargs":
        return isinstance(value, dict)
    if name == "speculative_config":
        return True
    if isinstance(default, bool):
        return isinstance(value, bool)
    if isinstance(default, str) or name == "quantization":
        return isinstance(value, str)
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def version_for_plan(start: Start) -> Version:
    found = version_of(start.version)
    return NEWEST if found is None else Version(*found)


def total_gib(start: Start) -> float | None:
    """As printed, else what the budget and the utilisation give."""
    total, budget, share = start.get(Term.TOTAL_GIB), start.get(Term.BUDGET_GIB), utilisation_of(start)
    if total is None and budget is not None and share:
        total = budget / share
    return total if total is not None and total > 0 else None


def compare(start: Start, plan: Plan, *, is_card_known: bool) -> Comparison:
    """`is_card_known` False: the plan's card is any, and what depends on it is left out."""
    rows = [*_terms(start, plan)]
    if is_card_known:
        rows += _of_the_card(start, plan)
    return Comparison(
        tuple(rows),
        verdict=f"{plan.verdict}. {plan.verdict.why}" if is_card_known else None,
        why_not=None
        if is_card_known
        else "the log does not say how much memory the card has; give --gpu for all of it.",
        contradictions=tuple(_impossible(start, plan.kv_layout, plan.model.name)),
        reliefs=tuple(reliefs(plan)) if is_card_known else (),
    )


def _terms(start: Start, plan: Plan) -> Iterator[Row]:
    """What does not depend on the card."""
    terms, profile = plan.terms, plan.encoder_profile
    yield from _row(start, Term.WEIGHTS_GIB, "weights", "GiB", Span.around(terms.loaded, terms.loaded_margin))
    yield from _row(start, Term.ENCODER_BUDGET, "encoder budget", "tokens", Span.exact(profile.budget_tokens))
    items = f"{start.profiled_modality or profile.modality}s profiled"
    yield from _row(start, Term.ENCODER_ITEMS, items, "", Span.exact(profile.items))
    pool = start.get(Term.KV_GIB)
    context = plan.flags.max_model_len or 0
    if pool is not None and pool > 0 and context:
        low, expected, high = (
            float(plan.kv_layout.tokens_in(plan.kv_layout.blocks_in(pool + by), context))
            for by in (-_KV_ROUNDING_GIB, 0.0, _KV_ROUNDING_GIB)
        )
        yield from _row(start, Term.KV_TOKENS, f"KV tokens in {pool:.2f} GiB", "tokens", Span(low, expected, high))


def _of_the_card(start: Start, plan: Plan) -> Iterator[Row]:
    terms = plan.terms
    held = Span(*(terms.loaded + part for part in terms.non_torch))
    yield from _row(start, Term.BUDGET_GIB, "budget", "GiB", Span.exact(plan.budget))
    yield from _row(start, Term.NON_TORCH_GIB, "non-torch", "GiB", terms.non_torch)
    yield from _row(start, Term.WEIGHTS_AND_NON_TORCH_GIB, "weights and non-torch", "GiB", held)
    peak, name = plan.peak, "peak of the profile run"
    if plan.graphs_in_budget and Term.WEIGHTS_AND_NON_TORCH_GIB in start.readings:
        # Versions that print weights and non-torch as one number count the graphs' estimate into the peak.
        peak, name = Span(*map(sum, zip(plan.peak, terms.graphs, strict=True))), f"{name}, and graphs"
    yield from _row(start, Term.ACTIVATION_GIB, name, "GiB", peak)
    yield from _row(start, Term.GRAPHS_GIB, "CUDA graphs", "GiB", terms.graphs)
    yield from _row(start, Term.KV_GIB, "KV cache", "GiB", plan.kv_pool)
    if start.stage > Stage.KV_SIZING:
        tokens = Span(*(float(count) for count in plan.kv_tokens))
        yield from _row(start, Term.KV_TOKENS, "KV tokens", "tokens", tokens)
        yield from _row(start, Term.CONCURRENCY, "requests of the whole context", "requests", _requests(plan))


def _requests(plan: Plan) -> Span:
    return Span(*(max(0.0, limit) / plan.kv_needed for limit in plan.kv_pool))


def _row(start: Start, term: Term, what: str, unit: str, planned: Span) -> Iterator[Row]:
    measured = start.get(term)
    if measured is not None:
        yield Row(what, unit, measured, planned)


def _impossible(start: Start, layout: KvLayout, model: str) -> Iterator[Contradiction]:
    """Tokens and GiB of the pool determine each other where all layers are alike."""
    pool, tokens = start.readings.get(Term.KV_GIB), start.get(Term.KV_TOKENS)
    if pool is None or tokens is None or layout.local_groups or pool.value <= 0 or pool.value != pool.other:
        return
    expected = layout.blocks_in(pool.value) * layout.block_tokens
    slack = expected * _TOKENS_SHARE + _KV_ROUNDING_GIB * 2**30 / layout.bytes_per_token + 2 * layout.block_tokens
    if abs(tokens - expected) > slack:
        yield Contradiction(
            Certainty.IMPOSSIBLE,
            f"{pool.value:.2f} GiB hold {expected:,} tokens of {model} at {layout.bytes_per_token:,} bytes each; "
            f"{tokens:,.0f} are printed. Another model, another KV type, or a changed log.",
        )
