"""A plan as JSON: every number that the tables show, under names with their units."""

from collections.abc import Sequence
from typing import Any

from gateway.domain.memory.advice import best_for_top_term, reliefs, shares, top_term
from gateway.domain.memory.fit import Fitted
from gateway.domain.memory.gpus import recalled_capability
from gateway.domain.memory.holding import Held
from gateway.domain.memory.plan import Plan, Span
from gateway.domain.memory.planning import OUT_OF_SCOPE
from gateway.domain.memory.serve_line import write_command
from gateway.domain.memory.spec_table import is_recalled


def plan_report(plan: Plan, held: Sequence[Held]) -> dict[str, Any]:
    """One plan, of one rank."""
    profile, verdict = plan.encoder_profile, plan.verdict
    return {
        "model": {
            "name": plan.model.name,
            "source": plan.model.source,
            "context": {
                "tokens": plan.model.text.max_positions,
                "source": "recalled" if is_recalled(plan.model) else "config.json",
            },
        },
        "gpu": {
            "name": plan.gpu.name,
            "total_gib": plan.gpu.total_gib,
            "foreign_gib": plan.gpu.foreign_gib,
            "cards": plan.flags.tensor_parallel_size,
            "capability": {"cuda": recalled_capability(plan.gpu.name), "source": "recalled"},
        },
        "vllm_version": str(plan.version),
        "command": write_command(plan.model.name, plan.flags),
        "budget_gib": _rounded(plan.budget),
        "terms": _terms(plan),
        "encoder_profile": {
            "modality": profile.modality,
            "items": profile.items,
            "tokens_per_item": profile.tokens_per_item,
            "patches": profile.patches,
            "budget_tokens": profile.budget_tokens,
        },
        "kv": {
            "pool_gib": _span(plan.kv_pool),
            "bytes_per_token": plan.kv_layout.bytes_per_token,
            "groups": plan.kv_layout.groups,
            "blocks": plan.kv_blocks._asdict(),
            "tokens": plan.kv_tokens._asdict(),
            "needed_for_one_request_gib": _rounded(plan.kv_needed),
            "concurrency": round(plan.concurrency, 2),
        },
        "images": [each._asdict() | {"size": str(each.size)} for each in held],
        "verdict": {"outcome": verdict.outcome, "phase": verdict.phase, "why": verdict.why},
        "phases": [
            {
                "phase": check.phase,
                "needed_gib": _span(check.needed),
                "available_gib": _span(check.available),
                "slack_gib": _span(check.slack),
            }
            for check in plan.checks
        ],
        "advice": _advice(plan),
        "notes": [*plan.notes, OUT_OF_SCOPE],
    }


def fit_report(found: Fitted, held: Sequence[Held]) -> dict[str, Any]:
    """What `--fit` found."""
    return {
        "is_met": found.is_met,
        "request_tokens": found.request_tokens,
        "changed": list(found.changed),
        "other_cards": [
            {"cards": each.cards, "is_met": each.is_met, "changed": list(each.changed)} for each in found.others
        ],
        "plan": plan_report(found.plan, held),
    }


def _terms(plan: Plan) -> dict[str, Any]:
    terms = plan.terms
    return {
        "weights_gib": _rounded(terms.weights),
        "rotary_gib": _rounded(terms.rotary),
        "multimodal_buffers_gib": _rounded(terms.buffers),
        "allocator_rounding_gib": _rounded(terms.rounding),
        "loaded_gib": _span(Span.around(terms.loaded, terms.loaded_margin)),
        "non_torch_gib": _span(terms.non_torch),
        "encoder_peak_gib": _span(terms.encoder),
        "encoder_cache_gib": _rounded(terms.encoder_cache),
        "language_model_peak_gib": _span(terms.language_model),
        "sampler_peak_gib": _span(terms.sampler),
        "profile_peak_gib": _span(plan.peak),
        "cuda_graphs_gib": _span(terms.graphs),
        "cuda_graphs_in_budget": plan.graphs_in_budget,
    }


def _advice(plan: Plan) -> dict[str, Any]:
    found, top = reliefs(plan), top_term(plan)
    best = best_for_top_term(found)
    return {
        "top_term": top,
        "top_term_gib": _rounded(shares(plan)[top]),
        "top_term_flag": best.flag if best else None,
        "flags": [
            {
                "flag": each.flag,
                "loses": each.loss,
                "pool_gib": _rounded(each.pool_gib),
                "top_term_gib": _rounded(each.top_term_gib),
            }
            for each in found
        ],
    }


def _span(span: Span) -> dict[str, float]:
    return {name: _rounded(value) for name, value in span._asdict().items()}


def _rounded(gib: float) -> float:
    return round(gib, 4)
