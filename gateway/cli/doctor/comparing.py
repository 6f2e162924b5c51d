"""A plan for the start that a log is of: which model and which card it is, and the plan beside what was measured."""

from typing import NamedTuple

from gateway.domain.doctor.measured import Start
from gateway.domain.doctor.planned import Comparison, compare, flags_of, total_gib, version_for_plan
from gateway.domain.memory.defaults import NotPlannableError
from gateway.domain.memory.gpus import gpu_of, known_total_gib
from gateway.domain.memory.planning import make_plan
from gateway.models.known_specs import known_spec

_ANY_CARD_GIB = 80.0


class Assumed(NamedTuple):
    """What the operator says where the log does not."""

    model: str | None = None
    gpu: str | None = None


def compare_with_plan(start: Start, assumed: Assumed) -> Comparison:
    name = assumed.model or start.model
    if start.engine == "V0":
        return Comparison(why_not="engine V0 is not planned.")
    if name is None:
        return Comparison(why_not="the log does not name the model; give --model.")
    spec = known_spec(name)
    if spec is None:
        return Comparison(why_not=f"{name} is not in the table of models; give --model with its published name.")
    total = total_gib(start) or _said_gib(assumed.gpu)
    gpu = gpu_of(assumed.gpu or "the card", total or _ANY_CARD_GIB)
    try:
        plan = make_plan(spec, gpu, flags_of(start), version_for_plan(start))
    except (NotPlannableError, ValueError) as refused:
        return Comparison(why_not=f"{refused}.")
    return compare(start, plan, is_card_known=total is not None)


def _said_gib(gpu: str | None) -> float | None:
    """A card's name, or its GiB as torch sees them."""
    if gpu is None:
        return None
    try:
        return float(gpu)
    except ValueError:
        return known_total_gib(gpu)
