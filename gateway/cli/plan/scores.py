"""Plans beside what was observed: errors by component, verdicts by phase, and why a case was not compared."""

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gateway.cli.plan.cases import Case, CaseError, read_case
from gateway.domain.memory.defaults import NotPlannableError, settled
from gateway.domain.memory.kv import kv_layout
from gateway.domain.memory.plan import GIB, KvLayout, ModelSpec, Outcome, Phase, Plan
from gateway.domain.memory.planning import make_plan
from gateway.domain.memory.weights import loaded_weights, scheme_of
from gateway.domain.vision.base import ProcessorConfigError

COMPONENTS = {"weights_gib": "%", "kv_gib": "GiB", "kv_tokens_given_kv_gib": "%"}
"""Each with the unit of its error: of the observed value, or as it is."""

_AFTER_POOL = {Phase.GRAPHS, Phase.SAMPLER_WARMUP, "warmup_after_kv"}
"""All out of what the pool leaves: which of them asks first is chance."""
_UNTOLD = {"not stated", "not visible"}
_SECOND_ENGINE = "engine V0"


@dataclass(frozen=True, slots=True)
class Compared:
    """One number. `error` is in the unit of its component."""

    observed: float
    planned: float
    error: float


@dataclass(frozen=True, slots=True)
class Judged:
    """`phase` is the observed one, None where the server started."""

    phase: str | None
    planned: str
    is_right: bool
    is_too_close: bool


@dataclass(frozen=True, slots=True)
class Score:
    """One case. `skipped` is the reason why nothing of a whole start was compared, None where something was."""

    id: str
    is_fitted_on: bool
    components: dict[str, Compared]
    verdict: Judged | None
    skipped: str | None

    def as_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {"id": self.id, "half": "fitted on" if self.is_fitted_on else "measured on"}
        for name, each in self.components.items():
            found[name] = {
                "observed": round(each.observed, 4),
                "planned": round(each.planned, 4),
                "error": round(each.error, 4),
            }
        if self.verdict is not None:
            found["verdict"] = {
                "observed": self.verdict.phase or "started",
                "planned": self.verdict.planned,
                "right": self.verdict.is_right,
                "too_close": self.verdict.is_too_close,
            }
        return found | ({"skipped": self.skipped} if self.skipped else {})


def score(content: object) -> Score:
    """One case as the file has it."""
    try:
        return _scored(read_case(content))
    except (CaseError, ProcessorConfigError) as unreadable:
        name = content.get("id") if isinstance(content, Mapping) else None
        reason = f"unreadable: {unreadable}"
        return Score(str(name or "?"), is_fitted_on=False, components={}, verdict=None, skipped=reason)


def _scored(case: Case) -> Score:
    if case.spec is None:
        return _score(case, {}, None, "model unknown")
    found = {"weights_gib": _weights(case, case.spec), "kv_tokens_given_kv_gib": _tokens(case, case.spec)}
    components = {name: compared for name, compared in found.items() if compared is not None}
    plan = _plan(case, case.spec)
    if isinstance(plan, str):
        return _score(case, components, None, plan)
    pool = _pool(case, plan)
    if pool is not None:
        components["kv_gib"] = pool
    verdict = _verdict(case, plan)
    return _score(case, components, verdict, None if pool or verdict else "no outcome shown")


def summary(scores: Sequence[Score]) -> dict[str, Any]:
    """In the shape that `--json` prints."""
    found: dict[str, Any] = {}
    for name, unit in COMPONENTS.items():
        errors = sorted(abs(each.components[name].error) for each in scores if name in each.components)
        found[name] = {"n": len(errors), **_spread(errors), "unit": unit}
    judged = [each.verdict for each in scores if each.verdict is not None]
    found["verdict"] = {
        "n": len(judged),
        "right": sum(each.is_right for each in judged),
        "too_close": sum(each.is_too_close for each in judged),
    }
    found["skipped"] = dict(Counter(each.skipped for each in scores if each.skipped))
    return found


def by_phase(scores: Iterable[Score]) -> dict[str, dict[str, int]]:
    """Verdicts by what was observed."""
    found: dict[str, Counter[str]] = {}
    for each in scores:
        if each.verdict is not None:
            counts = found.setdefault(each.verdict.phase or "started", Counter(n=0, right=0, too_close=0))
            counts.update(n=1, right=each.verdict.is_right, too_close=each.verdict.is_too_close)
    return {phase: dict(counts) for phase, counts in found.items()}


def _score(case: Case, components: dict[str, Compared], verdict: Judged | None, skipped: str | None) -> Score:
    return Score(case.id, case.is_fitted_on, components, verdict, skipped)


def _spread(errors: Sequence[float]) -> dict[str, float | None]:
    if not errors:
        return {"median": None, "p95": None, "worst": None}
    p95 = errors[0] if len(errors) == 1 else statistics.quantiles(errors, n=20, method="inclusive")[-1]
    return {"median": round(statistics.median(errors), 4), "p95": round(p95, 4), "worst": round(errors[-1], 4)}


def _share(observed: float, planned: float) -> Compared:
    return Compared(observed, planned, 100 * (planned - observed) / observed)


def _weights(case: Case, spec: ModelSpec) -> Compared | None:
    """Of checkpoints that are not quantised: the files' size is in no case, and a scheme's name is an estimate."""
    observed = case.weights_gib
    if not observed or scheme_of(spec, case.flags) is not None:
        return None
    length = case.flags.max_model_len or spec.text.max_positions or 1
    flags = settled(replace(case.flags, max_model_len=length), spec, case.gpu_for_weights, case.version)
    loaded = loaded_weights(spec, flags)
    return _share(observed, loaded.weights + loaded.rotary + loaded.buffers + loaded.rounding)


def _layout(case: Case, spec: ModelSpec) -> tuple[KvLayout, int]:
    length = case.flags.max_model_len or spec.text.max_positions or 1
    flags = settled(replace(case.flags, max_model_len=length), spec, case.gpu_for_weights, case.version)
    return kv_layout(spec.text, flags, case.version, is_v0=case.is_v0), length


def _tokens(case: Case, spec: ModelSpec) -> Compared | None:
    """What the printed pool holds, in tokens or in blocks, whichever was printed."""
    if case.kv_gib is None or case.kv_gib <= 0:
        return None
    layout, length = _layout(case, spec)
    blocks = layout.blocks_in(case.kv_gib)
    if case.kv_tokens:
        return _share(case.kv_tokens, layout.tokens_in(blocks, length))
    return _share(case.kv_blocks, blocks) if case.kv_blocks else None


def _observed_pool(case: Case, plan: Plan) -> float | None:
    """In GiB: as printed, else from the blocks or tokens that were."""
    if case.kv_gib is not None:
        return case.kv_gib
    layout = plan.kv_layout
    if case.kv_blocks:
        return case.kv_blocks * layout.bytes_per_block / GIB
    if case.kv_tokens and not layout.local_groups:
        return case.kv_tokens * layout.bytes_per_token / GIB
    return None


def _plan(case: Case, spec: ModelSpec) -> Plan | str:
    """The plan, or why there is none."""
    if case.is_v0:
        return _SECOND_ENGINE
    if not case.is_supported_card:
        return "neither a CUDA nor a ROCm card"
    if case.gpu is None:
        return "the card's memory is not stated"
    try:
        return make_plan(spec, case.gpu, case.flags, case.version)
    except NotPlannableError as refusal:
        if spec.unsupported is None and scheme_of(spec, case.flags) is not None:
            return "quantised, and the size of its files is not in the case"
        return str(refusal)


def _pool(case: Case, plan: Plan) -> Compared | None:
    observed = _observed_pool(case, plan)
    if observed is None or not case.shows_utilisation:
        return None
    return Compared(observed, plan.kv_pool.expected, plan.kv_pool.expected - observed)


def _verdict(case: Case, plan: Plan) -> Judged | None:
    if not (case.failed_in or case.has_started):
        return None
    verdict = plan.verdict
    if verdict.outcome is Outcome.TOO_CLOSE:
        is_right = False
    elif case.failed_in is None:
        is_right = verdict.outcome is Outcome.FITS
    else:
        is_right = verdict.outcome is Outcome.DOES_NOT_FIT and _is_same_phase(case.failed_in, verdict.phase)
    return Judged(case.failed_in, str(verdict), is_right, verdict.outcome is Outcome.TOO_CLOSE)


def _is_same_phase(observed: str, planned: Phase | None) -> bool:
    return observed in _UNTOLD or observed == planned or {observed, planned} <= _AFTER_POOL
